//! The embedded store: one SQLite file for all processes of one host.

mod database;
mod fault;
mod rows;
mod volume;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use sqlx::{Connection as _, Row as _, Sqlite, SqliteConnection, SqlitePool, Transaction};

use self::{
    database::{Database, Missing, Target, put_anchor},
    fault::{Failure, Phase},
};
use super::{
    ANNOUNCEMENT_AGE, Answer, Durability, Guarantees, Snapshot, Stamped, Store, StoreError, announced,
    columns::Damage, host_clock::Judgement, not_open,
};
use crate::{
    clock::{Clock, SystemClock},
    error::{Error, ErrorKind},
    protocol::{
        self, Announcement, Claim, Contested, Control, ControlAction, Controlled, Decision, Fingerprint,
        Finish, Finished, InstanceId, JobName, JobSpec, LeaseEnd, Members, Millis, Namespace, Record,
        Registered, Renewal, Renewed, Run, StoreNow, Verdict, Waiting, Write,
    },
};

/// How many runs of a job are kept.
const HISTORY: u8 = 20;
/// After how long without a beat an announcement is deleted: far longer than it counts, so that nothing depends on it.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// Keeps the records in a file, for all processes of one host.
///
/// ```
/// use anarchon::SqliteBackend;
///
/// let store = SqliteBackend::connect("sqlite:anarchon.db")?;
/// # Ok::<(), anarchon::Error>(())
/// ```
///
/// A clone is another handle to the same database, with the same connections. The file may hold tables of the application
/// too (ours begin with `anarchon_`), but a file of its own keeps the application's long transactions out of the way;
/// either way it is switched to write-ahead logging.
///
/// # Guarantees
///
/// - **One host only.** All instances must reach the same file on a local disk; containers must share one local volume.
///   Network file systems, the shared folders of virtual machines and FUSE are refused at start, since their locks do not hold
///   between hosts, and two instances would win the same run.
/// - **A crash loses nothing.** Every answer that changed something was flushed to disk first (`synchronous = FULL`), so it
///   survives `kill -9`, and a power cut as far as the disk does not lie about flushing. A file in memory lives as long as
///   the backend and its clones.
/// - **One clock.** The store's time is the host's monotonic clock plus a distance to the wall clock that the processes
///   agreed on and keep in the file. One process with a wrong wall clock uses the others' time and is warned. When the
///   clock of the whole host is set by more than 1 s, the store follows after 45 s, and at once after a reboot; a smaller
///   difference is followed gradually. The only process alive is believed after 45 s.
/// - **Constant size.** One row a job and its 20 newest runs.
/// - A transaction of somebody else that lasts longer than 5 s makes calls fail as unavailable.
pub struct SqliteBackend {
    database: Arc<Database>,
    namespace: RwLock<Option<Namespace>>,
}

impl SqliteBackend {
    /// The database that a URL names: `sqlite:path`, `sqlite://path` or `sqlite::memory:`.
    ///
    /// Only looks at the URL; the file is opened, and created where it is missing, by [`Store::open`].
    ///
    /// # Errors
    /// When the URL is none of these.
    pub fn connect(url: &str) -> crate::Result<Self> {
        let target = Target::parse(url).map_err(wrong)?;
        Ok(Self::new(Database::new(target, Arc::new(SystemClock))))
    }

    /// The database of a pool of the application.
    ///
    /// The pool is only read for its settings: the store opens connections of its own.
    ///
    /// # Errors
    /// When the pool is for reading only.
    pub fn from_pool(pool: &SqlitePool) -> crate::Result<Self> {
        let target = Target::new((*pool.connect_options()).clone()).map_err(|why| {
            wrong(format_args!(
                "this pool of SQLite connections cannot be used: {why}; hand in one that may write"
            ))
        })?;
        Ok(Self::new(Database::new(target, Arc::new(SystemClock))))
    }

    /// Reads the time from this clock instead of the machine's; for tests. Call it before the first use.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self::new(self.database.with_clock(clock))
    }

    fn new(database: Database) -> Self {
        Self { database: Arc::new(database), namespace: RwLock::new(None) }
    }

    fn namespace(&self) -> Result<Namespace, StoreError> {
        let kept = self.namespace.read().unwrap_or_else(PoisonError::into_inner);
        kept.clone().ok_or_else(|| not_open(self))
    }

    /// Answers a batch by a rule of the protocol.
    async fn decide<I: Sync, T: Send>(&self, batch: &[I], rule: Rule<I, T>, first: First) -> Vec<Answer<T>> {
        let mut answers: Vec<Option<Answer<T>>> = std::iter::repeat_with(|| None).take(batch.len()).collect();
        if let Err(error) = self.fill(batch, rule, first, &mut answers).await {
            for answer in &mut answers {
                answer.get_or_insert_with(|| Err(error.clone()));
            }
        }
        let left_out = || Err(StoreError::unavailable("the store gave no answer; this is a bug of anarchon"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(left_out)).collect()
    }

    /// Answers what it can; an error is for all items that have no answer yet.
    async fn fill<I: Sync, T: Send>(
        &self,
        batch: &[I],
        rule: Rule<I, T>,
        first: First,
        answers: &mut [Option<Answer<T>>],
    ) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let namespace = self.namespace()?;
        if first == First::Look {
            self.look(&namespace, batch, rule, answers).await?;
        }
        let open: Vec<usize> = (0..batch.len()).filter(|i| answers[*i].is_none()).collect();
        if open.is_empty() { Ok(()) } else { self.write(&namespace, batch, rule, &open, answers).await }
    }

    /// Answers the items that change nothing, from a snapshot, without any lock.
    async fn look<I: Sync, T: Send>(
        &self,
        namespace: &Namespace,
        batch: &[I],
        rule: Rule<I, T>,
        answers: &mut [Option<Answer<T>>],
    ) -> Result<(), StoreError> {
        let mut link = self.database.reader().await;
        let found = async {
            let connection = self.database.connection(&mut link, Missing::Refuse).await?;
            let read = read_records(connection, namespace, batch.iter().map(rule.job)).await?;
            Ok(self.understand(&read, namespace, batch.iter().map(rule.job))?)
        };
        let found = found.await;
        let (judgement, found) = found.map_err(|failure| self.database.failed(&mut link, failure))?;
        drop(link);
        if judgement.stance.must_be_kept() {
            return Ok(());
        }
        let mut would_write = HashSet::new();
        for (item, answer) in batch.iter().zip(answers) {
            let job = (rule.job)(item);
            if would_write.contains(job) {
                continue;
            }
            match self.apply(rule, found.get(job), item, judgement.now) {
                Ok(Decision { answer: value, write: None }) => {
                    *answer = Some(Ok(Stamped { value, now: judgement.now }));
                }
                // A later item for the same job has to see what this one writes.
                Ok(Decision { write: Some(_), .. }) => _ = would_write.insert(job),
                Err(error) => *answer = Some(Err(error)),
            }
        }
        Ok(())
    }

    /// Answers the open items and makes the answers so, in one transaction.
    async fn write<I: Sync, T: Send>(
        &self,
        namespace: &Namespace,
        batch: &[I],
        rule: Rule<I, T>,
        open: &[usize],
        answers: &mut [Option<Answer<T>>],
    ) -> Result<(), StoreError> {
        let items: Vec<&I> = open.iter().map(|i| &batch[*i]).collect();
        let mut link = self.database.writer().await;
        let decided = async {
            let connection = self.database.connection(&mut link, Missing::Refuse).await?;
            self.write_on(connection, namespace, &items, rule).await
        };
        let decided = decided.await;
        let decided = decided.map_err(|failure| self.database.failed(&mut link, failure))?;
        for (i, answer) in open.iter().zip(decided) {
            answers[*i] = Some(answer);
        }
        Ok(())
    }

    /// Dropped before the commit, by a deadline or an error, a transaction of sqlx rolls itself back.
    async fn write_on<I: Sync, T: Send>(
        &self,
        connection: &mut SqliteConnection,
        namespace: &Namespace,
        items: &[&I],
        rule: Rule<I, T>,
    ) -> Result<Vec<Answer<T>>, Failure> {
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
        let jobs = || items.iter().map(|item| (rule.job)(item));
        let read = read_records(&mut tx, namespace, jobs()).await?;
        let (judgement, mut found) = self.understand(&read, namespace, jobs())?;
        let now = judgement.now;
        let mut changes = Changes::default();
        let mut decided = Vec::with_capacity(items.len());
        for item in items {
            let job = (rule.job)(item);
            decided.push(self.apply(rule, found.get(job), item, now).map(|decision| {
                if let Some(write) = decision.write {
                    found.insert(job.clone(), changes.add(job, write));
                }
                Stamped { value: decision.answer, now }
            }));
        }
        if changes.is_empty() && !judgement.stance.must_be_kept() {
            tx.rollback().await?;
            return Ok(decided);
        }
        changes.write(&mut tx, namespace).await?;
        self.commit(tx, &judgement).await?;
        Ok(decided)
    }

    async fn commit(&self, mut tx: Transaction<'_, Sqlite>, judgement: &Judgement) -> Result<(), Failure> {
        if let Some(anchor) = &judgement.anchor {
            put_anchor(&mut tx, anchor).await?;
        }
        tx.commit().await.map_err(|e| Failure::Sql(e, Phase::Commit))?;
        self.database.report(judgement.stance);
        Ok(())
    }

    /// The store's time and the records, from the rows of `read_jobs.sql`.
    fn understand<'a>(
        &self,
        rows: &[sqlx::sqlite::SqliteRow],
        namespace: &Namespace,
        jobs: impl Iterator<Item = &'a JobName>,
    ) -> Result<(Judgement, HashMap<JobName, Found>), StoreError> {
        let Some(first) = rows.first() else {
            return Err(self.database.damaged("its table anarchon_meta is empty"));
        };
        let damaged = |damage: Damage| self.database.damaged(&damage);
        let version = rows::number(first, 0).map_err(damaged)?;
        let judgement = self.database.judge(version, rows::anchor(first, 1).ok().as_ref())?;
        let jobs: Vec<&JobName> = jobs.collect();
        let mut found = HashMap::with_capacity(rows.len());
        for row in rows {
            let place = rows::number(row, 4).map_err(damaged)?;
            let job = usize::try_from(place).ok().and_then(|i| jobs.get(i).copied());
            let job =
                job.ok_or_else(|| damaged(format!("it answers for an item {place} that was not asked for")))?;
            let record = rows::record(row, 5).map_err(|damage| self.foreign(namespace, job, &damage));
            found.insert(job.clone(), record);
        }
        Ok((judgement, found))
    }

    fn apply<I, T>(
        &self,
        rule: Rule<I, T>,
        found: Option<&Found>,
        item: &I,
        now: StoreNow,
    ) -> Result<Decision<T>, StoreError> {
        match found {
            None | Some(Ok(None)) => Ok((rule.decide)(None, item, now)),
            Some(Ok(Some(record))) => Ok((rule.decide)(Some(record), item, now)),
            Some(Err(error)) => (rule.mend)(item).ok_or_else(|| error.clone()),
        }
    }

    fn foreign(&self, namespace: &Namespace, job: &JobName, damage: &str) -> StoreError {
        let target = &self.database.target;
        super::damage::unreadable(
            format_args!(
                "the record of job \"{job}\" in namespace \"{namespace}\" of the SQLite database \"{target}\""
            ),
            damage,
        )
    }

    async fn histories(
        &self,
        connection: &mut SqliteConnection,
        namespace: &Namespace,
        jobs: &[JobName],
        most: u8,
    ) -> Result<HashMap<usize, Vec<Run>>, sqlx::Error> {
        let names = rows::json_array(jobs.iter().map(JobName::as_str));
        let found = sqlx::query(include_str!("read_runs.sql"))
            .bind(namespace.as_str())
            .bind(names)
            .fetch_all(connection)
            .await?;
        let mut histories: HashMap<usize, Vec<Run>> = HashMap::new();
        for row in &found {
            let Some(place) = rows::number(row, 0).ok().and_then(|n| usize::try_from(n).ok()) else {
                continue;
            };
            let history = histories.entry(place).or_default();
            match rows::run(row, 1) {
                Ok((_, run)) if history.len() < usize::from(most) => history.push(run),
                Ok(_) => {}
                // A lost line of history is no reason to withhold the record.
                Err(damage) => {
                    let job = jobs.get(place).map_or("?", JobName::as_str);
                    tracing::warn!(store = %self.database.target, job, damage, "skipped a damaged run in the history");
                }
            }
        }
        Ok(histories)
    }

    async fn read(&self, jobs: &[JobName], history: u8) -> Result<Vec<Answer<Option<Snapshot>>>, StoreError> {
        let namespace = self.namespace()?;
        let mut link = self.database.reader().await;
        let read = async {
            let connection = self.database.connection(&mut link, Missing::Refuse).await?;
            // One snapshot for the records and their histories.
            let mut tx = connection.begin_with("BEGIN DEFERRED").await?;
            let records = read_records(&mut tx, &namespace, jobs.iter()).await?;
            let histories = match history {
                0 => HashMap::new(),
                most => self.histories(&mut tx, &namespace, jobs, most).await?,
            };
            tx.rollback().await?;
            let (judgement, found) = self.understand(&records, &namespace, jobs.iter())?;
            Ok((judgement.now, found, histories))
        };
        let read = read.await;
        let (now, found, mut histories) = read.map_err(|failure| self.database.failed(&mut link, failure))?;
        let snapshot = |(i, job): (usize, &JobName)| {
            let record = found.get(job).cloned().unwrap_or(Ok(None))?;
            let history = histories.remove(&i).unwrap_or_default();
            Ok(Stamped { value: record.map(|record| Snapshot { record, history }), now })
        };
        Ok(jobs.iter().enumerate().map(snapshot).collect())
    }

    async fn announce(&self, announcement: &Announcement) -> Answer<Members> {
        let namespace = self.namespace()?;
        let mut link = self.database.writer().await;
        let done = async {
            let connection = self.database.connection(&mut link, Missing::Refuse).await?;
            let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
            let judgement = self.database.read_clock(&mut tx).await?;
            let members = beat(&mut tx, &namespace, announcement, judgement.now.millis()).await?;
            self.commit(tx, &judgement).await?;
            Ok(Stamped { value: members, now: judgement.now })
        };
        let done = done.await;
        done.map_err(|failure| self.database.failed(&mut link, failure))
    }
}

fn wrong(message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Configuration, message.to_string())
}

/// A record, none, or why it cannot be read.
type Found = Result<Option<Record>, StoreError>;

/// A rule of the protocol, as this store applies it.
struct Rule<I, T> {
    job: fn(&I) -> &JobName,
    decide: fn(Option<&Record>, &I, StoreNow) -> Decision<T>,
    /// What can be done to a record that cannot be read.
    mend: fn(&I) -> Option<Decision<T>>,
}

impl<I, T> Copy for Rule<I, T> {}
impl<I, T> Clone for Rule<I, T> {
    fn clone(&self) -> Self {
        *self
    }
}

/// Whether a batch is worth a look before the write lock is asked for: when most of its items change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Look,
    Write,
}

/// What one transaction writes.
#[derive(Debug, Default)]
struct Changes {
    forgotten: Vec<JobName>,
    records: BTreeMap<JobName, Record>,
    runs: Vec<(JobName, u64, Run)>,
}

impl Changes {
    /// Takes a write, and says what the job's record is from then on.
    fn add(&mut self, job: &JobName, write: Write) -> Found {
        match write {
            Write::Put { record, closed } => {
                self.runs.extend(closed.map(|run| (job.clone(), record.runs, run)));
                self.records.insert(job.clone(), (*record).clone());
                Ok(Some(*record))
            }
            Write::Delete => {
                self.records.remove(job);
                self.runs.retain(|(of, _, _)| of != job);
                self.forgotten.push(job.clone());
                Ok(None)
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.forgotten.is_empty() && self.records.is_empty()
    }

    async fn write(
        &self,
        connection: &mut SqliteConnection,
        namespace: &Namespace,
    ) -> Result<(), sqlx::Error> {
        for job in &self.forgotten {
            for statement in [include_str!("forget_job.sql"), include_str!("forget_runs.sql")] {
                sqlx::query(statement)
                    .bind(namespace.as_str())
                    .bind(job.as_str())
                    .execute(&mut *connection)
                    .await?;
            }
        }
        let records: Vec<_> = self.records.iter().collect();
        rows::put_records(connection, namespace.as_str(), &records).await?;
        rows::put_runs(connection, namespace.as_str(), &self.runs).await
    }
}

async fn read_records<'a>(
    connection: &mut SqliteConnection,
    namespace: &Namespace,
    jobs: impl Iterator<Item = &'a JobName>,
) -> Result<Vec<sqlx::sqlite::SqliteRow>, sqlx::Error> {
    let names = rows::json_array(jobs.map(JobName::as_str));
    sqlx::query(include_str!("read_jobs.sql"))
        .bind(namespace.as_str())
        .bind(names)
        .fetch_all(connection)
        .await
}

/// Keeps or deletes the announcement, drops long dead ones, and says who is there.
async fn beat(
    connection: &mut SqliteConnection,
    namespace: &Namespace,
    announcement: &Announcement,
    now: Millis,
) -> Result<Members, sqlx::Error> {
    let (me, present) = match announcement {
        Announcement::Present { instance, .. } => (instance, true),
        Announcement::Withdrawn { instance } => (instance, false),
    };
    // A beat from the future is one from before the clock was set back: a live instance repeats it soon.
    let counts = (now.minus(ANNOUNCEMENT_AGE), now.plus(ANNOUNCEMENT_AGE));
    let mut members = Members::default();
    for row in sqlx::query(include_str!("read_instances.sql"))
        .bind(namespace.as_str())
        .fetch_all(&mut *connection)
        .await?
    {
        let Ok(instance) = InstanceId::new(row.try_get(0)?) else { continue };
        let seen = Millis(row.try_get(1)?);
        if seen < counts.0 || seen > counts.1 {
            continue;
        }
        members.known |= instance == *me;
        if instance != *me {
            members.zones.push(row.try_get(2)?);
            members.instances.push(instance);
        }
    }
    let kept = (now.minus(FORGOTTEN), now.plus(FORGOTTEN));
    sqlx::query(include_str!("prune_instances.sql"))
        .bind(namespace.as_str())
        .bind(if present { "" } else { me.as_str() })
        .bind(kept.0.0)
        .bind(kept.1.0)
        .execute(&mut *connection)
        .await?;
    if let Announcement::Present { schedules, zones, contested, .. } = announcement {
        sqlx::query(include_str!("put_instance.sql"))
            .bind(now.0)
            .bind(namespace.as_str())
            .bind(me.as_str())
            .bind(zones.as_str())
            .bind(announced::text(schedules, contested))
            .execute(&mut *connection)
            .await?;
        members.instances.push(me.clone());
        members.zones.push(zones.clone());
        if !contested.is_empty() {
            members.announced = announced(connection, namespace, me, contested, counts).await?;
            members.waiting = waiting(connection, namespace, me, counts).await?;
        }
    }
    members.instances.sort();
    members.zones.sort();
    members.zones.dedup();
    Ok(members)
}

async fn announced(
    connection: &mut SqliteConnection,
    namespace: &Namespace,
    me: &InstanceId,
    contested: &[Contested],
    counts: (Millis, Millis),
) -> Result<Vec<(JobName, Fingerprint)>, sqlx::Error> {
    let needles: Vec<String> = contested.iter().map(announced::needle).collect();
    let rows = sqlx::query(include_str!("announced.sql"))
        .bind(namespace.as_str())
        .bind(me.as_str())
        .bind(counts.0.0)
        .bind(counts.1.0)
        .bind(rows::json_array(needles.iter().map(String::as_str)))
        .fetch_all(connection)
        .await?;
    let places = rows.iter().map(|row| row.try_get::<i64, _>(0)).collect::<Result<Vec<_>, _>>()?;
    let one = |place: &i64| usize::try_from(*place).ok().and_then(|i| contested.get(i));
    Ok(places.iter().filter_map(one).map(|one| (one.own.job.clone(), one.in_force)).collect())
}

async fn waiting(
    connection: &mut SqliteConnection,
    namespace: &Namespace,
    me: &InstanceId,
    counts: (Millis, Millis),
) -> Result<Vec<Waiting>, sqlx::Error> {
    let lines: Vec<String> = sqlx::query_scalar(include_str!("waiting.sql"))
        .bind(namespace.as_str())
        .bind(me.as_str())
        .bind(counts.0.0)
        .bind(counts.1.0)
        .fetch_all(connection)
        .await?;
    Ok(protocol::earliest(lines.iter().flat_map(|lines| announced::waiting(lines))))
}

fn nothing<I, T>(_item: &I) -> Option<Decision<T>> {
    None
}

#[async_trait]
impl Store for SqliteBackend {
    async fn open(&self, namespace: &Namespace) -> Result<Guarantees, StoreError> {
        let mut link = self.database.writer().await;
        let version = async {
            let connection = self.database.connection(&mut link, Missing::Create).await?;
            Ok(sqlx::query_scalar("SELECT sqlite_version()").fetch_one(connection).await?)
        };
        let version: Result<String, Failure> = version.await;
        let version = version.map_err(|failure| self.database.failed(&mut link, failure))?;
        *self.namespace.write().unwrap_or_else(PoisonError::into_inner) = Some(namespace.clone());
        let mut guarantees = Guarantees::new(format!("SQLite {version}"));
        guarantees.history = HISTORY;
        if self.database.target.is_in_memory() {
            guarantees.durability = Durability::Unsafe("kept in the memory of one process".into());
        }
        Ok(guarantees)
    }

    async fn register(&self, specs: &[JobSpec]) -> Vec<Answer<Registered>> {
        let rule = Rule { job: |s: &JobSpec| &s.job, decide: protocol::register, mend: nothing };
        self.decide(specs, rule, First::Look).await
    }

    async fn claim(&self, claims: &[Claim]) -> Vec<Answer<Verdict>> {
        let rule = Rule {
            job: |c: &Claim| &c.job,
            decide: |record, claim, now| protocol::claim(record, claim, now, LeaseEnd::ByClock),
            mend: nothing,
        };
        self.decide(claims, rule, First::Look).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Vec<Answer<Renewed>> {
        let rule = Rule { job: |r: &Renewal| &r.job, decide: protocol::renew, mend: nothing };
        self.decide(renewals, rule, First::Write).await
    }

    async fn finish(&self, finishes: &[Finish]) -> Vec<Answer<Finished>> {
        let rule = Rule { job: |f: &Finish| &f.job, decide: protocol::finish, mend: nothing };
        self.decide(finishes, rule, First::Write).await
    }

    async fn inspect(&self, jobs: &[JobName], history: u8) -> Vec<Answer<Option<Snapshot>>> {
        if jobs.is_empty() {
            return Vec::new();
        }
        self.read(jobs, history)
            .await
            .unwrap_or_else(|error| jobs.iter().map(|_| Err(error.clone())).collect())
    }

    async fn control(&self, controls: &[Control]) -> Vec<Answer<Controlled>> {
        let rule = Rule {
            job: |c: &Control| &c.job,
            decide: protocol::control,
            // What cannot be read can still be deleted.
            mend: |c: &Control| {
                (c.action == ControlAction::Forget)
                    .then_some(Decision { answer: Controlled::Done, write: Some(Write::Delete) })
            },
        };
        self.decide(controls, rule, First::Write).await
    }

    async fn beat(&self, announcement: &Announcement) -> Answer<Members> {
        self.announce(announcement).await
    }

    async fn close(&self) {
        self.database.close().await;
    }

    fn describe(&self) -> String {
        format!("sqlite:{}", self.database.target)
    }
}

impl Clone for SqliteBackend {
    /// Another handle to the same database; it may be opened for another namespace.
    fn clone(&self) -> Self {
        let namespace = self.namespace.read().unwrap_or_else(PoisonError::into_inner).clone();
        Self { database: Arc::clone(&self.database), namespace: RwLock::new(namespace) }
    }
}

impl fmt::Debug for SqliteBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("SqliteBackend")
            .field("database", &self.describe())
            .field("namespace", &namespace.as_ref().map(Namespace::as_str))
            .finish()
    }
}
