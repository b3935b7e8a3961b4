use std::time::Duration;

use super::{Decision, JobName, Record, RunOutcome, Status, StoreNow, Token};

/// How the holder says that a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The handler returned well.
    Succeeded,
    /// The handler failed and no retry is left.
    Failed,
    /// An operator ended it.
    Cancelled,
    /// The handler failed; another attempt is due after this delay.
    Retry(Duration),
    /// Given back without a verdict; another attempt is due at once.
    Released,
}

/// A request to close a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// The job.
    pub job: JobName,
    /// The token of the run.
    pub token: Token,
    /// How it ended.
    pub outcome: Outcome,
    /// The error of the handler, at most 1,000 characters.
    pub message: Option<String>,
}

/// The answer to a finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// The run is closed, by this call or by an earlier one.
    Closed(Record),
    /// The run is no longer the caller's: somebody took over or gave it up.
    Refused,
}

/// Decides a finish: accepted after `until` too, when nobody took over, which saves a repeat.
#[must_use]
pub fn finish(record: Option<&Record>, finish: &Finish, now: StoreNow) -> Decision<Finished> {
    let Some(record) = record.filter(|r| r.token == finish.token) else {
        return Decision::keep(Finished::Refused);
    };
    match record.status {
        Status::Running => {}
        Status::Waiting | Status::Succeeded | Status::Failed | Status::Cancelled => {
            return Decision::keep(Finished::Closed(record.clone()));
        }
        // Given up by a watcher while the holder was away: the holder's own outcome was not kept.
        Status::Lost | Status::Idle => return Decision::keep(Finished::Refused),
    }
    let mut next = record.clone();
    let (status, outcome) = match finish.outcome {
        Outcome::Succeeded => (Status::Succeeded, RunOutcome::Succeeded),
        Outcome::Failed => (Status::Failed, RunOutcome::Failed),
        Outcome::Cancelled => (Status::Cancelled, RunOutcome::Cancelled),
        Outcome::Retry(after) => {
            next.errors = next.errors.saturating_add(1);
            next.until = now.plus(after);
            (Status::Waiting, RunOutcome::Retrying)
        }
        Outcome::Released => {
            next.until = now.millis();
            (Status::Waiting, RunOutcome::Released)
        }
    };
    let closed = next.close(outcome, now, finish.message.clone());
    next.status = status;
    Decision::put(Finished::Closed(next.clone()), next, Some(closed))
}
