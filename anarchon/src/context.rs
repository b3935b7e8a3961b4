//! What a handler is given: which occurrence it runs for, and whether it may go on.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use chrono::{DateTime, FixedOffset, Utc};
use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

use crate::{
    clock::{Clock, Mono, SystemClock},
    engine::{CancelReason, Trust},
    protocol::{InstanceId, JobName, Namespace, Occurrence, Token},
};

/// What a handler knows of its run. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<(Facts, RunState)>);

/// What is fixed when a run starts.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) home: Arc<Home>,
    pub(crate) job: JobName,
    pub(crate) occurrence: Occurrence,
    pub(crate) scheduled_at: DateTime<Utc>,
    pub(crate) scheduled_local: DateTime<FixedOffset>,
    pub(crate) attempt: u32,
    pub(crate) token: Token,
    pub(crate) catch_up: bool,
}

/// What all runs of a scheduler have in common.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) namespace: Namespace,
    pub(crate) instance: InstanceId,
    /// What the store is called in logs.
    pub(crate) store: Arc<str>,
}

impl Context {
    pub(crate) fn new(facts: Facts, state: RunState) -> Self {
        Self(Arc::new((facts, state)))
    }

    /// A context for a unit test of a handler, without store or runtime: attempt 1, never cancelled.
    ///
    /// # Panics
    /// When `job` is not a valid job name: 1–100 of `a-z A-Z 0-9 _ - .`.
    ///
    /// ```
    /// use anarchon::{Context, JobResult};
    ///
    /// fn digest(ctx: &Context) -> JobResult {
    ///     assert!(ctx.scheduled_at().to_rfc3339().starts_with("2027"));
    ///     Ok(())
    /// }
    /// let instant = "2027-01-01T00:00:00Z".parse().unwrap();
    /// digest(&Context::for_test("digest", instant)).unwrap();
    /// ```
    #[must_use]
    pub fn for_test(job: &str, scheduled_at: DateTime<Utc>) -> Self {
        let name = JobName::new(job).unwrap_or_else(|wrong| panic!("{wrong}"));
        let occurrence = Occurrence::Planned(crate::protocol::Millis(scheduled_at.timestamp_millis()));
        let never = Trust { cancel_at: Mono(u64::MAX), drop_at: Mono(u64::MAX), ends_at: Mono(u64::MAX) };
        let home = Home {
            namespace: Namespace::new("test").expect("a valid name"),
            instance: InstanceId::new("test").expect("a valid name"),
            store: Arc::from("test"),
        };
        let facts = Facts {
            home: Arc::new(home),
            job: name,
            occurrence,
            scheduled_at,
            scheduled_local: scheduled_at.fixed_offset(),
            attempt: 1,
            token: Token(1),
            catch_up: false,
        };
        Self::new(facts, RunState::new(never, Arc::new(SystemClock)))
    }

    /// The name of the job.
    #[must_use]
    pub fn job(&self) -> &str {
        self.facts().job.as_str()
    }

    /// The planned time of the occurrence, the same for every attempt; for a manual run the time of its award.
    #[must_use]
    pub fn scheduled_at(&self) -> DateTime<Utc> {
        self.facts().scheduled_at
    }

    /// The same in the schedule's zone; UTC for `every`.
    #[must_use]
    pub fn scheduled_local(&self) -> DateTime<FixedOffset> {
        self.facts().scheduled_local
    }

    /// Names the occurrence: the same for every attempt, an idempotency key. Its text is
    /// `namespace/job/2027-01-01T00:00:00.000Z`, or `namespace/job/manual-7` for the seventh trigger.
    /// The count of triggers begins anew when the job's record is lost or forgotten, so as an idempotency key the id of a
    /// manual run may come again then.
    ///
    /// ```
    /// use anarchon::prelude::*;
    ///
    /// let ctx = Context::for_test("digest", "2027-01-04T06:00:00Z".parse()?);
    /// let key = format!("{}/ada@example.org", ctx.occurrence_id());
    /// assert!(key.ends_with("/digest/2027-01-04T06:00:00.000Z/ada@example.org"));
    /// # JobResult::Ok(())
    /// ```
    #[must_use]
    pub fn occurrence_id(&self) -> OccurrenceId {
        OccurrenceId {
            namespace: self.facts().home.namespace.clone(),
            job: self.facts().job.clone(),
            occurrence: self.facts().occurrence,
        }
    }

    /// Which attempt at the occurrence this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.facts().attempt
    }

    /// A number that grows with every award of this job. Hand it to whatever the job writes to, and let that refuse a
    /// number below the highest it has seen: then a run that lost its lease unawares cannot overwrite its successor. The long job in
    /// [`guide::recipes`](crate::guide::recipes) does so with a table.
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.facts().token.0
    }

    /// The id of the process that runs this.
    #[must_use]
    pub fn instance(&self) -> &InstanceId {
        &self.facts().home.instance
    }

    /// Whether this occurrence starts later than its jitter + 1 s, after downtime.
    #[must_use]
    pub fn is_catch_up(&self) -> bool {
        self.facts().catch_up
    }

    /// Completes when the run is to end. A run that saw this never counts as succeeded.
    ///
    /// ```
    /// # async fn part(_: u32) {}
    /// use anarchon::prelude::*;
    ///
    /// async fn import(ctx: Context) -> JobResult {
    ///     for number in 1..=6 {
    ///         tokio::select! {
    ///             () = part(number) => {}
    ///             // What it returns does not matter: the next attempt goes on.
    ///             () = ctx.cancelled() => return Ok(()),
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn cancelled(&self) {
        // Before the look: what is told behind it is heard.
        let told = self.state().cancelled.notified();
        if self.state().reason().is_none() {
            told.await;
        }
        self.state().seen.store(true, Ordering::SeqCst);
    }

    /// Whether the run is to end. A run that was told so never counts as succeeded.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel_reason().is_some()
    }

    /// Why the run is to end; `None` while it may go on. A run that was told so never counts as succeeded.
    #[must_use]
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        let reason = self.state().check();
        if reason.is_some() {
            self.state().seen.store(true, Ordering::SeqCst);
        }
        reason
    }

    /// How long the lease lasts at least, if it is not renewed any more; zero once it may be over.
    #[must_use]
    pub fn lease_remaining(&self) -> Duration {
        Mono(self.state().ends_at.load(Ordering::SeqCst)).since(self.state().clock.mono())
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.0.0
    }

    pub(crate) fn state(&self) -> &RunState {
        &self.0.1
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("occurrence", &self.occurrence_id().to_string())
            .field("attempt", &self.facts().attempt)
            .field("fencing_token", &self.facts().token.0)
            .finish_non_exhaustive()
    }
}

/// Names an occurrence of a job, over all its attempts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OccurrenceId {
    namespace: Namespace,
    job: JobName,
    occurrence: Occurrence,
}

impl fmt::Display for OccurrenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.job, self.occurrence)
    }
}

/// What changes while a run goes on: shared by the handler's context, the guard around its future, and the scheduler.
#[derive(Debug)]
pub(crate) struct RunState {
    reason: OnceLock<CancelReason>,
    cancelled: Notify,
    /// Whether the handler learnt of its cancellation.
    seen: AtomicBool,
    cancel_at: AtomicU64,
    drop_at: AtomicU64,
    ends_at: AtomicU64,
    /// Whether its future is to be dropped, and whom to wake for that.
    aborted: AtomicBool,
    guard: AtomicWaker,
    clock: Arc<dyn Clock>,
}

impl RunState {
    pub(crate) fn new(trust: Trust, clock: Arc<dyn Clock>) -> Self {
        Self {
            reason: OnceLock::new(),
            cancelled: Notify::new(),
            seen: AtomicBool::new(false),
            cancel_at: AtomicU64::new(trust.cancel_at.0),
            drop_at: AtomicU64::new(trust.drop_at.0),
            ends_at: AtomicU64::new(trust.ends_at.0),
            aborted: AtomicBool::new(false),
            guard: AtomicWaker::new(),
            clock,
        }
    }

    /// The lease was renewed.
    pub(crate) fn trust(&self, trust: Trust) {
        self.cancel_at.store(trust.cancel_at.0, Ordering::SeqCst);
        self.drop_at.store(trust.drop_at.0, Ordering::SeqCst);
        self.ends_at.store(trust.ends_at.0, Ordering::SeqCst);
    }

    /// Sets the cancellation; the first reason stays.
    pub(crate) fn cancel(&self, reason: CancelReason) {
        if self.reason.set(reason).is_ok() {
            self.cancelled.notify_waiters();
        }
    }

    /// Why the run is to end. Looks at the clock itself: after a freeze, the handler may wake before the scheduler.
    pub(crate) fn check(&self) -> Option<CancelReason> {
        let cancelled = self.reason();
        if cancelled.is_none() && self.clock.mono().0 >= self.cancel_at.load(Ordering::SeqCst) {
            self.cancel(CancelReason::LeaseLost);
            return Some(CancelReason::LeaseLost);
        }
        cancelled
    }

    /// Why the run was told to end, whatever the clock says.
    pub(crate) fn reason(&self) -> Option<CancelReason> {
        self.reason.get().copied()
    }

    /// Whether the handler must not be polled any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_aborted() || self.clock.mono().0 >= self.drop_at.load(Ordering::SeqCst)
    }

    /// Whether its future is to be dropped, whatever the clock says.
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }

    /// Has the handler's future dropped, at once unless it is being polled.
    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        self.guard.wake();
    }

    /// Whom [`abort`](Self::abort) wakes.
    pub(crate) fn wake_to_drop(&self, waker: &Waker) {
        self.guard.register(waker);
    }

    /// Its task is over: a context that the handler kept does not keep it.
    pub(crate) fn wake_nobody(&self) {
        self.guard.take();
    }

    /// Whether the handler learnt of its cancellation.
    pub(crate) fn was_seen(&self) -> bool {
        self.seen.load(Ordering::SeqCst)
    }
}
