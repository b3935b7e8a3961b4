//! What the server's and sqlx's errors mean to the caller: did it happen, where, and what helps.

use std::fmt;

use crate::store::StoreError;

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// There was no connection to send it on.
    Connect(sqlx::Error),
    /// It was sent, and this came instead of an answer.
    Sent(sqlx::Error),
    /// We found out ourselves.
    Told(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Told(error)
    }
}

impl Failure {
    /// Rolled back for the sake of others: the same call may simply be sent again.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self.code().as_deref(), Some(SERIALIZATION_FAILURE | DEADLOCK_DETECTED))
    }

    /// The session does not keep the statements that it should, or keeps some that it should not yet: it is not the one
    /// from before. Nothing has happened.
    pub(super) fn is_of_another_session(&self) -> bool {
        matches!(self.code().as_deref(), Some(NO_SUCH_STATEMENT | DUPLICATE_STATEMENT))
    }

    /// Our tables are not there, or not all of them.
    pub(super) fn is_missing_table(&self) -> bool {
        matches!(self.code().as_deref(), Some(UNDEFINED_TABLE | INVALID_SCHEMA_NAME))
    }

    pub(super) fn is_missing_right(&self) -> bool {
        self.code().as_deref() == Some(INSUFFICIENT_PRIVILEGE)
    }

    /// The server said no, and is ready for the next call.
    pub(super) fn leaves_the_connection_usable(&self) -> bool {
        self.is_conflict()
    }

    /// The connection is gone, and those made at the same time may be too.
    pub(super) fn is_loss(&self) -> bool {
        match self {
            Self::Sent(error) => Self::is_loss_of(error),
            Self::Connect(_) | Self::Told(_) => self.code().is_some_and(|code| is_end_of_session(&code)),
        }
    }

    /// The same of what came instead of an answer.
    pub(super) fn is_loss_of(error: &sqlx::Error) -> bool {
        let code = error.as_database_error().and_then(|error| error.code());
        code.is_none_or(|code| is_end_of_session(&code))
    }

    fn code(&self) -> Option<String> {
        match self {
            Self::Connect(error) | Self::Sent(error) => {
                error.as_database_error()?.code().map(|code| code.into_owned())
            }
            Self::Told(_) => None,
        }
    }

    /// Tells it to the user.
    pub(super) fn told(self, server: &dyn fmt::Display) -> StoreError {
        let code = self.code();
        match (&self, code.as_deref()) {
            (Self::Told(error), _) => error.clone(),
            (Self::Connect(error), code) => not_connected(error, code, server),
            (Self::Sent(error), Some(code)) => refused(error, code, server),
            (Self::Sent(error), None) => StoreError::unknown(format_args!(
                "the connection to {server} broke before it answered ({error}); whether it took the call is not known"
            )),
        }
    }
}

fn not_connected(error: &sqlx::Error, code: Option<&str>, server: &dyn fmt::Display) -> StoreError {
    match (code, error) {
        (Some(INVALID_PASSWORD | INVALID_AUTHORIZATION), _) => StoreError::misconfigured(format_args!(
            "{server} does not let this user in; look at user and password, and at the server's pg_hba.conf ({error})"
        )),
        (Some(UNDEFINED_DATABASE), _) => StoreError::misconfigured(format_args!(
            "{server} has no such database; create it, or name another one ({error})"
        )),
        (Some(INSUFFICIENT_PRIVILEGE), _) => StoreError::misconfigured(format_args!(
            "{server} does not let this user connect to the database; GRANT CONNECT ON DATABASE to it ({error})"
        )),
        (Some(TOO_MANY_CONNECTIONS), _) => StoreError::unavailable(format_args!(
            "{server} has too many connections already; raise max_connections or the role's limit, or put PgBouncer in \
             front; each instance needs two ({error})"
        )),
        (Some(_), _) => StoreError::unavailable(format_args!("{server} refused a connection ({error})")),
        (None, error) if is_tls(error) => StoreError::misconfigured(format_args!(
            "{server} cannot be reached over TLS as asked for; look at sslmode and sslrootcert, and at the server's \
             certificate ({error})"
        )),
        (None, sqlx::Error::Configuration(_)) => {
            StoreError::misconfigured(format_args!("the settings for {server} cannot be used ({error})"))
        }
        (None, _) => StoreError::unavailable(format_args!(
            "{server} cannot be reached ({error}); look at host and port, and whether the server runs"
        )),
    }
}

fn refused(error: &sqlx::Error, code: &str, server: &dyn fmt::Display) -> StoreError {
    match code {
        _ if is_end_of_session(code) => StoreError::unknown(format_args!(
            "{server} ended the connection before it answered ({error}); whether it took the call is not known"
        )),
        SERIALIZATION_FAILURE | DEADLOCK_DETECTED => StoreError::unavailable(format_args!(
            "{server} rolled a call back again and again; look for transactions of others on the tables of anarchon ({error})"
        )),
        READ_ONLY_TRANSACTION => StoreError::unavailable(read_only(server, &error.to_string())),
        DISK_FULL => StoreError::unavailable(format_args!(
            "{server} cannot write: its disk is full; make room on it ({error})"
        )),
        LOCK_NOT_AVAILABLE => StoreError::unavailable(format_args!(
            "a row of {server} was locked by somebody else for more than 2 s; look for a transaction on the tables of \
             anarchon that is left open ({error})"
        )),
        QUERY_CANCELED => StoreError::unavailable(format_args!(
            "{server} took longer than 10 s, or somebody cancelled the call; look at what it is busy with ({error})"
        )),
        INSUFFICIENT_PRIVILEGE => StoreError::misconfigured(format_args!(
            "{server} does not let this user use the tables of anarchon; give it the rights that PostgresBackend names \
             ({error})"
        )),
        UNDEFINED_TABLE | INVALID_SCHEMA_NAME | UNDEFINED_COLUMN => StoreError::misconfigured(format_args!(
            "{server} lacks a table or column of anarchon; restart an instance that may create it ({error})"
        )),
        _ => StoreError::unavailable(format_args!("{server} refused a call ({error})")),
    }
}

/// A certificate that is not to be trusted comes as data that is not valid.
fn is_tls(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}

pub(super) fn read_only(server: &dyn fmt::Display, why: &str) -> String {
    format!(
        "{server} can only be read, and claims have to be written: {why}; name the primary, or make this one writable again"
    )
}

/// The session ended, perhaps after the commit: by an administrator, a crash, or a pooler that lost its server.
fn is_end_of_session(code: &str) -> bool {
    matches!(
        code,
        ADMIN_SHUTDOWN | CRASH_SHUTDOWN | DATABASE_DROPPED | IDLE_SESSION_TIMEOUT | COMPLETION_UNKNOWN
    ) || code.starts_with(CONNECTION_EXCEPTION)
}

// https://www.postgresql.org/docs/current/errcodes-appendix.html
const CONNECTION_EXCEPTION: &str = "08";
const READ_ONLY_TRANSACTION: &str = "25006";
const INVALID_AUTHORIZATION: &str = "28000";
const INVALID_PASSWORD: &str = "28P01";
const UNDEFINED_DATABASE: &str = "3D000";
const NO_SUCH_STATEMENT: &str = "26000";
const INVALID_SCHEMA_NAME: &str = "3F000";
const SERIALIZATION_FAILURE: &str = "40001";
const COMPLETION_UNKNOWN: &str = "40003";
const DEADLOCK_DETECTED: &str = "40P01";
const INSUFFICIENT_PRIVILEGE: &str = "42501";
const DUPLICATE_STATEMENT: &str = "42P05";
const UNDEFINED_COLUMN: &str = "42703";
const UNDEFINED_TABLE: &str = "42P01";
const DISK_FULL: &str = "53100";
const TOO_MANY_CONNECTIONS: &str = "53300";
const LOCK_NOT_AVAILABLE: &str = "55P03";
const QUERY_CANCELED: &str = "57014";
const ADMIN_SHUTDOWN: &str = "57P01";
const CRASH_SHUTDOWN: &str = "57P02";
const DATABASE_DROPPED: &str = "57P04";
const IDLE_SESSION_TIMEOUT: &str = "57P05";
