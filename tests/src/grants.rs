//! The rights that the guide tells operators to give, read from its page: what it says is what the tests run.

use crate::pages::{blocks, read};

/// The service of the page: its user, and its namespace.
pub const USER: &str = "payroll";
/// Its password there.
pub const PASSWORD: &str = "PASSWORD";

/// The line that makes the user of Redis, for the namespaces that a pattern such as `*` fits.
#[must_use]
pub fn redis(namespaces: &str) -> String {
    block("ACL SETUSER payroll reset").replace("{payroll", &format!("{{{namespaces}"))
}

/// The right that shows that user more of the settings.
#[must_use]
pub fn redis_settings() -> String {
    let line = block("+config|get");
    line.trim_end().rsplit(' ').next().unwrap_or_default().to_owned()
}

/// The statements for PostgreSQL: those before the tables are there, and those after.
#[must_use]
pub fn postgres() -> [String; 2] {
    ["CREATE ROLE payroll LOGIN", "GRANT USAGE ON SCHEMA"].map(block)
}

/// The configuration of NATS; `*` is for all namespaces.
#[must_use]
pub fn nats(namespaces: &str) -> String {
    let bucket = match namespaces {
        // A wildcard is a whole part of a subject.
        "*" => ["*", "*"].map(str::to_owned),
        namespace => [format!("KV_anarchon_{namespace}"), format!("anarchon_{namespace}")],
    };
    let text = block("authorization {");
    text.replace("KV_anarchon_payroll", &bucket[0]).replace("anarchon_payroll", &bucket[1])
}

/// What is given to `rabbitmqctl`, for the namespaces that an expression fits.
#[must_use]
pub fn rabbitmq(namespaces: &str) -> Vec<Vec<String>> {
    let text =
        block("rabbitmqctl add_vhost").replace("anarchon/payroll/", &format!("anarchon/{namespaces}/"));
    let arguments = |line: &str| {
        // Nothing there is quoted in another way.
        let parts = line.split('\'').enumerate().flat_map(|(n, part)| match n % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        parts.skip(1).collect()
    };
    text.lines().map(arguments).collect()
}

/// The command that makes the folder of SQLite, with its arguments.
#[must_use]
pub fn sqlite() -> String {
    block("install -d")
}

/// A URL with the login of the page's user.
#[must_use]
pub fn login(url: &str) -> String {
    url.replace("://", &format!("://{USER}:{PASSWORD}@"))
}

/// The block of code that contains this.
fn block(part: &str) -> String {
    let page = read("anarchon/src/guide/security.md");
    let mut texts = blocks(&page).map(|(_, text)| text);
    let text = texts.find(|text| text.contains(part)).unwrap_or_else(|| panic!("no block has {part:?}"));
    text.trim_end().to_owned()
}
