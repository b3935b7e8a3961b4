//! The one public error.

use std::{error::Error as StdError, fmt};

use crate::store::{StoreError, StoreErrorKind};

/// `Result` with [`Error`], and nothing in it unless named.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// What went wrong with the scheduler; never the error of a handler.
///
/// The message names the value, the place and the mend. Passwords in URLs are masked.
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A value that the program or its environment supplied is wrong; the message lists every one.
    Configuration,
    /// The store could not be reached in time.
    Unavailable,
    /// The store was reached and must be set up differently.
    Store,
    /// No reply came, from the store or before the scheduler ended: the call may have happened.
    Unknown,
    /// The store cannot do this.
    Unsupported,
    /// There is no such job, or no such run.
    NotFound,
    /// There is no tokio runtime to run handlers on.
    NoRuntime,
    /// The scheduler has shut down, and what was asked for did not happen.
    Stopped,
}

impl Error {
    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// One error for all that is wrong.
    pub(crate) fn configuration(mut problems: Vec<String>) -> Self {
        let message = match problems.len() {
            1 => problems.remove(0),
            n => format!("{n} values of the configuration are wrong:\n  - {}", problems.join("\n  - ")),
        };
        Self::new(ErrorKind::Configuration, message)
    }

    pub(crate) fn stopped() -> Self {
        Self::new(ErrorKind::Stopped, "the scheduler has shut down; start it again first")
    }

    /// A failed store call, seen from `what`.
    pub(crate) fn store(what: impl fmt::Display, error: StoreError) -> Self {
        let kind = match error.kind {
            StoreErrorKind::Unknown => ErrorKind::Unknown,
            StoreErrorKind::Unavailable => ErrorKind::Unavailable,
            StoreErrorKind::Misconfigured => ErrorKind::Store,
        };
        Self { kind, message: what.to_string(), source: Some(error.into()) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

// `main` prints errors with `Debug`: a person reads it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

// `source()` stays empty: the message says it already, and chains would print it twice.
impl StdError for Error {}
