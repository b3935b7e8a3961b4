use super::{Decision, JobName, Record, RunOutcome, Status, StoreNow, Token, Write};

/// An operator's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The job.
    pub job: JobName,
    /// The order.
    pub action: ControlAction,
}

/// What an operator can order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlAction {
    /// Run the job once, now; several while it is busy become one run.
    Trigger,
    /// Award no planned occurrence until resumed; a run in flight goes on.
    Pause,
    /// End the pause; what fell due meanwhile is gone.
    Resume,
    /// End the run with this token and let no attempt follow it.
    Cancel(Token),
    /// Delete the record and the history of the job.
    Forget,
}

/// The answer to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Controlled {
    /// It is done.
    Done,
    /// There is no run with that token to cancel.
    NoSuchRun,
    /// The store has no record of the job.
    Unregistered,
}

/// Decides an operator's order.
#[must_use]
pub fn control(record: Option<&Record>, control: &Control, now: StoreNow) -> Decision<Controlled> {
    let Some(record) = record else { return Decision::keep(Controlled::Unregistered) };
    let mut next = record.clone();
    let mut closed = None;
    match control.action {
        ControlAction::Trigger => next.manual_asked = next.manual_asked.saturating_add(1),
        ControlAction::Pause => next.paused = true,
        ControlAction::Resume => {
            if next.paused {
                next.decided = next.decided.max(now.millis());
            }
            next.paused = false;
        }
        ControlAction::Cancel(token) if token == record.token && record.status == Status::Running => {
            next.cancel = Some(token);
        }
        ControlAction::Cancel(token) if token == record.token && record.status == Status::Waiting => {
            closed = Some(next.close(RunOutcome::Cancelled, now, None));
            next.status = Status::Cancelled;
        }
        ControlAction::Cancel(_) => return Decision::keep(Controlled::NoSuchRun),
        ControlAction::Forget => {
            return Decision { answer: Controlled::Done, write: Some(Write::Delete) };
        }
    }
    if next == *record {
        Decision::keep(Controlled::Done)
    } else {
        Decision::put(Controlled::Done, next, closed)
    }
}
