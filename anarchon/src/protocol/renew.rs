use std::time::Duration;

use super::{Decision, JobName, Millis, Record, Status, StoreNow, Token};

/// A request to extend a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// The job.
    pub job: JobName,
    /// The token of the lease.
    pub token: Token,
    /// How long the lease is to last from now on.
    pub lease: Duration,
}

/// The answer to a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    /// The lease was extended.
    Extended {
        /// Its new end, by the store's clock.
        until: Millis,
        /// Whether an operator wants the run ended.
        cancel: bool,
    },
    /// The lease is no longer the caller's.
    Lost,
}

/// Decides a renewal: accepted after `until` too, when nobody took over.
#[must_use]
pub fn renew(record: Option<&Record>, renewal: &Renewal, now: StoreNow) -> Decision<Renewed> {
    let Some(record) = record.filter(|r| r.status == Status::Running && r.token == renewal.token) else {
        return Decision::keep(Renewed::Lost);
    };
    // A watcher times an unchanged `until`; two renewals within one millisecond must differ too.
    let until = match now.plus(renewal.lease) {
        same if same == record.until => Millis(same.0.saturating_add(1)),
        other => other,
    };
    let cancel = record.cancel == Some(record.token);
    Decision::put(Renewed::Extended { until, cancel }, Record { until, ..record.clone() }, None)
}
