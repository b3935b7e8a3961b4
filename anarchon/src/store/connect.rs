//! From a URL to a store. Passwords never leave this file unmasked.

use std::{borrow::Cow, sync::Arc};

use super::{MemoryBackend, Store};
use crate::error::{Error, ErrorKind, Result};

/// Where the store is named when the program does not.
pub(crate) const STORE_VARIABLE: &str = "ANARCHON_STORE";

/// The store when nobody names one.
const DEFAULT_URL: &str = "sqlite:anarchon.db";

/// The store that the environment names, else SQLite in `./anarchon.db`.
pub(crate) fn from_env() -> Result<Arc<dyn Store>> {
    match std::env::var(STORE_VARIABLE) {
        Ok(url) => connect(&url).map_err(|error| {
            Error::new(error.kind(), format!("environment variable {STORE_VARIABLE}: {error}"))
        }),
        Err(std::env::VarError::NotPresent) => connect(DEFAULT_URL).map_err(|error| {
            let message = format!(
                "no store is named, and the default cannot be used: {error}; or set {STORE_VARIABLE}"
            );
            Error::new(error.kind(), message)
        }),
        Err(std::env::VarError::NotUnicode(_)) => Err(Error::new(
            ErrorKind::Configuration,
            format!(
                "environment variable {STORE_VARIABLE} is not valid Unicode; set it to the URL of a store"
            ),
        )),
    }
}

/// The store of a URL. Only the URL is checked; the connection is opened when the scheduler starts.
pub(crate) fn connect(url: &str) -> Result<Arc<dyn Store>> {
    let Some((scheme, _)) = url.split_once(':') else {
        let shown = masked(url);
        return Err(wrong(format!("store {shown:?} is not a URL; write one such as {DEFAULT_URL:?}")));
    };
    if !is_scheme(scheme) {
        return Err(wrong(without_kind(url)));
    }
    // Schemes know no case (RFC 3986, 3.1).
    let scheme = &*scheme.to_ascii_lowercase();
    let url = &*format!("{scheme}{}", &url[scheme.len()..]);
    match scheme {
        "memory" => Ok(Arc::new(MemoryBackend::connect(url)?)),
        "sqlite" => sqlite(url),
        "nats" | "tls" => nats(url),
        "postgres" | "postgresql" => postgres(url),
        "amqp" | "amqps" => rabbitmq(url),
        _ if REDIS.contains(&scheme) => redis(url),
        _ if VALKEY.contains(&scheme) => valkey(url),
        _ => Err(unknown_kind(url, scheme)),
    }
}

/// What a URL may begin with (RFC 3986, 3.1); anything else may be a user or a password.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
}

const REDIS: [&str; 6] =
    ["redis", "redis+cluster", "redis+sentinel", "rediss", "rediss+cluster", "rediss+sentinel"];
const VALKEY: [&str; 6] =
    ["valkey", "valkey+cluster", "valkey+sentinel", "valkeys", "valkeys+cluster", "valkeys+sentinel"];

#[cfg(feature = "sqlite")]
fn sqlite(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(super::SqliteBackend::connect(url)?))
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(url: &str) -> Result<Arc<dyn Store>> {
    Err(without_feature(url, "sqlite"))
}

#[cfg(feature = "nats")]
fn nats(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(super::NatsBackend::connect(url)?))
}

#[cfg(not(feature = "nats"))]
fn nats(url: &str) -> Result<Arc<dyn Store>> {
    Err(without_feature(url, "nats"))
}

#[cfg(feature = "postgres")]
fn postgres(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(super::PostgresBackend::connect(url)?))
}

#[cfg(not(feature = "postgres"))]
fn postgres(url: &str) -> Result<Arc<dyn Store>> {
    Err(without_feature(url, "postgres"))
}

#[cfg(feature = "rabbitmq")]
fn rabbitmq(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(super::RabbitMqBackend::connect(url)?))
}

#[cfg(not(feature = "rabbitmq"))]
fn rabbitmq(url: &str) -> Result<Arc<dyn Store>> {
    Err(without_feature(url, "rabbitmq"))
}

#[cfg(feature = "redis")]
fn redis(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(super::RedisBackend::connect(url)?))
}

#[cfg(not(feature = "redis"))]
fn redis(url: &str) -> Result<Arc<dyn Store>> {
    Err(without_feature(url, "redis"))
}

#[cfg(feature = "redis")]
fn valkey(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(super::ValkeyBackend::connect(url)?))
}

#[cfg(not(feature = "redis"))]
fn valkey(url: &str) -> Result<Arc<dyn Store>> {
    Err(without_feature(url, "redis"))
}

#[cfg(not(all(
    feature = "nats",
    feature = "sqlite",
    feature = "postgres",
    feature = "rabbitmq",
    feature = "redis"
)))]
fn without_feature(url: &str, feature: &str) -> Error {
    let shown = masked(url);
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "store {shown:?} needs the cargo feature {feature:?} of anarchon; switch it on in Cargo.toml"
        ),
    )
}

fn unknown_kind(url: &str, scheme: &str) -> Error {
    if !url[scheme.len()..].starts_with("://") {
        // What looks like a kind may be a user, or the password alone.
        return wrong(without_kind(url));
    }
    wrong(format!("store {:?} is of unknown kind {scheme:?}; use {KINDS}", masked(url)))
}

fn without_kind(url: &str) -> String {
    format!("store {:?} does not begin with its kind; use {KINDS}", masked(url))
}

const KINDS: &str = "postgres:, redis:, valkey:, nats:, amqp:, sqlite: or memory:";

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::Configuration, message)
}

/// Why a URL is read no further where one could take for a name what is a secret: an `@` in a place where none can stand (what comes
/// before it may all be a password), or a parameter before the `?`.
#[cfg(any(feature = "nats", feature = "postgres", feature = "rabbitmq", feature = "redis"))]
pub(crate) fn misplaced(url: &str) -> Option<&'static str> {
    let (_, rest) = split(url);
    if is_ambiguous(rest) {
        return Some(
            "an @ comes after a ?, # or /; percent-encode those in user and password (%3F, %23, %2F, and @ as %40)",
        );
    }
    let place = rest.split('?').next().unwrap_or_default();
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    if place.contains('\\') {
        // Some parsers begin the path there.
        return Some("a backslash stands in it; percent-encode it as %5C");
    }
    holds_secret(place, false).then_some(EARLY_PARAMETER)
}

/// What is said of a secret in a host, a path or a database.
#[cfg(any(
    feature = "nats",
    feature = "postgres",
    feature = "rabbitmq",
    feature = "redis",
    feature = "sqlite"
))]
pub(crate) const EARLY_PARAMETER: &str =
    "a parameter stands where none can; parameters come behind a ? and are joined with &";

/// Whether an `@` stands behind what ends user and password.
fn is_ambiguous(rest: &str) -> bool {
    rest.rsplit_once('@').is_some_and(|(before, _)| before.contains(['?', '#', '/']))
}

/// Whether what stands before a `:` is a user for sure.
fn has_users(scheme: &str) -> bool {
    ["amqp", "amqps", "postgres", "postgresql"].contains(&scheme) || is_redis(scheme)
}

fn is_redis(scheme: &str) -> bool {
    REDIS.contains(&scheme) || VALKEY.contains(&scheme)
}

fn has_servers(scheme: &str) -> bool {
    has_users(scheme) || ["nats", "tls"].contains(&scheme)
}

#[cfg(any(feature = "nats", feature = "postgres", feature = "rabbitmq", feature = "redis"))]
fn split(url: &str) -> (&str, &str) {
    match url.find("://") {
        Some(at) if is_scheme(&url[..at]) => url.split_at(at + 3),
        Some(_) | None => ("", url),
    }
}

/// A URL fit for a log. Where it is not plain what is a secret, more is hidden rather than less.
pub(crate) fn masked(url: &str) -> String {
    let (start, rest) = url.split_once(':').unwrap_or(("", url));
    let scheme = &*start.to_ascii_lowercase();
    match rest.strip_prefix("//") {
        _ if scheme == "sqlite" => format!("{start}:{}", without_secrets(rest, true)),
        _ if scheme == "memory" && is_plain(rest) => url.to_owned(),
        Some(rest) if has_servers(scheme) => format!("{start}://{}", masked_servers(scheme, rest)),
        _ if scheme == "memory" || has_servers(scheme) => format!("{start}:***"),
        // Other clients take passwords in many forms.
        _ if is_plain(url) => url.to_owned(),
        _ => "***".to_owned(),
    }
}

/// A word or a path that holds nothing else.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || "._-/\\~[]".contains(c))
}

fn masked_servers(scheme: &str, rest: &str) -> String {
    if is_ambiguous(rest) {
        return "***".to_owned();
    }
    let (login, address) = match rest.rsplit_once('@') {
        Some((login, address)) => match login.split_once(':') {
            Some((user, _)) if has_users(scheme) => (format!("{}:***@", masked_user(user)), address),
            // A token may hold a `:`.
            Some(_) | None => ("***@".to_owned(), address),
        },
        None => (String::new(), rest),
    };
    let address = without_false_ports(address);
    format!("{login}{}", without_secrets(&without_false_path(scheme, &address), false))
}

/// What stands in the place of a port and is none may be a password: of who forgot the host.
fn without_false_ports(address: &str) -> Cow<'_, str> {
    let end = address.find(['/', '?', '#']).unwrap_or(address.len());
    let mut place = 0;
    for host in address[..end].split_inclusive(',') {
        let name = if host.starts_with('[') { host.find(']').unwrap_or(0) } else { 0 };
        if let Some(colon) = host[name..].find(':') {
            let port = host[name + colon + 1..].trim_end_matches(',');
            if !port.is_empty() && port.parse::<u16>().is_err() {
                return format!("{}:***", &address[..place + name + colon]).into();
            }
        }
        place += host.len();
    }
    address.into()
}

/// The same of what stands in the place of the number of a database, or of a path where there is none.
fn without_false_path<'a>(scheme: &str, address: &'a str) -> Cow<'a, str> {
    let end = address.find('?').unwrap_or(address.len());
    let parts = if scheme.ends_with("+sentinel") { 2 } else { 1 };
    match address[..end].match_indices('/').nth(parts - 1) {
        Some((slash, _))
            if (is_redis(scheme) || ["nats", "tls"].contains(&scheme))
                && !address[slash + 1..end].chars().all(|c| c.is_ascii_digit()) =>
        {
            format!("{}/***", &address[..slash]).into()
        }
        Some(_) | None => address.into(),
    }
}

/// A user, with whom somebody may have written the password.
pub(crate) fn masked_user(user: &str) -> Cow<'_, str> {
    let plain = decoded(user);
    if holds_secret(&plain, false) {
        return "***".into();
    }
    plain.split_once(':').map_or(user.into(), |(name, _)| format!("{name}:***").into())
}

/// Ends at the first parameter that may be a secret: nobody can tell where its value ends. A path may have a `/` before its words.
fn without_secrets(address: &str, is_path: bool) -> String {
    let (place, parameters) = address.split_at(address.find('?').unwrap_or(address.len()));
    if holds_secret(place, is_path) {
        return "***".to_owned();
    }
    let mut shown = place.to_owned();
    for parameter in parameters.split_inclusive(MARKS) {
        let text = parameter.trim_end_matches(MARKS);
        let mark = &parameter[text.len()..];
        match text.split_once('=') {
            Some((name, value)) if ["user", "sentinel_user"].contains(&name) => {
                shown = format!("{shown}{name}={}{mark}", masked_user(value));
            }
            Some((name, value))
                if is_known(name) && !is_secret(name) && !holds_secret(value, value.contains('/')) =>
            {
                shown.push_str(parameter);
            }
            Some((name, _)) => return format!("{shown}{}=***", masked_name(name)),
            None if is_plain(text) => shown.push_str(parameter),
            None => return format!("{shown}***"),
        }
    }
    shown
}

/// What parts parameters, or was meant to.
const MARKS: [char; 4] = ['?', '&', ';', '#'];

/// The name of a parameter that may be none.
pub(crate) fn masked_name(name: &str) -> &str {
    if is_plain(name) { name } else { "***" }
}

/// Whether a value of it is no secret. Of others it is not known.
fn is_known(parameter: &str) -> bool {
    parameter.starts_with("options[") && is_plain(parameter) || KNOWN.contains(&parameter)
}

const KNOWN: [&str; 19] = [
    "application_name",
    "ca",
    "cache",
    "cert",
    "dbname",
    "heartbeat",
    "host",
    "hostaddr",
    "immutable",
    "listen",
    "mode",
    "port",
    "protocol",
    "queues",
    "schema",
    "sslcert",
    "sslmode",
    "sslrootcert",
    "vfs",
];

/// Whether something like `password=` stands in a text where no parameter can: as all of it, or behind what may part parameters.
/// In a path a folder may be called so.
pub(crate) fn holds_secret(text: &str, is_path: bool) -> bool {
    let text = decoded(text);
    let parts = |c: char| c.is_whitespace() || MARKS.contains(&c) || c == ',' || c == '/' && !is_path;
    text.match_indices('=').any(|(at, _)| {
        let before = text[..at].trim_end();
        match before.rsplit_once(parts) {
            Some((_, name)) => is_secret(name),
            None => !is_path && is_secret(before),
        }
    })
}

fn is_secret(parameter: &str) -> bool {
    let parameter = decoded(parameter).to_ascii_lowercase();
    SECRETS.iter().any(|word| parameter.contains(word))
}

/// Text without percent-encoding, as far as it is such: to judge it by.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return text.into();
    }
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, behind @ ..] = rest {
        let digit = |at: usize| behind.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let code = digit(0).zip(digit(1)).and_then(|(high, low)| u8::try_from(16 * high + low).ok());
        let (byte, taken) =
            if *first == b'%' { code.map_or((b'%', 0), |code| (code, 2)) } else { (*first, 0) };
        bytes.push(byte);
        rest = &behind[taken..];
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// What is said of parameters that are wrong, where one of those before them is a secret: the `&` may belong to it.
#[cfg(any(feature = "nats", feature = "postgres", feature = "rabbitmq", feature = "redis"))]
pub(crate) fn told_of_parameter(why: String, before: &[&str]) -> String {
    let name = |parameter: &&str| {
        let name = parameter.split_once('=').map_or(*parameter, |(name, _)| name);
        is_secret(name) && !FILES.contains(&name)
    };
    if before.iter().any(name) {
        return "a parameter behind a secret is not one that can be used; percent-encode an & of the secret as %26".to_owned();
    }
    why
}

/// Why a parameter is read no further: behind a second `?` or a `;` somebody may have meant another one, a secret at that.
#[cfg(any(
    feature = "nats",
    feature = "postgres",
    feature = "rabbitmq",
    feature = "redis",
    feature = "sqlite"
))]
pub(crate) fn second_mark(name: &str, value: &str) -> Option<&'static str> {
    if decoded(name).contains('=') {
        return Some("the = behind the name of a parameter is percent-encoded; write it as =");
    }
    if is_secret(name) && !FILES.contains(&name) {
        return None;
    }
    if value.contains('?') {
        return Some("a second ? stands among the parameters; join them with &, or percent-encode it as %3F");
    }
    holds_secret(value, value.contains('/')).then_some("parameters are joined with & alone")
}

/// Parameters that name a file, however secret what it holds.
#[cfg(any(
    feature = "nats",
    feature = "postgres",
    feature = "rabbitmq",
    feature = "redis",
    feature = "sqlite"
))]
const FILES: [&str; 4] = ["creds", "key", "nkey", "sslkey"];

const SECRETS: [&str; 10] = ["pass", "pw", "secret", "token", "key", "auth", "cred", "jwt", "seed", "sasl"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_masked_wherever_it_stands() {
        for (url, shown) in [
            ("redis://user:geheim@host:1/0", "redis://user:***@host:1/0"),
            ("redis://:geheim@host", "redis://:***@host"),
            ("postgres://u:ge/heim@host/db?sslmode=require", "postgres://***"),
            ("postgres://u:ge@heim@host/db?sslmode=require", "postgres://u:***@host/db?sslmode=require"),
            ("postgres://u:g?e@host/db", "postgres://***"),
            ("postgres://h/db?password=ge@heim", "postgres://***"),
            ("postgres://h/db?password=a?b", "postgres://h/db?password=***"),
            ("postgres://h/db?sslmode=require;pwd=a&b=c", "postgres://h/db?sslmode=require;pwd=***"),
            ("postgres://host/db?user=u&password=geheim", "postgres://host/db?user=u&password=***"),
            ("nats://geheimes-token@host", "nats://***@host"),
            ("sqlite:jobs.db", "sqlite:jobs.db"),
            ("user:geheim@host", "***"),
            ("ge:heim://x@host", "***"),
            ("redis://u:geheim", "redis://u:***"),
            ("redis+cluster://one:1,u:ge,heim/0", "redis+cluster://one:1,u:***"),
            ("amqp://u:65536?queues=quorum", "amqp://u:***"),
            ("redis://u:geheim[::1]:1", "redis://u:***"),
            ("@postgres://u:geheim", "***"),
            ("post gres://u:geheim", "***"),
            ("nats://[::1]:4222,two:1/?nkey=a", "nats://[::1]:4222,two:1/?nkey=***"),
            ("host=h user=u password=geheim dbname=x", "***"),
            ("Server=h;User Id=u;Password=geheim", "***"),
            ("x.redis.cache.windows.net:6380,password=geheim,ssl=True", "***"),
            ("mysql://u:geheim@h/db", "***"),
            ("/var/lib/jobs.db", "/var/lib/jobs.db"),
            ("memory:geheim=x", "memory:***"),
            ("nats:u:geheim@h", "nats:***"),
            ("postgres://h/db&password=geheim", "postgres://***"),
            ("postgres://h/db;password=geheim", "postgres://***"),
            ("postgres://h/db password = geheim", "postgres://***"),
            ("postgres://h/db%3Bpassw%6Frd%3Dgeheim", "postgres://***"),
            ("nats://h;token=geheim", "nats://***"),
            ("amqp://u:geheim@h/v#pwd=geheim", "amqp://u:***@***"),
            ("redis://h:6379,password=geheim", "redis://***"),
            ("redis://h,password=geheim", "redis://***"),
            ("redis://u/geheim", "redis://u/***"),
            ("redis://u/1/geheim?ca=a", "redis://u/***"),
            ("redis+sentinel://u/m/geheim", "redis+sentinel://u/m/***"),
            ("nats://u/geheim", "nats://u/***"),
            ("redis://u@h:geheim", "redis://***@h:***"),
            ("postgres://u;password=geheim:x@h", "postgres://***:***@h"),
            ("postgres://h/db?p%61ssword=geheim", "postgres://h/db?***=***"),
            ("postgres://h/db?password%3Dgeheim", "postgres://h/db?***"),
            ("postgres://h/db?foo=geheim&user=u", "postgres://h/db?foo=***"),
            ("postgres://h/db?user=u:geheim&port=1", "postgres://h/db?user=u:***&port=1"),
            ("postgres://h/db?user=u%3Ageheim", "postgres://h/db?user=u:***"),
            ("postgres://h/db?dbname=x%20password=geheim", "postgres://h/db?dbname=***"),
            ("postgres://h/db?dbname=password=geheim", "postgres://h/db?dbname=***"),
            ("nats://h?jwt=geheim", "nats://h?jwt=***"),
            ("rediss://h?ca=/key=1/ca.pem", "rediss://h?ca=/key=1/ca.pem"),
            ("sqlite:/key=1/jobs.db?mode=rwc", "sqlite:/key=1/jobs.db?mode=rwc"),
            ("sqlite:jobs.db;password=geheim", "sqlite:***"),
        ] {
            assert_eq!(masked(url), shown, "of {url}");
        }
    }

    #[test]
    fn a_wrong_url_is_told_with_its_mend_and_without_its_password() {
        let cases: Vec<(&str, &str)> = vec![
            ("jobs.db", "is not a URL; write one such as"),
            ("mysql://u:geheim@host", "use postgres:, redis:, valkey:, nats:, amqp:, sqlite: or memory:"),
            #[cfg(feature = "postgres")]
            ("postgres://u:geheim@host/db?sslmod=require", "parameter \"sslmod\" is none of"),
            #[cfg(feature = "postgres")]
            ("postgres://u:geheim@host:port/db", "invalid port number"),
            #[cfg(feature = "postgres")]
            ("postgres://u:geheim@host/db?schema=", "use 1 to 63 bytes"),
            #[cfg(not(feature = "postgres"))]
            ("postgres://u:geheim@host", "feature \"postgres\""),
            ("memory:x:geheim@y", "nothing behind it"),
            #[cfg(feature = "sqlite")]
            ("sqlite:jobs.db?mode=rwc?password=geheim", "a second ?"),
            #[cfg(feature = "sqlite")]
            ("sqlite:jobs.db?mode=rwc;password=geheim", "joined with &"),
            #[cfg(feature = "postgres")]
            ("postgres://u:geheim", "invalid port number"),
            #[cfg(feature = "postgres")]
            ("postgres://h/db?host=x?password=geheim", "a second ?"),
            #[cfg(feature = "postgres")]
            ("postgres://u@h/db?sslmode=require;password=geheim", "joined with &"),
            #[cfg(feature = "postgres")]
            ("postgres://u@h/db?listen=true;password=geheim", "joined with &"),
            #[cfg(feature = "postgres")]
            ("postgres://u@h/db?schema=pg_x#password=geheim", "joined with &"),
            #[cfg(feature = "redis")]
            ("redis://u:geheim", "the port of host \"u\" is no number up to 65535"),
            #[cfg(feature = "redis")]
            ("redis+cluster:geheim@://one", "neither cluster nor sentinel"),
            #[cfg(feature = "nats")]
            ("nats://u:geheim", "the port of host \"u\" is no number up to 65535"),
            #[cfg(feature = "rabbitmq")]
            ("amqp://u:geheim", "the port of host \"u\" is no number up to 65535"),
            #[cfg(not(feature = "rabbitmq"))]
            ("amqps://u:geheim@host", "needs the cargo feature \"rabbitmq\""),
            #[cfg(feature = "rabbitmq")]
            ("amqp://u:geheim@host:port", "the port of host \"host\" is no number up to 65535"),
            #[cfg(feature = "rabbitmq")]
            ("amqp://u:geheim@host?ca=x", "begin with amqps://"),
            #[cfg(feature = "rabbitmq")]
            ("amqps://u:geheim@host?key=x", "cert and key go together"),
            #[cfg(feature = "rabbitmq")]
            ("amqp://u:geheim@host?queues=lazy", "neither classic nor quorum"),
            #[cfg(feature = "rabbitmq")]
            ("amqp://u:geheim@host?heartbeat=10", "follows the leases"),
            #[cfg(feature = "rabbitmq")]
            ("amqp://u:%ff@host", "not percent-encoded UTF-8"),
            #[cfg(not(feature = "redis"))]
            ("valkeys+cluster://u:geheim@host", "needs the cargo feature \"redis\""),
            #[cfg(feature = "redis")]
            ("redis://u:geheim@host/x", "in the place of the database is no number"),
            #[cfg(feature = "redis")]
            ("redis://u:geheim@one,two", "for +cluster and +sentinel"),
            #[cfg(feature = "redis")]
            ("redis+cluster://u:geheim@one,two/3", "a Cluster has no database numbers"),
            #[cfg(feature = "redis")]
            ("redis+sentinel://u:geheim@one", "add the name that the sentinels have for it"),
            #[cfg(feature = "redis")]
            ("redis://u:geheim@host:port", "the port of host \"host\" is no number up to 65535"),
            #[cfg(feature = "redis")]
            ("redis://u:geheim@host?ca=x", "begin with rediss:// or valkeys://"),
            #[cfg(feature = "redis")]
            ("rediss://u:geheim@host?cert=x", "cert and key go together"),
            #[cfg(feature = "redis")]
            ("valkey://u:geheim@host?tls=1", "there is no parameter \"tls\"; use ca"),
            #[cfg(feature = "redis")]
            ("valkey://u:%ff@host", "not percent-encoded UTF-8"),
            #[cfg(not(feature = "nats"))]
            ("tls://u:geheim@host", "needs the cargo feature \"nats\""),
            #[cfg(feature = "nats")]
            ("nats://u:geheim@host/bucket", "named after the namespace"),
            #[cfg(feature = "nats")]
            ("nats://geheim@host:port", "the port of host \"host\" is no number up to 65535"),
            #[cfg(feature = "nats")]
            ("nats://geheim@one,", "a host is missing"),
            #[cfg(feature = "nats")]
            ("nats://u:geheim@host?ca=x", "begin with tls://"),
            #[cfg(feature = "nats")]
            ("tls://u:geheim@host?cert=x", "cert and key go together"),
            #[cfg(feature = "nats")]
            ("nats://u:geheim@host?nkey=x", "a second way to log in"),
            #[cfg(feature = "nats")]
            ("tls://geheim@host?tls=1", "there is no parameter \"tls\"; use ca"),
            #[cfg(feature = "nats")]
            ("nats://u:%ff@host", "not percent-encoded UTF-8"),
            #[cfg(feature = "nats")]
            ("nats:host", "no // behind its kind"),
            #[cfg(feature = "nats")]
            ("nats://a:geheim@one,b:geheim@two", "a second @"),
            #[cfg(feature = "nats")]
            ("nats://one,nats://two", "write it once"),
            #[cfg(feature = "nats")]
            ("nats://host?creds=f&foo=1", "there is no parameter \"foo\""),
            ("host=h user=u password=geheim", "is not a URL"),
            ("Server=tcp:h;Password=geheim", "does not begin with its kind"),
            ("x.redis.cache.windows.net:6380,password=geheim,ssl=True", "does not begin with its kind"),
            #[cfg(feature = "postgres")]
            ("postgres://h/db&password=geheim", "a parameter stands where none can"),
            #[cfg(feature = "postgres")]
            ("postgres://h/db%3Bpassword%3Dgeheim", "a parameter stands where none can"),
            #[cfg(feature = "postgres")]
            ("postgres://h/db?dbname=x%26password=geheim", "joined with &"),
            #[cfg(feature = "postgres")]
            ("postgres://h/db?password%3Dgeheim", "is percent-encoded; write it as ="),
            #[cfg(feature = "postgres")]
            ("postgres://h/db?p%61ssword=geheim", "is none of"),
            #[cfg(feature = "rabbitmq")]
            ("amqp://h/v;password=geheim", "a parameter stands where none can"),
            #[cfg(feature = "nats")]
            ("nats://h,token=geheim", "a parameter stands where none can"),
            #[cfg(feature = "nats")]
            ("nats://h?foo=geheim", "there is no parameter \"foo\""),
            #[cfg(feature = "nats")]
            ("nats://h?u:geheim", "there is no parameter \"***\""),
            #[cfg(feature = "redis")]
            ("redis://h:6379,password=geheim", "a parameter stands where none can"),
            #[cfg(feature = "redis")]
            ("redis://u/geheim", "in the place of the database is no number"),
            #[cfg(feature = "sqlite")]
            ("sqlite:jobs.db;password=geheim", "a parameter stands where none can"),
            #[cfg(feature = "sqlite")]
            ("sqlite:jobs.db?password%3Dgeheim", "write it as ="),
        ];
        for (url, mend) in cases {
            let message = connect(url).unwrap_err().to_string();
            assert!(message.contains(mend) && !message.contains("geheim"), "of {url}: {message}");
        }
    }

    #[test]
    fn what_ends_user_and_password_is_told_to_be_encoded_where_it_stands_in_them() {
        for url in [
            "redis://u:geh?eim@h",
            "redis://u:123?geheim@h",
            "redis://u:123#geheim@h",
            "redis+sentinel://u:geh/eim@h/m",
            "valkey://h?sentinel_password=geh@eim",
            "amqp://u:geh/eim@h",
            "amqps://u:123?geheim@h/v",
            "postgres://u:geh?eim@h",
            "postgres://u:geh#eim@h",
            "postgres://u:geh/eim@h",
            "postgres://u:123/geheim@h",
            "nats://geh/eim@h",
            "nats://u:123?geheim@one,two",
            "tls://u:geh#eim@h",
        ] {
            let told = connect(url).map(|store| store.describe()).unwrap_or_else(|error| error.to_string());
            assert!(!told.contains("eim"), "of {url}: {told}");
            let is_built = match url.chars().next() {
                Some('p') => cfg!(feature = "postgres"),
                Some('n' | 't') => cfg!(feature = "nats"),
                Some('a') => cfg!(feature = "rabbitmq"),
                Some(_) | None => cfg!(feature = "redis"),
            };
            assert!(!is_built || told.contains("percent-encode"), "of {url}: {told}");
        }
        for url in
            ["geheim@host:5432/db", "geheim:x@host", "u:geheim@host", "u:x://geheim@host", "ge_heim://x"]
        {
            let message = connect(url).unwrap_err().to_string();
            assert!(message.contains("use postgres:"), "of {url}: {message}");
            assert!(!url.contains('@') || !message.contains("geheim"), "of {url}: {message}");
        }
        #[cfg(all(feature = "postgres", feature = "redis"))]
        for url in ["postgres://h/db?password=x&geheim=y", "redis://h?sentinel_password=x&geheim=y"] {
            let message = connect(url).unwrap_err().to_string();
            assert!(message.contains("%26") && !message.contains("geheim"), "of {url}: {message}");
        }
    }

    #[test]
    fn no_part_of_a_random_password_is_ever_shown() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let urls = [
            "redis://u:{}@h",
            "redis://:{}@h/1?protocol=resp2",
            "rediss+cluster://u:{}@one:1,two",
            "valkey+sentinel://u:{}@one/m",
            "redis+sentinel://one/m?sentinel_password={}",
            "postgres://u:{}@h/db?sslmode=disable",
            "postgresql://u:{}@h:1",
            "postgres://h/db?password={}",
            "amqp://u:{}@h",
            "amqps://u:{}@h:1/v?queues=quorum",
            "mysql://u:{}@h",
            "nats://{}@h",
            "nats://u:{}@h:1,two",
            "tls://{}@h?ca=ca.pem",
            "memory:u:{}@h",
            "u:{}@h",
            "{}@h:5432/db",
        ];
        for _ in 0..1000 {
            let mut part = |longest| -> String {
                (0..random.usize(..=longest)).map(|_| char::from(random.u8(b'!'..=b'~'))).collect()
            };
            let password = format!("{}geheim{}", part(6), part(6));
            for form in urls {
                let url = form.replace("{}", &password);
                let told = match connect(&url) {
                    Ok(store) => store.describe(),
                    Err(error) => format!("{error} {error:?}"),
                };
                assert!(!told.to_lowercase().contains("geheim"), "seed {seed}, of {url}: {told}");
                #[cfg(feature = "postgres")]
                if let Ok(store) = crate::store::PostgresBackend::connect(&url) {
                    assert!(!format!("{store:?}").contains("geheim"), "seed {seed}, of {url}: {store:?}");
                }
                #[cfg(feature = "nats")]
                if let Ok(store) = crate::store::NatsBackend::connect(&url) {
                    assert!(!format!("{store:?}").contains("geheim"), "seed {seed}, of {url}: {store:?}");
                }
                #[cfg(feature = "rabbitmq")]
                if let Ok(store) = crate::store::RabbitMqBackend::connect(&url) {
                    assert!(!format!("{store:?}").contains("geheim"), "seed {seed}, of {url}: {store:?}");
                }
                #[cfg(feature = "redis")]
                if let Ok(store) = crate::store::RedisBackend::connect(&url) {
                    assert!(!format!("{store:?}").contains("geheim"), "seed {seed}, of {url}: {store:?}");
                }
            }
        }
    }

    #[cfg(feature = "redis")]
    #[test]
    fn the_store_is_the_one_that_the_scheme_names() {
        for (url, shown) in [
            ("redis://u:geheim@host:1/2", "redis://u:***@host:1/2"),
            (
                "valkeys://[::1]:1?ca=a.pem&cert=b.pem&key=c.pem",
                "valkeys://[::1]:1?ca=a.pem&cert=b.pem&key=***",
            ),
            ("redis+cluster://one:1,two", "redis+cluster://one:1,two"),
            ("rediss+sentinel://one,two:2/mymaster/3", "rediss+sentinel://one,two:2/mymaster/3"),
        ] {
            assert_eq!(connect(url).unwrap().describe(), shown);
        }
    }
}
