//! The protocol under a mutex: the reference for every other store, and the one for unit tests.

mod history;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use async_trait::async_trait;

use self::history::{History, Holders};
use super::{
    ANNOUNCEMENT_AGE, Answer, Durability, Guarantees, Snapshot, Stamped, Store, StoreError, connect::masked,
    not_open,
};
use crate::{
    clock::{Clock, SystemClock},
    error::{Error, ErrorKind},
    protocol::{
        self, Announcement, Claim, Contested, Control, Controlled, Decision, Fingerprint, Finish, Finished,
        InstanceId, JobName, JobSpec, LeaseEnd, Members, Namespace, Record, Registered, Renewal, Renewed,
        StoreNow, Verdict, Waiting, Write,
    },
};

/// How many runs of a job are kept.
const HISTORY: u8 = 20;

/// A store inside the process, for tests and trials. Clones share their data.
///
/// # Guarantees
/// All rules of the protocol, among the schedulers of one process; its clock is the process's wall clock. Everything is
/// gone when the last clone is.
///
/// ```
/// use anarchon::{MemoryBackend, Scheduler};
///
/// // Two instances that share their jobs, as two processes on a server would.
/// let store = MemoryBackend::new();
/// let one = Scheduler::new(store.clone());
/// let two = Scheduler::new(store);
/// ```
#[derive(Debug)]
pub struct MemoryBackend {
    clock: Arc<dyn Clock>,
    spaces: Arc<Mutex<HashMap<Namespace, Space>>>,
    /// Set by `open`, for this clone alone.
    namespace: OnceLock<Namespace>,
}

/// What is kept for one namespace.
#[derive(Debug, Default)]
struct Space {
    jobs: HashMap<JobName, Kept>,
    holders: Holders,
    members: BTreeMap<InstanceId, Member>,
}

#[derive(Debug)]
struct Kept {
    record: Box<Record>,
    history: History<HISTORY>,
}

#[derive(Debug)]
struct Member {
    beat_at: StoreNow,
    schedules: Vec<(JobName, Fingerprint)>,
    waiting: Vec<Waiting>,
    zones: String,
}

impl MemoryBackend {
    /// An empty store on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty store, as the URL `memory:` names it; each call makes one of its own. Share it by its clones.
    ///
    /// # Errors
    /// When the URL is another.
    ///
    /// ```
    /// use anarchon::MemoryBackend;
    ///
    /// let store = MemoryBackend::connect("memory:")?;
    /// assert!(MemoryBackend::connect("memory:jobs").is_err());
    /// # Ok::<(), anarchon::Error>(())
    /// ```
    pub fn connect(url: &str) -> crate::Result<Self> {
        match url.strip_prefix("memory:") {
            Some("" | "//") => Ok(Self::new()),
            Some(_) | None => Err(Error::new(
                ErrorKind::Configuration,
                format!(
                    "store {:?} is not the memory store; write \"memory:\" and nothing behind it",
                    masked(url)
                ),
            )),
        }
    }

    /// An empty store on another clock, such as a test's.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, spaces: Arc::default(), namespace: OnceLock::new() }
    }

    /// Runs `work` on the namespace's data; all of it at one instant of the clock.
    fn with<T>(&self, work: impl FnOnce(&mut Space, StoreNow) -> T) -> Result<T, StoreError> {
        let namespace = self.namespace.get().ok_or_else(|| not_open(self))?;
        // No decision panics half-way through a write, so that a poisoned mutex still guards whole data.
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        let now = StoreNow(self.clock.wall_micros());
        Ok(work(spaces.entry(namespace.clone()).or_default(), now))
    }

    /// Decides every item of a batch and writes what it says.
    fn batch<I, T>(
        &self,
        items: &[I],
        job: impl Fn(&I) -> &JobName,
        decide: impl Fn(Option<&Record>, &I, StoreNow) -> Decision<T>,
    ) -> Vec<Answer<T>> {
        let decided = self.with(|space, now| {
            let decide = |item| {
                let value = space.decide(job(item), |record| decide(record, item, now));
                Ok(Stamped { value, now })
            };
            items.iter().map(decide).collect()
        });
        decided.unwrap_or_else(|error| items.iter().map(|_| Err(error.clone())).collect())
    }
}

impl Clone for MemoryBackend {
    /// Another handle on the same data, not yet open.
    fn clone(&self) -> Self {
        Self { clock: Arc::clone(&self.clock), spaces: Arc::clone(&self.spaces), namespace: OnceLock::new() }
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl Space {
    /// Decides on the record of a job and writes what that says.
    fn decide<T>(&mut self, job: &JobName, decide: impl FnOnce(Option<&Record>) -> Decision<T>) -> T {
        let kept = self.jobs.get_mut(job);
        let Decision { answer, write } = decide(kept.as_ref().map(|kept| &*kept.record));
        match (write, kept) {
            (None, _) => {}
            (Some(Write::Delete), _) => {
                self.jobs.remove(job);
            }
            (Some(Write::Put { record, closed }), Some(kept)) => {
                if let Some(run) = closed {
                    kept.history.add(run, record.runs, &mut self.holders);
                }
                kept.record = record;
            }
            (Some(Write::Put { record, closed: _ }), None) => {
                // There was no run to close.
                self.jobs.insert(job.clone(), Kept { record, history: History::default() });
            }
        }
        answer
    }

    fn snapshot(&self, job: &JobName, history: u8) -> Option<Snapshot> {
        let Kept { record, history: kept } = self.jobs.get(job)?;
        Some(Snapshot {
            record: (**record).clone(),
            history: kept.newest(record.runs, history, &self.holders),
        })
    }

    fn beat(&mut self, announcement: &Announcement, now: StoreNow) -> Members {
        let age_limit = i64::try_from(ANNOUNCEMENT_AGE.as_micros()).unwrap_or(i64::MAX);
        // A beat from the future is one from before the clock was set back: a live instance repeats it soon.
        self.members.retain(|_, member| now.0.saturating_sub(member.beat_at.0).saturating_abs() <= age_limit);
        match announcement {
            Announcement::Withdrawn { instance } => {
                let known = self.members.remove(instance).is_some();
                self.members(known, instance, &[])
            }
            Announcement::Present { instance, schedules, zones, contested } => {
                let waiting = contested.iter().map(|one| one.own.clone()).collect();
                let member =
                    Member { beat_at: now, schedules: schedules.clone(), waiting, zones: zones.clone() };
                let known = self.members.insert(instance.clone(), member).is_some();
                self.members(known, instance, contested)
            }
        }
    }

    fn members(&self, known: bool, caller: &InstanceId, contested: &[Contested]) -> Members {
        let others = || self.members.iter().filter(|(id, _)| *id != caller).map(|(_, member)| member);
        let schedules: BTreeSet<_> = others().flat_map(|member| &member.schedules).collect();
        let in_force = contested.iter().map(|one| (one.own.job.clone(), one.in_force));
        let waiting = others().flat_map(|member| &member.waiting).filter(|_| !contested.is_empty());
        let zones: BTreeSet<_> = self.members.values().map(|member| member.zones.clone()).collect();
        Members {
            known,
            instances: self.members.keys().cloned().collect(),
            announced: in_force.filter(|schedule| schedules.contains(schedule)).collect(),
            waiting: protocol::earliest(waiting.cloned()),
            zones: zones.into_iter().collect(),
        }
    }
}

#[async_trait]
impl Store for MemoryBackend {
    async fn open(&self, namespace: &Namespace) -> Result<Guarantees, StoreError> {
        if self.namespace.get_or_init(|| namespace.clone()) != namespace {
            let message =
                "this clone of the memory store is open for another namespace; hand in a clone of its own";
            return Err(StoreError::misconfigured(message));
        }
        Ok(Guarantees {
            durability: Durability::Unsafe("it ends with the process".to_owned()),
            history: HISTORY,
            ..Guarantees::new("memory")
        })
    }

    async fn register(&self, specs: &[JobSpec]) -> Vec<Answer<Registered>> {
        self.batch(specs, |spec| &spec.job, protocol::register)
    }

    async fn claim(&self, claims: &[Claim]) -> Vec<Answer<Verdict>> {
        let decide = |record: Option<&Record>, claim: &Claim, now| {
            protocol::claim(record, claim, now, LeaseEnd::ByClock)
        };
        self.batch(claims, |claim| &claim.job, decide)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Vec<Answer<Renewed>> {
        self.batch(renewals, |renewal| &renewal.job, protocol::renew)
    }

    async fn finish(&self, finishes: &[Finish]) -> Vec<Answer<Finished>> {
        self.batch(finishes, |finish| &finish.job, protocol::finish)
    }

    async fn inspect(&self, jobs: &[JobName], history: u8) -> Vec<Answer<Option<Snapshot>>> {
        let read = self.with(|space, now| {
            jobs.iter().map(|job| Ok(Stamped { value: space.snapshot(job, history), now })).collect()
        });
        read.unwrap_or_else(|error| jobs.iter().map(|_| Err(error.clone())).collect())
    }

    async fn control(&self, controls: &[Control]) -> Vec<Answer<Controlled>> {
        self.batch(controls, |control| &control.job, protocol::control)
    }

    async fn beat(&self, announcement: &Announcement) -> Answer<Members> {
        self.with(|space, now| Stamped { value: space.beat(announcement, now), now })
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        clock::ManualClock,
        protocol::{Outcome, RunOutcome, What},
        store::StoreErrorKind,
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn job() -> JobName {
        JobName::new("job").unwrap()
    }

    fn instance(name: &str) -> InstanceId {
        InstanceId::new(name).unwrap()
    }

    fn spec() -> JobSpec {
        JobSpec { job: job(), schedule: Fingerprint(7), by: instance("a"), replace: None, next: None }
    }

    fn clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::new("2027-01-01T00:00:00Z".parse().unwrap()))
    }

    async fn open(store: &MemoryBackend, namespace: &str) {
        store.open(&Namespace::new(namespace).unwrap()).await.unwrap();
    }

    async fn register(store: &MemoryBackend) -> Registered {
        store.register(&[spec()]).await.remove(0).unwrap().value
    }

    fn present(name: &str, contested: &[Contested]) -> Announcement {
        Announcement::Present {
            instance: instance(name),
            schedules: vec![(job(), Fingerprint(7))],
            zones: "2026a".to_owned(),
            contested: contested.to_vec(),
        }
    }

    fn waits_for_the_end_of(in_force: Fingerprint) -> Contested {
        let own = Waiting { job: job(), schedule: Fingerprint(8), since: protocol::Millis(1) };
        Contested { in_force, own }
    }

    #[tokio::test]
    async fn clones_share_the_records_of_a_namespace_and_nothing_else() {
        let one = MemoryBackend::new();
        let (same, other) = (one.clone(), one.clone());
        open(&one, "orders").await;
        open(&same, "orders").await;
        open(&other, "billing").await;
        assert!(matches!(register(&one).await, Registered::Created(_)));
        assert!(matches!(register(&same).await, Registered::InForce(_)));
        assert!(matches!(register(&other).await, Registered::Created(_)));
        let apart = MemoryBackend::new();
        open(&apart, "orders").await;
        assert!(matches!(register(&apart).await, Registered::Created(_)));
    }

    #[tokio::test]
    async fn a_handle_serves_one_namespace_and_says_so() {
        let store = MemoryBackend::new();
        open(&store, "orders").await;
        open(&store, "orders").await;
        let refused = store.open(&Namespace::new("billing").unwrap()).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Misconfigured);
    }

    #[tokio::test]
    async fn a_handle_that_is_not_open_answers_every_item() {
        let store = MemoryBackend::new();
        let answers = store.inspect(&[job(), job()], 0).await;
        let kinds: Vec<_> = answers.into_iter().map(|answer| answer.unwrap_err().kind).collect();
        assert_eq!(kinds, [StoreErrorKind::Misconfigured; 2]);
        assert!(store.register(&[spec()]).await[0].is_err());
        assert!(store.beat(&present("a", &[])).await.is_err());
    }

    #[tokio::test]
    async fn the_newest_twenty_runs_are_kept_newest_first() {
        let clock = clock();
        let store = MemoryBackend::with_clock(clock.clone());
        open(&store, "test").await;
        register(&store).await;
        let mut tokens = Vec::new();
        for seq in 1..=50 {
            clock.advance(SECOND);
            let claim = Claim {
                job: job(),
                what: What::Planned(StoreNow(clock.wall_micros()).millis()),
                lease: 30 * SECOND,
                window: SECOND,
                max_attempts: 3,
                schedule: Fingerprint(7),
                holder: instance("a"),
                nonce: protocol::Nonce { instance: 1, seq },
                next: None,
                expires: protocol::Millis::MAX,
            };
            let verdict = store.claim(&[claim]).await.remove(0).unwrap().value;
            let Verdict::Awarded(award) = verdict else { panic!("{verdict:?}") };
            let finish =
                Finish { job: job(), token: award.token, outcome: Outcome::Succeeded, message: None };
            store.finish(&[finish]).await.remove(0).unwrap();
            tokens.insert(0, award.token);
        }
        for asked in [0, 1, 19, 20, 255] {
            let snapshot = store.inspect(&[job()], asked).await.remove(0).unwrap().value.unwrap();
            let got: Vec<_> = snapshot.history.iter().map(|run| run.token).collect();
            assert_eq!(got, tokens[..usize::from(asked.min(HISTORY))], "asked for {asked}");
            assert!(snapshot.history.iter().all(|run| run.outcome == RunOutcome::Succeeded));
        }
    }

    #[tokio::test]
    async fn an_announcement_counts_for_its_age_limit_and_no_longer() {
        let clock = clock();
        let store = MemoryBackend::with_clock(clock.clone());
        open(&store, "test").await;
        let contested = [waits_for_the_end_of(Fingerprint(7))];
        assert!(!store.beat(&present("a", &[])).await.unwrap().value.known);
        clock.advance(ANNOUNCEMENT_AGE);
        let members = store.beat(&present("b", &contested)).await.unwrap().value;
        assert_eq!(members.instances, [instance("a"), instance("b")]);
        assert_eq!(members.announced, [(job(), Fingerprint(7))], "another instance still announces it");
        clock.advance(Duration::from_micros(1));
        let members = store.beat(&present("b", &contested)).await.unwrap().value;
        assert_eq!(
            (members.known, &members.instances[..], &members.announced[..]),
            (true, &[instance("b")][..], &[][..]),
            "the caller's own does not count as announced"
        );
        assert!(!store.beat(&present("a", &[])).await.unwrap().value.known, "it was gone for a moment");
    }

    #[tokio::test]
    async fn an_announcement_from_before_the_clock_was_set_back_does_not_count_for_long() {
        let clock = clock();
        let store = MemoryBackend::with_clock(clock.clone());
        open(&store, "test").await;
        let contested = [waits_for_the_end_of(Fingerprint(7))];
        store.beat(&present("dead", &[])).await.unwrap();
        clock.set_wall(clock.now() - chrono::TimeDelta::hours(1));
        let members = store.beat(&present("b", &contested)).await.unwrap().value;
        assert_eq!((&members.instances[..], &members.announced[..]), (&[instance("b")][..], &[][..]));
    }

    #[tokio::test]
    async fn a_panic_under_the_lock_ends_nothing() {
        #[derive(Debug)]
        struct Broken(ManualClock, std::sync::atomic::AtomicBool);
        impl Clock for Broken {
            fn wall_micros(&self) -> i64 {
                assert!(!self.1.load(std::sync::atomic::Ordering::SeqCst), "the clock is broken");
                self.0.wall_micros()
            }
            fn mono(&self) -> crate::clock::Mono {
                self.0.mono()
            }
        }
        let start = "2027-01-01T00:00:00Z".parse().unwrap();
        let clock = Arc::new(Broken(ManualClock::new(start), true.into()));
        let store = MemoryBackend::with_clock(clock.clone());
        open(&store, "test").await;
        let caller = store.clone();
        open(&caller, "test").await;
        std::thread::spawn(move || caller.with(|_, _| ())).join().unwrap_err();
        clock.1.store(false, std::sync::atomic::Ordering::SeqCst);
        assert!(matches!(register(&store).await, Registered::Created(_)));
    }
}
