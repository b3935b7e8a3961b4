//! A store in a namespace of its own, and the calls that checks make.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::Harness;
use crate::{
    protocol::{
        Award, Claim, Contested, Control, ControlAction, Controlled, Fingerprint, Finish, Finished,
        InstanceId, JobName, JobSpec, Millis, Namespace, Nonce, Outcome, Record, Registered, Renewal,
        Renewed, Run, RunOutcome, Status, StoreNow, Token, Verdict, Waiting, What,
    },
    store::{Answer, ClockSource, Guarantees, HeldRecord, Snapshot, Stamped, Store},
};

/// A lease that does not end during a check, and a window that all of a check is in.
pub(super) const LONG: Duration = Duration::from_secs(3600);
/// A lease whose end a check waits for.
pub(super) const SHORT: Duration = Duration::from_millis(150);
/// The schedule of all jobs; no half of it is zero, so that a store that keeps only one is found out.
pub(super) const SCHEDULE: Fingerprint = Fingerprint(0xfedc_ba98_7654_3210_0123_4567_89ab_cdef);
/// Another schedule; differs in one bit only.
pub(super) const OTHER_SCHEDULE: Fingerprint = Fingerprint(SCHEDULE.0 ^ 1);

/// A condition that does not come true within this time will not: servers on a busy machine are slow.
const GIVE_UP: Duration = Duration::from_secs(60);

static CLAIMS: AtomicU64 = AtomicU64::new(0);

/// An open store in a namespace that no other check uses.
pub(super) struct Subject {
    pub(super) harness: Harness,
    pub(super) namespace: Namespace,
    pub(super) store: Arc<dyn Store>,
    pub(super) guarantees: Guarantees,
}

impl Subject {
    pub(super) async fn open(harness: &Harness) -> Self {
        let namespace = Namespace::new(&format!("check-{:016x}", fastrand::u64(..))).unwrap();
        let store = (harness.handle)();
        let guarantees = store.open(&namespace).await.unwrap();
        Self { harness: harness.clone(), namespace, store, guarantees }
    }

    /// Whether a record can be read and changed through every handle while a run holds its lease.
    pub(super) fn is_shared(&self) -> bool {
        match self.guarantees.held {
            HeldRecord::Anybody => true,
            HeldRecord::HolderOnly => false,
        }
    }

    /// One more handle, as another process would have it.
    pub(super) async fn handle(&self) -> Arc<dyn Store> {
        self.handle_in(&self.namespace).await
    }

    /// Waits until the lease that ends then is over. Where the store's clock is not asked but estimated, an observer may come
    /// to know that a little later.
    pub(super) async fn over(&self, job: &Job, until: Millis) {
        job.after(until.plus(lag(self.guarantees.clock))).await;
    }

    pub(super) async fn handle_in(&self, namespace: &Namespace) -> Arc<dyn Store> {
        let store = (self.harness.handle)();
        store.open(namespace).await.unwrap();
        store
    }

    /// A job, registered for the first time.
    pub(super) async fn job(&self, text: &str) -> Job {
        let job = Job { store: Arc::clone(&self.store), name: name(text) };
        let created = job.register(&job.spec()).await;
        assert!(matches!(created, Registered::Created(_)), "{created:?}");
        job
    }

    /// Many of them, registered in one batch.
    pub(super) async fn jobs(&self, count: usize) -> Vec<Job> {
        let jobs: Vec<_> = (0..count)
            .map(|n| Job { store: Arc::clone(&self.store), name: name(&format!("job-{n}")) })
            .collect();
        let specs: Vec<_> = jobs.iter().map(Job::spec).collect();
        let mut newest = Millis(i64::MIN);
        for created in all(self.store.register(&specs).await, count) {
            assert!(matches!(created.value, Registered::Created(_)), "{created:?}");
            newest = newest.max(created.now.millis());
        }
        // Several servers register them in any order: what is due for one of them from now on is due for all.
        if let Some(job) = jobs.first() {
            job.after(newest).await;
        }
        jobs
    }
}

/// A job, as one handle sees it.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) store: Arc<dyn Store>,
    pub(super) name: JobName,
}

impl Job {
    /// The same job through another handle.
    pub(super) fn through(&self, store: &Arc<dyn Store>) -> Self {
        Self { store: Arc::clone(store), name: self.name.clone() }
    }

    pub(super) fn spec(&self) -> JobSpec {
        JobSpec { job: self.name.clone(), schedule: SCHEDULE, by: instance("a"), replace: None, next: None }
    }

    pub(super) async fn register(&self, spec: &JobSpec) -> Registered {
        one(self.store.register(std::slice::from_ref(spec)).await).value
    }

    pub(super) async fn inspect(&self, history: u8) -> Stamped<Option<Snapshot>> {
        one(self.store.inspect(std::slice::from_ref(&self.name), history).await)
    }

    pub(super) async fn snapshot(&self) -> Snapshot {
        self.inspect(u8::MAX).await.value.unwrap()
    }

    pub(super) async fn record(&self) -> Record {
        self.snapshot().await.record
    }

    pub(super) async fn history(&self) -> Vec<Run> {
        self.snapshot().await.history
    }

    /// How the closed runs ended, newest first.
    pub(super) async fn outcomes(&self) -> Vec<(u32, RunOutcome)> {
        self.history().await.iter().map(|run| (run.attempt, run.outcome)).collect()
    }

    /// Checks that this handle is told of a lease that another one holds, and of nothing else.
    pub(super) async fn sees_only_that_it_is_held(&self) {
        let Snapshot { record, history } = self.snapshot().await;
        assert_eq!((record.status, &history[..]), (Status::Running, &[][..]), "{record:?}");
    }

    pub(super) async fn now(&self) -> StoreNow {
        self.inspect(0).await.now
    }

    /// Waits until the store's clock is past an instant.
    pub(super) async fn after(&self, instant: Millis) {
        until("the store's clock goes on", async || (self.now().await.millis() > instant).then_some(()))
            .await;
    }

    /// Waits until an instant that another handle found due is due for this one. Not by `after`, whose future is not `Send`.
    pub(super) async fn wait_for(&self, due: Millis) {
        while self.now().await.millis() < due {
            pause(Duration::from_millis(1)).await;
        }
    }

    /// An occurrence that is due and not decided.
    pub(super) async fn due(&self) -> Millis {
        until("an occurrence falls due", async || {
            let read = self.inspect(0).await;
            (read.now.millis() > read.value?.record.decided).then_some(read.now.millis())
        })
        .await
    }

    /// A claim with a nonce of its own, by instance "a", for a long lease.
    pub(super) fn ask(&self, what: What) -> Claim {
        Claim {
            job: self.name.clone(),
            what,
            lease: LONG,
            window: LONG,
            max_attempts: 3,
            schedule: SCHEDULE,
            holder: instance("a"),
            nonce: fresh_nonce(),
            next: None,
            expires: Millis::MAX,
        }
    }

    pub(super) fn ask_planned(&self, at: Millis) -> Claim {
        self.ask(What::Planned(at))
    }

    pub(super) fn ask_takeover(&self, token: Token) -> Claim {
        self.ask(What::Takeover { token, observed: None })
    }

    pub(super) async fn claim(&self, claim: &Claim) -> Stamped<Verdict> {
        one(self.store.claim(std::slice::from_ref(claim)).await)
    }

    /// Claims, and checks that nothing was written.
    pub(super) async fn claim_in_vain(&self, claim: &Claim) -> Verdict {
        let before = self.snapshot().await;
        let verdict = self.claim(claim).await.value;
        assert_eq!(self.snapshot().await, before, "{verdict:?} changed something");
        verdict
    }

    pub(super) async fn award(&self, claim: &Claim) -> Award {
        awarded(self.claim(claim).await.value)
    }

    /// A first attempt at an occurrence that is due, with this lease.
    pub(super) async fn start(&self, lease: Duration) -> Award {
        let at = self.due().await;
        self.award(&Claim { lease, ..self.ask_planned(at) }).await
    }

    /// Repeats a takeover, each with a nonce of its own, until it is no longer held.
    pub(super) async fn take_over(&self, claim: &Claim) -> Stamped<Verdict> {
        until("the lease ends", async || {
            let claim = Claim { nonce: fresh_nonce(), ..claim.clone() };
            let answer = self.claim(&claim).await;
            (!matches!(answer.value, Verdict::Held(_))).then_some(answer)
        })
        .await
    }

    /// The next attempt after the lease with this token, as soon as there is one.
    pub(super) async fn next_attempt(&self, token: Token, lease: Duration) -> Award {
        let claim = Claim { lease, ..self.ask_takeover(token) };
        awarded(self.take_over(&claim).await.value)
    }

    pub(super) async fn renew(&self, token: Token, lease: Duration) -> Stamped<Renewed> {
        one(self.store.renew(&[Renewal { job: self.name.clone(), token, lease }]).await)
    }

    pub(super) async fn finish(&self, token: Token, outcome: Outcome) -> Stamped<Finished> {
        let finish = Finish { job: self.name.clone(), token, outcome, message: None };
        one(self.store.finish(&[finish]).await)
    }

    /// Finishes, and checks that it is closed with the record that the store then has.
    pub(super) async fn close(&self, token: Token, outcome: Outcome) -> Record {
        let finished = self.finish(token, outcome).await.value;
        let Finished::Closed(record) = finished else { panic!("not closed: {finished:?}") };
        assert_eq!(record, self.record().await);
        record
    }

    pub(super) async fn order(&self, action: ControlAction) -> Controlled {
        one(self.store.control(&[Control { job: self.name.clone(), action }]).await).value
    }

    /// Orders, and checks that it was carried out.
    pub(super) async fn obey(&self, action: ControlAction) {
        assert_eq!(self.order(action).await, Controlled::Done, "{action:?}");
    }
}

/// By how much two handles may differ over what the time is.
pub(super) fn lag(clock: ClockSource) -> Duration {
    match clock {
        ClockSource::Store => Duration::ZERO,
        ClockSource::Estimated | ClockSource::Local => Duration::from_secs(1),
    }
}

pub(super) fn name(text: &str) -> JobName {
    JobName::new(text).unwrap()
}

/// A job that waits for the end of the schedule in force.
pub(super) fn contested(job: &str, in_force: Fingerprint) -> Contested {
    let own =
        Waiting { job: name(job), schedule: Fingerprint(!in_force.0), since: Millis(1_800_000_000_000) };
    Contested { in_force, own }
}

pub(super) fn instance(text: &str) -> InstanceId {
    InstanceId::new(text).unwrap()
}

/// Never given before; all its bits are used.
pub(super) fn fresh_nonce() -> Nonce {
    let seq = u64::MAX - CLAIMS.fetch_add(1, Ordering::SeqCst);
    Nonce { instance: 0xf0f0_f0f0_f0f0_f0f1, seq }
}

#[expect(clippy::needless_pass_by_value, reason = "callers have the answer and want the award in its place")]
pub(super) fn awarded(verdict: Verdict) -> Award {
    let Verdict::Awarded(award) = verdict else { panic!("not awarded: {verdict:?}") };
    award
}

/// The answers of a batch, which must all be there.
pub(super) fn all<T: fmt::Debug>(answers: Vec<Answer<T>>, items: usize) -> Vec<Stamped<T>> {
    assert_eq!(answers.len(), items, "as many answers as items");
    answers.into_iter().map(|answer| answer.unwrap_or_else(|e| panic!("{:?}: {e}", e.kind))).collect()
}

pub(super) fn one<T: fmt::Debug>(answers: Vec<Answer<T>>) -> Stamped<T> {
    all(answers, 1).remove(0)
}

/// Looks until there is something to see.
pub(super) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            pause(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(GIVE_UP, looking).await.unwrap_or_else(|_| panic!("waited in vain until {what}"))
}

#[expect(clippy::disallowed_methods, reason = "a check waits for a store that has a clock of its own")]
pub(super) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

/// Runs tasks at the same time, on as many threads as the runtime has.
#[expect(clippy::disallowed_methods, reason = "contention needs threads")]
pub(super) async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    tasks: impl IntoIterator<Item = F>,
) -> Vec<T> {
    let running: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    let mut results = Vec::new();
    for task in running {
        results.push(task.await.unwrap());
    }
    results
}
