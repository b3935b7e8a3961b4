//! The claim and lease protocol: what a record means, who may claim it, whether a lease is over.
//!
//! Plain functions without I/O: `(record, request, now)` in, `(answer, what to write)` out. The memory store
//! runs them under a mutex, SQLite inside a transaction; stores that decide on the server restate them and are
//! checked against them by `conformance::model`.
//!
//! ```text
//!           claim 8,16                 finish succeeded|failed|cancelled
//!  idle ───────────────▶ running ───────────────────────────────────────▶ finished ──claim 8──▶ running
//!                         │  ▲ ▲ renew                                        ▲             (next occurrence)
//!         retry, release  │  │ └──┘                                           │ claim 11, 12
//!                         ▼  │ claim 13 (attempt+1)                           │
//!                       waiting ──────────── running, until ≤ now ────────────┘ lost
//!                         └──────── claim 8: a newer occurrence closes it as lost ───────▶ running
//! ```

mod claim;
mod control;
mod finish;
mod name;
mod record;
mod register;
mod renew;
#[cfg(test)]
mod tests;
mod time;

pub use claim::{Award, Claim, LeaseEnd, Verdict, What, claim};
pub use control::{Control, ControlAction, Controlled, control};
pub use finish::{Finish, Finished, Outcome, finish};
pub use name::{Fingerprint, InstanceId, JobName, Namespace, Nonce, Token, WrongName};
pub use record::{Occurrence, Record, Run, RunOutcome, Status, Write};
pub use register::{
    Announcement, Contested, JobSpec, Members, Registered, Replace, Waiting, earliest, register,
};
pub use renew::{Renewal, Renewed, renew};
pub use time::{Millis, StoreNow};

/// What a rule decided: the answer, and the write that makes it so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<T> {
    /// What the caller is told.
    pub answer: T,
    /// What the store has to write in the same atomic step; `None` leaves the record as it is.
    pub write: Option<Write>,
}

impl<T> Decision<T> {
    pub(crate) fn keep(answer: T) -> Self {
        Self { answer, write: None }
    }
    pub(crate) fn put(answer: T, record: Record, closed: Option<Run>) -> Self {
        Self { answer, write: Some(Write::Put { record: Box::new(record), closed }) }
    }
}
