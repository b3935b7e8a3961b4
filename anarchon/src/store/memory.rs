//! The protocol under a mutex: the reference for every other store, and the one for unit tests.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use async_trait::async_trait;

use super::{ANNOUNCEMENT_AGE, Answer, Durability, Guarantees, Snapshot, Stamped, Store, StoreError};
use crate::{
    clock::{Clock, SystemClock},
    protocol::{
        self, Announcement, Claim, Control, Controlled, Decision, Fingerprint, Finish, Finished, InstanceId,
        JobName, JobSpec, LeaseEnd, Members, Namespace, Record, Registered, Renewal, Renewed, Run, StoreNow,
        Verdict, Write,
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
    members: BTreeMap<InstanceId, Member>,
}

#[derive(Debug)]
struct Kept {
    record: Record,
    /// By slot: the count of closed runs, modulo [`HISTORY`].
    history: BTreeMap<u64, Run>,
}

#[derive(Debug)]
struct Member {
    beat_at: StoreNow,
    schedules: Vec<(JobName, Fingerprint)>,
    zones: String,
}

impl MemoryBackend {
    /// An empty store on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty store on another clock, such as a test's.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, spaces: Arc::default(), namespace: OnceLock::new() }
    }

    /// Runs `work` on the namespace's data; all of it at one instant of the clock.
    fn with<T>(&self, work: impl FnOnce(&mut Space, StoreNow) -> T) -> Result<T, StoreError> {
        let namespace =
            self.namespace.get().ok_or_else(|| StoreError::unavailable("the store is not open yet"))?;
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
                let decision = decide(space.jobs.get(job(item)).map(|kept| &kept.record), item, now);
                space.write(job(item), decision.write);
                Ok(Stamped { value: decision.answer, now })
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
    fn write(&mut self, job: &JobName, write: Option<Write>) {
        match write {
            None => {}
            Some(Write::Delete) => {
                self.jobs.remove(job);
            }
            Some(Write::Put { record, closed }) => {
                let runs = record.runs;
                let kept = self
                    .jobs
                    .entry(job.clone())
                    .and_modify(|kept| kept.record = (*record).clone())
                    .or_insert_with(|| Kept { record: *record, history: BTreeMap::new() });
                if let Some(run) = closed {
                    kept.history.insert(runs.wrapping_sub(1) % u64::from(HISTORY), run);
                }
            }
        }
    }

    fn snapshot(&self, job: &JobName, history: u8) -> Option<Snapshot> {
        let kept = self.jobs.get(job)?;
        let newest = (1..=u64::from(history.min(HISTORY))).map_while(|age| kept.record.runs.checked_sub(age));
        let history =
            newest.filter_map(|run| kept.history.get(&(run % u64::from(HISTORY))).cloned()).collect();
        Some(Snapshot { record: kept.record.clone(), history })
    }

    fn beat(&mut self, announcement: &Announcement, now: StoreNow) -> Members {
        let age_limit = i64::try_from(ANNOUNCEMENT_AGE.as_micros()).unwrap_or(i64::MAX);
        self.members.retain(|_, member| now.0.saturating_sub(member.beat_at.0) <= age_limit);
        match announcement {
            Announcement::Withdrawn { instance } => {
                let known = self.members.remove(instance).is_some();
                self.members(known, instance, &[])
            }
            Announcement::Present { instance, schedules, zones, contested } => {
                let member = Member { beat_at: now, schedules: schedules.clone(), zones: zones.clone() };
                let known = self.members.insert(instance.clone(), member).is_some();
                self.members(known, instance, contested)
            }
        }
    }

    fn members(&self, known: bool, caller: &InstanceId, contested: &[(JobName, Fingerprint)]) -> Members {
        let others: BTreeSet<_> = self
            .members
            .iter()
            .filter(|(instance, _)| *instance != caller)
            .flat_map(|(_, member)| &member.schedules)
            .collect();
        let zones: BTreeSet<_> = self.members.values().map(|member| member.zones.clone()).collect();
        Members {
            known,
            instances: self.members.keys().cloned().collect(),
            announced: contested.iter().filter(|schedule| others.contains(schedule)).cloned().collect(),
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
