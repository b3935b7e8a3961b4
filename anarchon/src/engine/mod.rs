//! One instance's state machine, pure: events and the time in, actions out.
//!
//! The runtime (and the simulation) owns the clock, the store and the handlers; it hands over what happened with
//! [`Engine::handle`], does what [`Engine::next_action`] says until that is `None`, and comes back at
//! [`Engine::next_wakeup`] at the latest with [`Event::Tick`].

//!
//! ```text
//!  New ──Opened──▶ Starting: announce, register ──all answered──▶ Up: claim, watch, renew, finish, beat
//!                                                                  │ Shutdown
//!                   Stopped ◀── Leaving: withdraw ◀── Draining: renew, finish; later cancel, release
//! ```

pub(crate) mod backoff;
mod calls;
mod claims;
mod deploy;
mod due;
mod jitter;
mod looks;
mod members;
mod offset;
mod outage;
mod refusals;
mod runs;
mod shutdown;
mod timers;
mod trust;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use anarchon_schedule::Schedule;

use self::{
    calls::Sent,
    deploy::Standing,
    offset::StoreClock,
    outage::Outage,
    refusals::Refusals,
    runs::Finishing,
    runs::Running,
    timers::{Queue, Timers},
    watch::Watched,
};
use crate::{
    clock::Mono,
    policy::Policy,
    protocol::{
        Announcement, Award, Claim, Fingerprint, Finish, Finished, InstanceId, JobName, JobSpec, Members,
        Millis, Nonce, Occurrence, Registered, Renewal, Renewed, Status, StoreNow, Token, Verdict,
    },
    store::{Answer, Guarantees, Snapshot, StoreError},
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
    /// Every job was registered once, or found stale, or refused by itself: the instance is up.
    Ready,
    /// It will not be up until somebody changes the set-up: the store refuses all that was asked for. Only before `Ready`, once; the engine goes on trying.
    Failed(StoreError),
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
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Report {
    /// A planned occurrence was skipped because the run before it holds a live lease.
    Skipped { job: JobName, occurrence: Millis, holder: InstanceId },
    /// A planned occurrence was older than the catch-up window; the newest such one, if several were.
    Missed { job: JobName, occurrence: Millis, window: Duration },
    /// A planned occurrence starts late, after a downtime.
    CaughtUp { job: JobName, occurrence: Millis, late: Duration },
    /// A further attempt at an occurrence was won from `previous`: it vanished, failed or gave it back.
    TookOver { job: JobName, occurrence: Occurrence, attempt: u32, previous: InstanceId },
    /// This instance was awarded `by` while a run of `holder` was unfinished, which the store has closed as lost.
    Overtaken { job: JobName, occurrence: Occurrence, by: Occurrence, holder: InstanceId },
    /// A run of this instance lost its lease, or could not renew it in time.
    LeaseLost { job: JobName, occurrence: Occurrence, token: Token },
    /// An award came too late to be started, after the drain, or with the handler before it still running; it was given
    /// back.
    Unstarted { job: JobName, occurrence: Occurrence, token: Token },
    /// No further attempt is allowed: the occurrence ended as lost or cancelled.
    GaveUp { job: JobName, occurrence: Occurrence, attempt: u32, status: Status },
    /// The outcome of a run was not recorded: somebody had taken over, or the record was lost.
    FinishRefused { job: JobName, occurrence: Occurrence, token: Token },
    /// The outcome of a run could not be recorded in time; it will run again.
    FinishAbandoned { job: JobName, occurrence: Occurrence, token: Token },
    /// At shutdown the handler of a run did not end in time after it was cancelled and dropped; the lease is left to end.
    StillBlocking { job: JobName, occurrence: Occurrence, token: Token },
    /// The store does not answer any more; once per outage.
    StoreUnavailable(StoreError),
    /// The store answers again, after so long.
    StoreBack { after: Duration },
    /// The store refuses until somebody changes the set-up; once per message until that is over.
    Misconfigured(StoreError),
    /// The store accepts again what it refused, after so long.
    StoreAccepts { error: StoreError, after: Duration },
    /// The store refuses this job, and no other, until somebody mends its record; once per message until
    /// that is over.
    JobRefused { job: JobName, error: StoreError },
    /// The store accepts the job again.
    JobAccepted { job: JobName },
    /// The store's clock was stepped by so many microseconds.
    StoreClockStepped { micros: i64 },
    /// The store had no records of so many jobs any more, the `first` of them by name; they are registered anew. Once for
    /// all that are found together.
    RecordsLost { jobs: usize, first: Vec<JobName> },
    /// Another schedule is in force; this instance claims nothing for the job. It goes with the last instance that has it where
    /// instances announce themselves.
    StaleSchedule { job: JobName, in_force: Fingerprint, is_announced: bool },
    /// This instance's schedule is in force again, or has replaced `old`.
    ScheduleInForce { job: JobName, old: Fingerprint },
    /// Other instances have other time zone rules.
    ZonesDiffer { own: String, others: Vec<String> },
}

/// One instance's state machine; see the module's documentation.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    jobs: Vec<Job>,
    index: HashMap<JobName, usize>,
    random: fastrand::Rng,
    phase: Phase,
    guarantees: Option<Guarantees>,
    clock: StoreClock,
    outage: Outage,
    refusals: Refusals,
    actions: VecDeque<Action>,
    /// When the events came after which nobody has looked yet what may leave.
    handled: Option<Mono>,
    calls: HashMap<CallId, Sent>,
    last_call: u64,
    last_run: u64,
    last_nonce: u64,
    /// What to come back to by the own clock.
    timers: Timers<Mono, Timer>,
    /// The runs to look at, by the own clock.
    run_looks: Queue<Mono, RunId>,
    /// The jobs that will be due and the leases that will be over, by the store's clock: these follow it when it is stepped.
    dues: Queue<StoreNow, usize>,
    watches: Timers<StoreNow, usize>,
    /// The jobs that want to claim, in the order in which they came to want it.
    ready: BTreeSet<(u64, usize)>,
    last_ready: u64,
    claims: claims::Traffic,
    /// Boxed, as a tree moves what it holds.
    runs: BTreeMap<RunId, Box<Running>>,
    finishes: BTreeMap<(usize, Token), Box<Finishing>>,
    looks: looks::Looks,
    deploy: deploy::Deploy,
    leaving: shutdown::Leaving,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Starting,
    Up,
    Draining,
    Leaving,
    Stopped,
}

/// What an instant of the own clock is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    Finish(usize, Token),
    Job(usize),
    Observed(usize),
    Claims,
    Finishes,
    Register,
    Refused,
    Lost,
    Beat,
    Look,
    Sweep,
    Drain,
    GiveUp,
}

/// What the engine knows of one job.
#[derive(Debug)]
struct Job {
    spec: Arc<EngineJob>,
    standing: Standing,
    /// The newest occurrence that the store has decided, as far as we know.
    decided: Millis,
    /// The newest one that is not to be asked for again although the store has not decided it.
    missed: Millis,
    /// Whether the jitter of a due occurrence is over, or else when it will be.
    due: bool,
    due_at: Option<StoreNow>,
    watch: Option<Box<Watched>>,
    /// Whether the watched lease or retry may be over.
    takeover: bool,
    trigger: Option<u64>,
    pending: Option<Box<claims::Pending>>,
    /// The answer that showed the store's clock to be ahead of what it was taken for.
    expired: Option<At>,
    not_before: Mono,
    failures: u32,
    ready: Option<u64>,
    run: Option<RunId>,
    finishing: u32,
    /// The newest token seen, and when the reply that showed the record last was received.
    token: Token,
    seen: Mono,
    looking: bool,
    /// Why the store refuses this job alone; each is told once.
    refused: Vec<StoreError>,
}

/// When a reply was sent for, came, and was decided.
#[derive(Debug, Clone, Copy)]
struct At {
    sent: Mono,
    received: Mono,
    store: StoreNow,
}

impl At {
    /// What the clock that stamped the reply does not exceed at `later`, however long the reply was on its way.
    fn at_most(self, later: Mono) -> StoreNow {
        let since = i64::try_from(later.since(self.sent).as_micros()).unwrap_or(i64::MAX);
        StoreNow(self.store.0.saturating_add(since))
    }
}

impl Engine {
    /// An engine that waits for [`Event::Opened`].
    #[must_use]
    pub fn new(settings: Settings, jobs: impl IntoIterator<Item: Into<Arc<EngineJob>>>) -> Self {
        let jobs: Vec<Job> = jobs.into_iter().map(|job| Job::new(job.into())).collect();
        let index = jobs.iter().enumerate().map(|(i, j)| (j.spec.name.clone(), i)).collect();
        let longest_lease = jobs.iter().map(|j| j.spec.policy.lease).max().unwrap_or_default();
        Self {
            random: fastrand::Rng::with_seed(settings.seed),
            deploy: deploy::Deploy::new(jobs.len()),
            settings,
            jobs,
            index,
            phase: Phase::New,
            guarantees: None,
            clock: StoreClock::default(),
            outage: Outage::new(longest_lease),
            refusals: Refusals::default(),
            actions: VecDeque::new(),
            handled: None,
            calls: HashMap::new(),
            last_call: 0,
            last_run: 0,
            last_nonce: 0,
            timers: Timers::default(),
            run_looks: Queue::default(),
            dues: Queue::default(),
            watches: Timers::default(),
            ready: BTreeSet::new(),
            last_ready: 0,
            claims: claims::Traffic::default(),
            runs: BTreeMap::new(),
            finishes: BTreeMap::new(),
            looks: looks::Looks::default(),
            leaving: shutdown::Leaving::default(),
        }
    }

    /// Takes in what happened. `now` is read after the event happened. What follows from several events is asked for together by
    /// [`next_action`](Self::next_action) after the last.
    pub fn handle(&mut self, event: Event, now: Mono) {
        match event {
            Event::Opened(guarantees) => self.opened(guarantees, now),
            Event::Tick => {}
            Event::Reply { call, sent, received, reply } => self.replied(call, sent, received, reply, now),
            Event::RunEnded { run, end } => self.run_ended(run, end, now),
            Event::Changed(job) => self.changed(&job, now),
            Event::Shutdown => self.shutdown(now),
        }
        self.handled = Some(now);
    }

    /// The next thing to do; ask until it is `None`.
    pub fn next_action(&mut self) -> Option<Action> {
        if self.actions.is_empty()
            && let Some(now) = self.handled.take()
        {
            self.come_back(now);
            self.act(now);
        }
        self.actions.pop_front()
    }

    /// When to hand in [`Event::Tick`] at the latest; to be asked for when there is no action left.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Mono> {
        let by_store = [self.dues.first(), self.watches.first()].into_iter().flatten().min();
        let by_store = by_store.and_then(|at| self.clock.when(at));
        [self.timers.first(), self.run_looks.first(), by_store].into_iter().flatten().min()
    }

    /// What the store's clock shows, as well as this instance knows.
    #[must_use]
    pub fn store_now(&self, now: Mono) -> Option<StoreNow> {
        self.clock.estimate(now)
    }

    fn opened(&mut self, guarantees: Guarantees, now: Mono) {
        self.guarantees = Some(guarantees);
        if self.phase == Phase::New {
            self.phase = Phase::Starting;
            self.announce_anew(now);
        }
    }

    /// Whatever time has come for.
    fn come_back(&mut self, now: Mono) {
        loop {
            // In the order of time; a run before all else.
            let runs_first = match (self.run_looks.first(), self.timers.first()) {
                (Some(run), Some(timer)) => run <= timer,
                (run, _) => run.is_some(),
            };
            if runs_first {
                let Some(run) = self.run_looks.pop(now) else { break };
                self.look_at_run(run, now);
            } else {
                let Some(timer) = self.timers.pop(now) else { break };
                self.timer_due(timer, now);
            }
        }
        if let Some(reached) = self.clock.reached(now) {
            while let Some(job) = self.dues.pop(reached) {
                self.jobs[job].due_at = None;
                self.occurrence_due(job);
            }
            while let Some(job) = self.watches.pop(reached) {
                self.takeover_due(job);
            }
        }
    }

    fn timer_due(&mut self, timer: Timer, now: Mono) {
        match timer {
            Timer::Finish(job, token) => self.advance_finish(job, token, now),
            Timer::Job(job) => self.want_claim(job),
            Timer::Observed(job) => self.takeover_due(job),
            // These only wake `act`, which looks for itself what may leave.
            Timer::Claims | Timer::Finishes | Timer::Register | Timer::GiveUp => {}
            Timer::Refused => self.register_refused(),
            Timer::Lost => self.tell_lost(),
            Timer::Beat => self.deploy.beat_due = true,
            Timer::Look => self.looks.look_due = true,
            Timer::Sweep => self.looks.sweep_due = true,
            Timer::Drain => self.drained(now),
        }
    }

    /// Whatever may leave now.
    fn act(&mut self, now: Mono) {
        self.send_finishes(now);
        self.send_renewals(now);
        self.send_beat(now);
        self.send_registers(now);
        self.send_looks(now);
        self.send_claims(now);
        self.leave(now);
    }

    fn report(&mut self, report: Report) {
        self.actions.push_back(Action::Report(report));
    }

    fn has_beat(&self) -> bool {
        self.guarantees.as_ref().is_some_and(|g| g.beat)
    }

    /// The lease of the job: its own, or the connection's.
    fn lease(&self, job: usize) -> Duration {
        use crate::store::LeaseScope;
        match self.guarantees.as_ref().map(|g| &g.lease) {
            Some(LeaseScope::PerConnection(range)) => *range.start(),
            Some(LeaseScope::PerClaim) | None => self.jobs[job].spec.policy.lease,
        }
    }

    fn next_nonce(&mut self) -> Nonce {
        self.last_nonce += 1;
        Nonce { instance: self.settings.nonce, seq: self.last_nonce }
    }
}

impl Job {
    fn new(spec: Arc<EngineJob>) -> Self {
        Self {
            spec,
            standing: Standing::New,
            decided: Millis(i64::MAX),
            missed: Millis(i64::MIN),
            due: false,
            due_at: None,
            watch: None,
            takeover: false,
            trigger: None,
            pending: None,
            expired: None,
            not_before: Mono(0),
            failures: 0,
            ready: None,
            run: None,
            finishing: 0,
            token: Token(0),
            seen: Mono(0),
            looking: false,
            refused: Vec::new(),
        }
    }

    /// The newest occurrence that is not to be asked for.
    fn settled(&self) -> Millis {
        self.decided.max(self.missed)
    }
}

#[cfg(test)]
mod tests;
