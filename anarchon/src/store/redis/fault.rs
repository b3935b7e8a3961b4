//! What errors of the server, and of connections to it, mean.

use redis::{ErrorKind, RedisError, ServerError};

use crate::store::{StoreError, tls};

/// Whether it is this one. Before version 7 the error of a command in a script is told in the details.
pub(super) fn is(error: &ServerError, code: &str) -> bool {
    error.code() == code || error.details().is_some_and(|details| details.contains(&format!("{code} ")))
}

/// An error that a server answered a script with. Unless the code says otherwise it may have come after a write.
pub(super) fn refused(server: &str, error: &ServerError) -> StoreError {
    let details = error.details().unwrap_or_default();
    let is = |code| is(error, code);
    let told = |what: &str| format!("{server} {what} ({} {details})", error.code());
    if is("LOADING") {
        StoreError::unavailable(told("still reads its data after a start"))
    } else if is("READONLY") {
        StoreError::unavailable(told(
            "is a replica and takes no writes; name the primary, or its sentinels with redis+sentinel://",
        ))
    } else if is("NOREPLICAS") {
        StoreError::unavailable(told(
            "has fewer replicas in reach than its min-replicas-to-write; bring them back",
        ))
    } else if is("OOM") {
        StoreError::unavailable(told("has used up its maxmemory; raise it, or delete what it does not need"))
    } else if is("MISCONF") {
        StoreError::unavailable(told(
            "cannot save its data and takes no writes; look at its disk and its log",
        ))
    } else if is("BUSY") {
        StoreError::unavailable(told("is held up by a script of somebody else; look for it with SLOWLOG"))
    } else if is("CLUSTERDOWN") || is("MASTERDOWN") || is("TRYAGAIN") {
        StoreError::unavailable(told(
            "cannot serve this key at the moment; look at CLUSTER INFO or its primary",
        ))
    } else if is("NOAUTH") || is("WRONGPASS") {
        StoreError::misconfigured(told("does not know this user and password; correct them in the URL"))
    } else if is("NOPERM") || details.contains("can't run this command") {
        StoreError::misconfigured(told(PERMISSIONS))
    } else if is("WRONGTYPE") {
        StoreError::misconfigured(told(
            "has something else under a key of anarchon; delete that key, or use another database or namespace",
        ))
    } else if details.contains("unknown command") || details.contains("unknown subcommand") {
        StoreError::misconfigured(told("lacks a command; use Redis 6.2 or later, or Valkey"))
    } else if details.contains("cluster support disabled") {
        StoreError::misconfigured(told(
            "is no node of a Cluster; write redis:// in place of redis+cluster://",
        ))
    } else {
        StoreError::unknown(told("answered with an error"))
    }
}

/// What an ACL has to allow.
pub(super) const PERMISSIONS: &str = "does not let this user do what a scheduler does; allow it what the page \
     security of the guide (anarchon::guide::security) has: ~anarchon:{NAMESPACE/* ~anarchon:{NAMESPACE}:* +eval +evalsha +hset +hget +hmget \
     +hgetall +hdel +time +info, and +wait where replicas are waited for";

/// A failed attempt to connect: nothing was sent yet.
pub(super) fn unreached(server: &str, error: &RedisError) -> StoreError {
    let details = error.detail().unwrap_or_default();
    let text = error.to_string();
    let code = error.code().unwrap_or_default();
    if code == "LOADING" {
        return StoreError::unavailable(format_args!("{server} still reads its data after a start"));
    }
    if error.kind() == ErrorKind::AuthenticationFailed || ["NOAUTH", "WRONGPASS"].contains(&code) {
        return StoreError::misconfigured(format_args!(
            "{server} does not let us in: {text}; correct user and password in the URL"
        ));
    }
    if code == "NOPERM" {
        return StoreError::misconfigured(format_args!("{server} {PERMISSIONS} ({text})"));
    }
    if details.contains("no permissions to run the 'select'") {
        return StoreError::misconfigured(format_args!(
            "{server} does not let this user choose a database; allow it +select, or leave the number out ({text})"
        ));
    }
    if code == "DENIED"
        || details.contains("DB index is out of range")
        || details.contains("invalid DB index")
    {
        return StoreError::misconfigured(format_args!(
            "{server} does not let us in: {text}; correct the URL"
        ));
    }
    if details.contains("SELECT is not allowed in cluster mode") {
        return StoreError::misconfigured(format_args!(
            "{server} is a node of a Cluster, which has no database numbers; write redis+cluster:// and no number"
        ));
    }
    if error.kind() == ErrorKind::RESP3NotSupported {
        return StoreError::misconfigured(format_args!(
            "{server} does not speak RESP3; add ?protocol=resp2 to the URL ({text})"
        ));
    }
    if error.is_io_error()
        && let Some(error) = tls::refused(server, &text)
    {
        return error;
    }
    if error.kind() == ErrorKind::InvalidClientConfig {
        return StoreError::misconfigured(format_args!("{server} cannot be used: {text}"));
    }
    StoreError::unavailable(format_args!(
        "{server} cannot be reached: {text}; look whether it runs and whether the address is right"
    ))
}

/// A connection that broke while a reply was waited for.
pub(super) fn broken(server: &str, error: &RedisError) -> StoreError {
    StoreError::unknown(format_args!("the connection to {server} broke before the reply came: {error}"))
}
