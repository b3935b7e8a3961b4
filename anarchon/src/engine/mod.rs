//! One instance's state machine, pure: events and the time in, actions out.
//!
//! The runtime (and the simulation) owns the clock, the store and the handlers; it hands over what happened with
//! [`Engine::handle`], does what [`Engine::next_action`] says until that is `None`, and comes back at
//! [`Engine::next_wakeup`] at the latest with [`Event::Tick`].

use std::time::Duration;

use anarchon_schedule::Schedule;

use crate::{
    clock::Mono,
    policy::Policy,
    protocol::{
        Announcement, Award, Claim, Fingerprint, Finish, Finished, InstanceId, JobName, JobSpec, Members, Millis,
        Occurrence, Registered, Renewal, Renewed, StoreNow, Verdict,
    },
    store::{Answer, Guarantees, Snapshot},
};

/// A job as the engine knows it.
#[derive(Debug, Clone)]
pub struct EngineJob {
    /// Its name.
    pub name: JobName,
    /// Its schedule.
    pub schedule: Schedule,
    /// The fingerprint of the schedule.
    pub fingerprint: Fingerprint,
    /// Its options.
    pub policy: Policy,
}

/// What an engine is told once.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The id of this instance.
    pub instance: InstanceId,
    /// The random part of its nonces.
    pub nonce: u64,
    /// The seed of its jitter.
    pub seed: u64,
    /// How many runs at once, `None` for no limit.
    pub concurrency: Option<usize>,
    /// How long runs may go on after a shutdown began.
    pub drain: Duration,
    /// The version of the time zone rules.
    pub zones: String,
}

/// Names a call to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Names a run of this instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The store is open. Comes first, before any call; may come again.
    Opened(Guarantees),
    /// Nothing but time passed.
    Tick,
    /// A call came back: one answer per item, or all `Unknown` after its deadline.
    Reply {
        /// Which call.
        call: CallId,
        /// When it was sent, read just before sending.
        sent: Mono,
        /// When the reply was there.
        received: Mono,
        /// The answers.
        reply: Reply,
    },
    /// A run ended.
    RunEnded {
        /// Which run.
        run: RunId,
        /// How.
        end: RunEnd,
    },
    /// The record of a job may have changed: an operator's order through this instance, or the store's hint.
    Changed(JobName),
    /// Stop claiming, drain, release.
    Shutdown,
}

/// How a run ended, as the runtime saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// The handler returned.
    Returned {
        /// Its error: message and sources, at most 1,000 characters.
        error: Option<String>,
        /// Whether it had seen its cancellation.
        saw_cancel: bool,
    },
    /// The handler's future was dropped after its cancellation, or could not be run at all.
    Dropped,
}

/// A call to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// `Store::beat`.
    Beat(Announcement),
    /// `Store::register`.
    Register(Vec<JobSpec>),
    /// `Store::claim`.
    Claim(Vec<Claim>),
    /// `Store::renew`.
    Renew(Vec<Renewal>),
    /// `Store::finish`.
    Finish(Vec<Finish>),
    /// `Store::inspect`, without history.
    Inspect(Vec<JobName>),
}

/// The answers to a call, one per item, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the answer to the call of its name")]
pub enum Reply {
    Beat(Answer<Members>),
    Register(Vec<Answer<Registered>>),
    Claim(Vec<Answer<Verdict>>),
    Renew(Vec<Answer<Renewed>>),
    Finish(Vec<Answer<Finished>>),
    Inspect(Vec<Answer<Option<Snapshot>>>),
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Call the store; answer with [`Event::Reply`], all `Unknown` when no reply came within `deadline`.
    Call {
        /// Which call.
        id: CallId,
        /// What to ask.
        call: Call,
        /// How long to wait for the reply.
        deadline: Duration,
    },
    /// Every job was registered once, or found stale: the instance is up.
    Ready,
    /// Start a handler.
    Start(Start),
    /// The lease of a run was renewed: it may now be trusted for so long.
    Trust {
        /// Which run.
        run: RunId,
        /// How long.
        trust: Trust,
    },
    /// Set the cancellation token of a run.
    Cancel {
        /// Which run.
        run: RunId,
        /// Why.
        reason: CancelReason,
    },
    /// Drop the future of a run, unpolled.
    Drop {
        /// Which run.
        run: RunId,
    },
    /// Tell the operator.
    Report(Report),
    /// Shutdown is complete; nothing follows.
    Stopped,
}

/// A run to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Names the run.
    pub run: RunId,
    /// Index of the job in the list the engine was made with.
    pub job: usize,
    /// What was won.
    pub award: Award,
    /// Whether it starts later than its jitter + 1 s after its planned time, or after another attempt of such a one.
    pub catch_up: bool,
    /// How long the lease may be trusted.
    pub trust: Trust,
}

/// Until when a lease may be trusted, on this instance's monotonic clock. With `T` = the sending of the last claim or
/// renewal that succeeded and `L` = the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// `T + 0.70 L`: set the cancellation token.
    pub cancel_at: Mono,
    /// `T + 0.85 L`: drop the future; never poll it from here on.
    pub drop_at: Mono,
    /// `T + L`: the store cannot end the lease before.
    pub ends_at: Mono,
}

/// Why a run is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelReason {
    /// The lease could not be renewed in time, or was taken over.
    LeaseLost,
    /// The run took longer than its `timeout`.
    Timeout,
    /// The instance shuts down and the drain time is over.
    Shutdown,
    /// An operator cancelled it.
    Operator,
}

/// A fact for the operator's log; the runtime words it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// A planned occurrence was skipped because the run before it holds a live lease.
    Skipped { job: JobName, occurrence: Millis, holder: InstanceId },
    /// A planned occurrence was older than the catch-up window.
    Missed { job: JobName, occurrence: Millis, window: Duration },
}
