//! The calls of a store as this one carries them out: by the rules of the protocol where the token can be had, and what is
//! answered while a run of another handle has it. Pure.

use std::time::Duration;

use super::{body::Body, state::Unseen};
use crate::{
    protocol::{
        self, Claim, Control, ControlAction, Controlled, Decision, Fingerprint, Finish, Finished, JobName,
        JobSpec, LeaseEnd, Millis, Registered, Renewal, Renewed, StoreNow, Verdict, Write,
    },
    store::{Snapshot, StoreError},
};

/// What can be said while somebody else's run has the token.
#[derive(Debug)]
pub enum Elsewhere<T> {
    /// This.
    Told(T),
    /// This, and the occurrence is decided: it is put into the record as soon as that can be had.
    Decided(T, Millis),
    /// Nothing before the token is back.
    Wait,
    /// Why there is no answer.
    Refused(StoreError),
}

/// One item of a call.
pub trait Operation: Clone + Send + Sync + 'static {
    type Answer: Clone + Send + 'static;
    /// Whether it is there to change records.
    const WRITES: bool = true;
    /// How long a token that somebody else has is waited for. It ends well before the shortest deadline of a call, that of the
    /// claims and renewals of the shortest lease, 0.8 s: an item that waits holds up the answers of all others in its call.
    const PATIENCE: Duration = Duration::from_millis(600);

    fn job(&self) -> &JobName;
    /// The schedule that is registered by this.
    fn schedule(&self) -> Option<Fingerprint> {
        None
    }
    /// By the rules, on the record or on none.
    fn decide(&self, body: Option<&Body>, now: StoreNow) -> Decision<Self::Answer>;
    fn elsewhere(&self, unseen: &Unseen, now: StoreNow) -> Elsewhere<Self::Answer>;
    /// Whether the token is kept from here on.
    fn holds(_answer: &Self::Answer) -> bool {
        false
    }
    /// What is done about a token that is lost or cannot be read.
    fn mend(&self) -> Option<Self::Answer> {
        None
    }
}

/// Reads a record.
#[derive(Debug, Clone)]
pub struct Look {
    pub job: JobName,
    pub history: u8,
}

impl Operation for Look {
    type Answer = Option<Snapshot>;
    const WRITES: bool = false;

    fn job(&self) -> &JobName {
        &self.job
    }

    fn decide(&self, body: Option<&Body>, _now: StoreNow) -> Decision<Self::Answer> {
        Decision::keep(body.map(|body| body.snapshot(self.history)))
    }

    fn elsewhere(&self, unseen: &Unseen, now: StoreNow) -> Elsewhere<Self::Answer> {
        let record = unseen.record(now, None);
        Elsewhere::Told(Some(Snapshot { record, history: Vec::new() }))
    }
}

impl Operation for JobSpec {
    type Answer = Registered;
    /// A birth has steps of its own; its call may take 10 s.
    const PATIENCE: Duration = Duration::from_secs(2);

    fn job(&self) -> &JobName {
        &self.job
    }

    fn decide(&self, body: Option<&Body>, now: StoreNow) -> Decision<Registered> {
        protocol::register(body.map(|body| &body.record), self, now)
    }

    fn schedule(&self) -> Option<Fingerprint> {
        Some(self.schedule)
    }

    fn elsewhere(&self, unseen: &Unseen, now: StoreNow) -> Elsewhere<Registered> {
        let record = unseen.record(now, Some(self.schedule));
        Elsewhere::Told(if record.schedule == self.schedule {
            Registered::InForce(record)
        } else {
            Registered::Stale(record)
        })
    }
}

impl Operation for Claim {
    type Answer = Verdict;

    fn job(&self) -> &JobName {
        &self.job
    }

    fn decide(&self, body: Option<&Body>, now: StoreNow) -> Decision<Verdict> {
        // Not over at once when the token is back: the broker gives it back as fast when only the connection of a holder is
        // gone, whose handler goes on.
        protocol::claim(body.map(|body| &body.record), self, now, LeaseEnd::ByClock)
    }

    fn elsewhere(&self, unseen: &Unseen, now: StoreNow) -> Elsewhere<Verdict> {
        let record = unseen.record(now, Some(self.schedule));
        let Decision { answer, write } = protocol::claim(Some(&record), self, now, LeaseEnd::Live);
        match (answer, write) {
            // Whether the run is of this very occurrence, or of one before it that goes on, nobody can see.
            (Verdict::Skipped(record), _) if !unseen.was_seen_running(now) => {
                let decided = record.decided;
                Elsewhere::Decided(Verdict::AlreadyDecided(record), decided)
            }
            (answer @ (Verdict::Skipped(_) | Verdict::Paused(_)), Some(Write::Put { record, .. })) => {
                Elsewhere::Decided(answer, record.decided)
            }
            // What was only observed as over is not.
            (Verdict::Awarded(_) | Verdict::GaveUp(_), Some(_)) => Elsewhere::Told(Verdict::Held(record)),
            (answer, _) => Elsewhere::Told(answer),
        }
    }

    fn holds(answer: &Verdict) -> bool {
        matches!(answer, Verdict::Awarded(_))
    }
}

impl Operation for Renewal {
    type Answer = Renewed;

    fn job(&self) -> &JobName {
        &self.job
    }

    fn decide(&self, body: Option<&Body>, now: StoreNow) -> Decision<Renewed> {
        protocol::renew(body.map(|body| &body.record), self, now)
    }

    fn elsewhere(&self, unseen: &Unseen, now: StoreNow) -> Elsewhere<Renewed> {
        if unseen.may_be(self.token, now) {
            return Elsewhere::Refused(still_there(&self.job));
        }
        Elsewhere::Told(Renewed::Lost)
    }

    fn holds(answer: &Renewed) -> bool {
        matches!(answer, Renewed::Extended { .. })
    }
}

impl Operation for Finish {
    type Answer = Finished;

    fn job(&self) -> &JobName {
        &self.job
    }

    fn decide(&self, body: Option<&Body>, now: StoreNow) -> Decision<Finished> {
        protocol::finish(body.map(|body| &body.record), self, now)
    }

    fn elsewhere(&self, unseen: &Unseen, now: StoreNow) -> Elsewhere<Finished> {
        if unseen.may_be(self.token, now) {
            return Elsewhere::Refused(still_there(&self.job));
        }
        Elsewhere::Told(Finished::Refused)
    }
}

impl Operation for Control {
    type Answer = Controlled;
    /// It waits for the end of a run; an operator waits for 10 s.
    const PATIENCE: Duration = Duration::from_secs(8);

    fn job(&self) -> &JobName {
        &self.job
    }

    fn decide(&self, body: Option<&Body>, now: StoreNow) -> Decision<Controlled> {
        protocol::control(body.map(|body| &body.record), self, now)
    }

    fn elsewhere(&self, _unseen: &Unseen, _now: StoreNow) -> Elsewhere<Controlled> {
        match self.action {
            ControlAction::Cancel(_) => Elsewhere::Refused(StoreError::misconfigured(format_args!(
                "RabbitMQ does not let anybody but the instance that runs job \"{}\" change its record meanwhile; cancel it there",
                self.job
            ))),
            ControlAction::Trigger | ControlAction::Pause | ControlAction::Resume | ControlAction::Forget => {
                Elsewhere::Wait
            }
        }
    }

    fn mend(&self) -> Option<Controlled> {
        (self.action == ControlAction::Forget).then_some(Controlled::Done)
    }
}

fn still_there(job: &JobName) -> StoreError {
    StoreError::unavailable(format_args!(
        "RabbitMQ has not noticed yet that the connection which has the record of job \"{job}\" is gone"
    ))
}
