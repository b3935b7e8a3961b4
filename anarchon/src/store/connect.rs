//! From a URL to a store. Passwords never leave this file unmasked.

use std::sync::Arc;

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
    // Schemes know no case (RFC 3986, 3.1).
    let scheme = &*scheme.to_ascii_lowercase();
    let url = &*format!("{scheme}{}", &url[scheme.len()..]);
    match scheme {
        "memory" => Ok(Arc::new(MemoryBackend::connect(url)?)),
        "sqlite" => sqlite(url),
        "postgres" | "postgresql" => postgres(url),
        _ if REDIS.contains(&scheme) => redis(url),
        _ if VALKEY.contains(&scheme) => valkey(url),
        _ => Err(unknown_kind(url, scheme)),
    }
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

#[cfg(feature = "postgres")]
fn postgres(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(super::PostgresBackend::connect(url)?))
}

#[cfg(not(feature = "postgres"))]
fn postgres(url: &str) -> Result<Arc<dyn Store>> {
    Err(without_feature(url, "postgres"))
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

#[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "redis")))]
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
    let shown = masked(url);
    if PLANNED.contains(&scheme) {
        let message = format!(
            "store {shown:?} is of a kind that this version of anarchon does not have yet; use {KINDS}"
        );
        return Error::new(ErrorKind::Unsupported, message);
    }
    wrong(format!("store {shown:?} is of unknown kind {scheme:?}; use {KINDS}"))
}

const KINDS: &str = "postgres:, redis:, valkey:, sqlite: or memory:";

/// The schemes of the stores to come.
const PLANNED: [&str; 4] = ["amqp", "amqps", "nats", "tls"];

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::Configuration, message)
}

/// A URL fit for a log. Where it is not plain what is a secret, more is hidden rather than less.
pub(crate) fn masked(url: &str) -> String {
    let (start, rest) = match url.find("://") {
        Some(at) => url.split_at(at + 3),
        None => ("", url),
    };
    match rest.rsplit_once('@') {
        // What stands behind the `@` may be the rest of a password.
        Some((user, _)) if user.contains(['?', '#']) => format!("{start}***"),
        Some((user, host)) => match user.split_once(':') {
            Some((name, _)) => format!("{start}{name}:***@{}", without_secrets(host)),
            None => format!("{start}***@{}", without_secrets(host)),
        },
        None => format!("{start}{}", without_secrets(rest)),
    }
}

/// Ends at the first parameter that may be a secret: nobody can tell where its value ends.
fn without_secrets(address: &str) -> String {
    let (place, parameters) = address.split_at(address.find('?').unwrap_or(address.len()));
    let mut shown = place.to_owned();
    for parameter in parameters.split_inclusive(['?', '&', ';', '#']) {
        match parameter.split_once('=') {
            Some((name, _)) if SECRETS.iter().any(|word| name.to_ascii_lowercase().contains(word)) => {
                return format!("{shown}{name}=***");
            }
            Some(_) | None => shown.push_str(parameter),
        }
    }
    shown
}

const SECRETS: [&str; 7] = ["pass", "pwd", "secret", "token", "key", "auth", "cred"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_masked_wherever_it_stands() {
        for (url, shown) in [
            ("redis://user:geheim@host:1/0", "redis://user:***@host:1/0"),
            ("redis://:geheim@host", "redis://:***@host"),
            ("postgres://u:ge/he@im@host/db?sslmode=require", "postgres://u:***@host/db?sslmode=require"),
            ("postgres://u:g?e@host/db", "postgres://***"),
            ("postgres://h/db?password=ge@heim", "postgres://***"),
            ("postgres://h/db?password=a?b", "postgres://h/db?password=***"),
            ("postgres://h/db?sslmode=require;pwd=a&b=c", "postgres://h/db?sslmode=require;pwd=***"),
            ("postgres://host/db?user=u&password=geheim", "postgres://host/db?user=u&password=***"),
            ("nats://geheimes-token@host", "nats://***@host"),
            ("sqlite:jobs.db", "sqlite:jobs.db"),
            ("user:geheim@host", "user:***@host"),
        ] {
            assert_eq!(masked(url), shown, "of {url}");
        }
    }

    #[test]
    fn a_wrong_url_is_told_with_its_mend_and_without_its_password() {
        let cases: Vec<(&str, &str)> = vec![
            ("jobs.db", "is not a URL; write one such as"),
            ("mysql://u:geheim@host", "use postgres:, redis:, valkey:, sqlite: or memory:"),
            ("amqp://u:geheim@host", "does not have yet"),
            #[cfg(feature = "postgres")]
            ("postgres://u:geheim@host/db?sslmod=require", "parameter \"sslmod\" is none of"),
            #[cfg(feature = "postgres")]
            ("postgres://u:geheim@host:port/db", "invalid port number"),
            #[cfg(feature = "postgres")]
            ("postgres://u:geheim@host/db?schema=", "use 1 to 63 bytes"),
            #[cfg(not(feature = "postgres"))]
            ("postgres://u:geheim@host", "feature \"postgres\""),
            ("memory:x:geheim@y", "nothing behind it"),
            #[cfg(not(feature = "redis"))]
            ("valkeys+cluster://u:geheim@host", "needs the cargo feature \"redis\""),
            #[cfg(feature = "redis")]
            ("redis://u:geheim@host/x", "database \"x\" is no number"),
            #[cfg(feature = "redis")]
            ("redis://u:geheim@one,two", "for +cluster and +sentinel"),
            #[cfg(feature = "redis")]
            ("redis+cluster://u:geheim@one,two/3", "a Cluster has no database numbers"),
            #[cfg(feature = "redis")]
            ("redis+sentinel://u:geheim@one", "add the name that the sentinels have for it"),
            #[cfg(feature = "redis")]
            ("redis://u:geheim@host:port", "port \"port\" of host \"host\""),
            #[cfg(feature = "redis")]
            ("redis://u:geheim@host?ca=x", "begin with rediss:// or valkeys://"),
            #[cfg(feature = "redis")]
            ("rediss://u:geheim@host?cert=x", "cert and key go together"),
            #[cfg(feature = "redis")]
            ("valkey://u:geheim@host?tls=1", "there is no parameter \"tls\"; use ca"),
            #[cfg(feature = "redis")]
            ("valkey://u:%ff@host", "not percent-encoded UTF-8"),
        ];
        for (url, mend) in cases {
            let message = connect(url).unwrap_err().to_string();
            assert!(message.contains(mend) && !message.contains("geheim"), "of {url}: {message}");
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
