//! What SQLite's result codes mean to the caller: did it happen, where, and what helps.

use std::fmt;

use crate::store::StoreError;

/// How far a call had come when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing can have happened.
    Before,
    /// The commit was under way.
    Commit,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// SQLite said so.
    Sql(sqlx::Error, Phase),
    /// We found out ourselves.
    Told(StoreError),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error, Phase::Before)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Told(error)
    }
}

/// An error of sqlx, told to the user.
pub(super) fn told(error: &sqlx::Error, phase: Phase, database: &dyn fmt::Display) -> StoreError {
    let code = code_of(error);
    if let sqlx::Error::Configuration(why) = error {
        return StoreError::misconfigured(format_args!(
            "the SQLite database \"{database}\" cannot be used: {why}; it needs write-ahead logging: use a file on an ordinary \
             local disk"
        ));
    }
    let what = format!("the SQLite database \"{database}\"");
    match code.map(|c| c & 0xFF) {
        Some(BUSY | LOCKED) => StoreError::unavailable(format_args!(
            "{what} was locked by another process or connection for more than 5 s; look for one that keeps a \
             transaction open: a shell, a backup, a long write of the application"
        )),
        Some(FULL) => StoreError::unavailable(format_args!(
            "{what} cannot grow: the disk is full; make room on it ({error})"
        )),
        Some(READONLY | PERM | AUTH) => StoreError::misconfigured(format_args!(
            "{what} cannot be written; give this process the right to write the file and its directory, or name a file \
             elsewhere ({error})"
        )),
        Some(CANTOPEN) => StoreError::misconfigured(format_args!(
            "{what} cannot be opened; give this process the right to write the file and its directory, or name a file \
             elsewhere ({error})"
        )),
        Some(CORRUPT) => StoreError::misconfigured(format_args!(
            "{what} is damaged; stop all instances and put a backup in its place, or move the file away to begin with an \
             empty one ({error})"
        )),
        Some(NOTADB) => StoreError::misconfigured(format_args!(
            "{what} is a file of another kind, or encrypted; name another file, or move this one away ({error})"
        )),
        Some(IOERR) if phase == Phase::Commit => StoreError::unknown(format_args!(
            "{what} could not be written to the end, and whether it took the change is not known; look at the disk, its \
             quota and the system's log ({error})"
        )),
        Some(IOERR) => StoreError::unavailable(format_args!(
            "{what} could not be read or written; look at the disk, its quota and the system's log ({error})"
        )),
        Some(_) => StoreError::unavailable(format_args!("{what} refused a statement ({error})")),
        None if phase == Phase::Commit => {
            StoreError::unknown(format_args!("the connection to {what} broke during a commit ({error})"))
        }
        None => StoreError::unavailable(format_args!("the connection to {what} broke ({error})")),
    }
}

/// Whether only the moment was wrong: the connection is as good as before.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(code_of(error).map(|c| c & 0xFF), Some(BUSY | LOCKED))
}

fn code_of(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

// Primary result codes, https://www.sqlite.org/rescode.html; the extended ones have them in their lowest byte.
const PERM: i32 = 3;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const AUTH: i32 = 23;
const NOTADB: i32 = 26;
