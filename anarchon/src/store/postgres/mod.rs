//! PostgreSQL: records in two small tables, decided by the server.
//!
//! Each call is **one message of the simple query protocol**: `begin.sql`, then what the call does. The server runs such a
//! message as one transaction, so that
//!
//! - a call is one round trip, and no row is ever locked while the server waits for us: a frozen instance cannot hold up
//!   the others, and one that is cut off leaves nothing open;
//! - a role needs no right to create functions.
//!
//! A call that may write is one statement, `claim.sql` for example, with what stands around it in `clock.sql` and
//! `answer.sql`. It reads the clock once and the records as they are, without a lock, and decides each item as the tables of
//! [`protocol`](crate::protocol) say: what changes nothing costs no write and waits for no row. The others it writes in the
//! order of their names, which is the same for all callers (orders that delete come after those that do not: where two calls
//! wait for each other, the server rolls one back, and it is sent again), and each only if its row is still the version
//! (`xmin`) that was decided on. An item whose row somebody else has changed meanwhile gets no answer, and is sent again.
//!
//! To parse and plan the statements of a claim, a renewal, a finish or a look costs more than to execute them, so that a
//! session keeps them: `PREPARE`, in a message before the first use. A pooler in transaction mode, such as PgBouncer, gives
//! each message another session: one that lacks the statement, or that has it from somebody else, refuses it before any
//! effect. That is seen once; from then on statements are sent whole, until the store is opened again. Nothing else depends
//! on the session.
//!
//! The parameters of a call are the literals of arrays, a column each, see [`message`].

mod calls;
mod fault;
mod hints;
mod message;
mod rows;
mod schema;
mod server;

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use futures_core::Stream;
use serde_json::{Value, json};
use sqlx::{PgPool, postgres::PgRow};

use self::{
    message::{Operation, Operations},
    schema::Schema,
    server::{Server, Target},
};
use super::{
    ANNOUNCEMENT_AGE, Answer, Guarantees, Snapshot, Stamped, Store, StoreError, announced, columns::Damage,
};
use crate::{
    error::{Error, ErrorKind},
    protocol::{
        self, Announcement, Award, Claim, Contested, Control, ControlAction, Controlled, Finish, Finished,
        InstanceId, JobName, JobSpec, Members, Namespace, Outcome, Record, Registered, Renewal, Renewed,
        StoreNow, Verdict, What,
    },
};

/// How many runs of a job are kept.
const HISTORY: u8 = 20;
/// After how long without a beat an announcement is deleted: far longer than it counts, so that nothing depends on it.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// How often items are sent again that others changed in between. Each time somebody else got on, so few are enough.
const PATIENCE: usize = 50;

/// Where the record begins in a row of a reply, and where the run of the history does.
const RECORD: usize = 3;
const RUN: usize = RECORD + 19;

/// Keeps the records in PostgreSQL 13 or later, for instances on many hosts.
///
/// ```
/// use anarchon::PostgresBackend;
///
/// let store = PostgresBackend::connect("postgres://app@localhost/app?sslmode=prefer")?.schema("jobs")?;
/// # Ok::<(), anarchon::Error>(())
/// ```
///
/// The tables are created at the first start, in a schema of their own: `anarchon`, or the one named by
/// [`schema`](Self::schema) or by `?schema=` in the URL. What the URL leaves out is taken from the environment and from the
/// password file as `psql` does it (`PGUSER`, `PGPASSWORD`, `PGPASSFILE`, …); `sslmode`, `sslrootcert`, `sslcert` and
/// `sslkey` mean what they mean there, except that `allow` is `disable`, and that only `verify-ca` and `verify-full` verify
/// anything.
///
/// An instance has at most two connections, and each call is one round trip on one of them, or two where it is the first of
/// its kind there. The server may go on with a call
/// that was given up at its deadline; its session counts as one of the two until the server is seen to be done with it. While
/// it is busy with two of that kind (somebody has locked a table, a synchronous standby is gone), calls fail as unavailable
/// and say what it waits for; a third connection is only opened to look, and closed again. A server with
/// `track_activities = off` cannot be seen at work, and there is no such limit. PgBouncer may stand in
/// between, in session or in transaction mode; it needs no settings. Triggers and resumes by others are found within 5 s where
/// there are up to 1,000 jobs and ten instances, or at once with [`listen`](Self::listen).
///
/// A clone is another handle to the same database, with connections of its own.
///
/// # Guarantees
///
/// - **Many hosts, one clock.** The server's `clock_timestamp()` decides, read once a call, together with the records and
///   before any wait for a row. A record that changes during that wait is decided anew, by a new reading; a row that somebody
///   merely locks can delay an award by up to 2 s after its reading, by which also the expiry of a claim is judged. What the
///   clocks of the instances say does not matter.
/// - **A crash loses nothing** that was acknowledged: a claim waits for the server's flush to disk also where
///   `synchronous_commit` is `off`. With `fsync = off` nothing is promised, and the start-up line says so.
/// - **A fail-over to an asynchronous replica can lose the newest writes**: a run may then be awarded a second time, with a
///   higher fencing token unless the new server's clock is behind. To close that, set `synchronous_standby_names` on the
///   server; calls then wait for the replica.
/// - **Constant size.** One row a job and its 20 newest runs. Updates stay on their page and touch no index; the dead rows
///   are cleared by the updates that follow, as long as no transaction of somebody else stays open for hours.
/// - A read-only server (a replica, or `default_transaction_read_only`) makes calls fail as unavailable until it can be
///   written again.
///
/// # Rights
///
/// To create the schema, `CREATE` on the database (or on the schema, where it is there already). A role without that right
/// is told the SQL for somebody who has it, and then needs only the rights that the page
/// [security](crate::guide::security) of the guide has.
pub struct PostgresBackend {
    server: Arc<Server>,
    operations: Arc<Operations>,
    listens: bool,
    namespace: RwLock<Option<Namespace>>,
}

impl PostgresBackend {
    /// The database that a URL names: `postgres://user:password@host:port/database?sslmode=verify-full&schema=jobs`.
    ///
    /// Only looks at the URL; connections are opened by [`Store::open`] and later, on the runtime that calls.
    ///
    /// # Errors
    /// When the URL is none of that kind.
    pub fn connect(url: &str) -> crate::Result<Self> {
        let (target, schema, listens) = Target::parse(url).map_err(wrong)?;
        Ok(Self::new(target, schema, listens))
    }

    /// The database of a pool of the application.
    ///
    /// The pool is only read for its settings: the store opens connections of its own.
    #[must_use]
    pub fn from_pool(pool: &PgPool) -> Self {
        Self::new(Target::new((*pool.connect_options()).clone()), Schema::default(), false)
    }

    /// Keeps the tables in this schema instead of `anarchon`. Call it before the first use.
    ///
    /// # Errors
    /// When the name is empty, longer than the 63 bytes that PostgreSQL tells apart, or holds a NUL.
    pub fn schema(self, name: &str) -> crate::Result<Self> {
        let schema = Schema::new(name).map_err(wrong)?;
        Ok(Self::new(self.server.target.clone(), schema, self.listens))
    }

    /// Hears at once of orders that are given elsewhere (`trigger`, `pause`, `resume`, `cancel`), by `LISTEN` on the channel
    /// `anarchon`; `?listen=true` in the URL does the same.
    ///
    /// That is a third connection, and it has to lead to the server itself: [`Store::open`] fails where no notification comes
    /// through, which is so behind a pooler in transaction mode. As what is heard is only a hint, records are still looked at,
    /// every 30 s instead of every 5 s, up to 1,000 at a time and less often where there are more than ten instances; so late an order may be
    /// found while the connection is down.
    #[must_use]
    pub fn listen(self) -> Self {
        Self { listens: true, ..self }
    }

    fn new(target: Target, schema: Schema, listens: bool) -> Self {
        let operations = Arc::new(Operations::new(&schema));
        Self {
            server: Arc::new(Server::new(target, schema)),
            operations,
            listens,
            namespace: RwLock::new(None),
        }
    }

    fn namespace(&self) -> Result<Namespace, StoreError> {
        let kept = self.namespace.read().unwrap_or_else(PoisonError::into_inner);
        kept.clone().ok_or_else(|| {
            StoreError::misconfigured(format_args!(
                "{} was used before it was opened; call open first",
                self.describe()
            ))
        })
    }

    /// Answers a batch by an operation of the server.
    async fn batch<I: Sync, T: Send>(
        &self,
        items: &[I],
        operation: &Operation,
        rule: Rule<I, T>,
    ) -> Vec<Answer<T>> {
        let mut answers: Vec<Option<Answer<T>>> = std::iter::repeat_with(|| None).take(items.len()).collect();
        if let Err(error) = self.fill(items, operation, rule, &mut answers).await {
            for answer in &mut answers {
                answer.get_or_insert_with(|| Err(error.clone()));
            }
        }
        let left_out = || {
            Err(StoreError::unavailable(
                "other instances changed the record again and again; trying later is all that helps",
            ))
        };
        answers.into_iter().map(|answer| answer.unwrap_or_else(left_out)).collect()
    }

    /// Answers what it can; an error is for all items that have no answer yet.
    async fn fill<I: Sync, T: Send>(
        &self,
        items: &[I],
        operation: &Operation,
        rule: Rule<I, T>,
        answers: &mut [Option<Answer<T>>],
    ) -> Result<(), StoreError> {
        if items.is_empty() {
            return Ok(());
        }
        let namespace = self.namespace()?;
        let mut patience = PATIENCE;
        while patience > 0 {
            // One item a job: its second one has to see what the first one wrote.
            let mut sent = BTreeMap::new();
            for (i, item) in items.iter().enumerate().filter(|(i, _)| answers[*i].is_none()) {
                sent.entry((rule.job)(item).as_str()).or_insert(i);
            }
            if sent.is_empty() {
                return Ok(());
            }
            let encoded = |(job, i): (&&str, &usize)| {
                let mut item = (rule.encode)(&items[*i]);
                item["job"] = json!(job);
                item
            };
            let batch: Vec<Value> = sent.iter().map(encoded).collect();
            let message = operation.message(&namespace, &batch, self.server.characters());
            let rows = self.server.call(&message).await?;
            for row in &rows {
                let (job, reply) = self.read(row, rows::text)?;
                let i = *sent.get(&*job).ok_or_else(|| {
                    self.foreign(format_args!("it answers for a job {job:?} that was not asked for"))
                })?;
                let now = reply.now;
                let value = (rule.decode)(reply);
                let damaged =
                    |damage: Damage| self.damaged_record(&namespace, (rule.job)(&items[i]), &damage);
                answers[i] = Some(value.map(|value| Stamped { value, now }).map_err(damaged));
            }
            patience -= usize::from(rows.is_empty());
        }
        Ok(())
    }

    /// A row of a reply; its first column says which item it is about.
    fn read<I>(
        &self,
        row: &PgRow,
        item: fn(&PgRow, usize) -> Result<I, Damage>,
    ) -> Result<(I, Reply), StoreError> {
        let read = || {
            Ok::<_, Damage>((
                item(row, 0)?,
                Reply {
                    rule: rows::text(row, 1)?,
                    now: StoreNow(rows::number(row, 2)?),
                    record: rows::record(row, RECORD),
                },
            ))
        };
        read().map_err(|damage| self.foreign(damage))
    }

    fn foreign(&self, what: impl fmt::Display) -> StoreError {
        StoreError::misconfigured(format_args!(
            "{} answers what this program does not understand: {what}; look at what else writes to its schema",
            self.server.target
        ))
    }

    fn damaged_record(&self, namespace: &Namespace, job: &JobName, damage: &str) -> StoreError {
        let target = &self.server.target;
        super::damage::unreadable(
            format_args!("the record of job \"{job}\" in namespace \"{namespace}\" of {target}"),
            damage,
        )
    }

    async fn snapshots(
        &self,
        jobs: &[JobName],
        history: u8,
    ) -> Result<Vec<Answer<Option<Snapshot>>>, StoreError> {
        let namespace = self.namespace()?;
        let item = |(place, job): (usize, &JobName)| json!({"place": place, "job": job.as_str(), "history": history});
        let batch: Vec<Value> = jobs.iter().enumerate().map(item).collect();
        let message = self.operations.inspect.message(&namespace, &batch, self.server.characters());
        let rows = self.server.read(&message).await?;
        let mut answers: Vec<Option<Answer<Option<Snapshot>>>> = vec![None; jobs.len()];
        for row in &rows {
            let (place, reply): (usize, _) = self.read(row, rows::number)?;
            let (Some(answer), Some(job)) = (answers.get_mut(place), jobs.get(place)) else {
                return Err(self.foreign(format_args!("it tells of an item {place} that was not asked for")));
            };
            let answer = answer.get_or_insert_with(|| {
                let record = reply.record.map_err(|damage| self.damaged_record(&namespace, job, &damage))?;
                let value = record.map(|record| Snapshot { record, history: Vec::new() });
                Ok(Stamped { value, now: reply.now })
            });
            let Ok(Stamped { value: Some(snapshot), .. }) = answer else { continue };
            match rows::run(row, RUN) {
                Ok(run) => snapshot.history.extend(run),
                // A lost line of history is no reason to withhold the record.
                Err(damage) => {
                    tracing::warn!(store = %self.server.target, %job, damage, "skipped a damaged run in the history");
                }
            }
        }
        let left_out = || Err(self.foreign("it leaves an item out"));
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(left_out)).collect())
    }

    async fn announce(&self, announcement: &Announcement) -> Answer<Members> {
        let namespace = self.namespace()?;
        let none = (Vec::new(), String::new(), Vec::new());
        let (me, leaves, (schedules, zones, contested)) = match announcement {
            Announcement::Present { instance, schedules, zones, contested } => {
                (instance, false, (schedules.clone(), zones.clone(), contested.clone()))
            }
            Announcement::Withdrawn { instance } => (instance, true, none),
        };
        let needles: Vec<String> = contested.iter().map(announced::needle).collect();
        let beat = json!({
            "instance": me.as_str(),
            "leaves": leaves,
            "age": micros(ANNOUNCEMENT_AGE),
            "forgotten": micros(FORGOTTEN),
            "zones": kept(&zones),
            "schedules": announced::text(&schedules, &contested),
            "contested": needles,
        });
        let message = self.operations.beat.message(&namespace, &[beat], self.server.characters());
        let rows = self.server.call(&message).await?;
        let mut members = Members::default();
        let mut now = None;
        for row in &rows {
            let read = read_member(row, me, &contested, &mut members);
            now = read.map_err(|damage| self.foreign(damage))?.or(now);
        }
        if !leaves {
            members.instances.push(me.clone());
            members.zones.push(zones);
        }
        members.instances.sort();
        members.zones.sort();
        members.zones.dedup();
        members.waiting = protocol::earliest(members.waiting);
        let now = now.ok_or_else(|| self.foreign("it does not tell the time"))?;
        Ok(Stamped { value: members, now })
    }
}

/// Takes in one row of `beat.sql`; one of them tells the time.
fn read_member(
    row: &PgRow,
    me: &InstanceId,
    contested: &[Contested],
    members: &mut Members,
) -> Result<Option<StoreNow>, Damage> {
    match rows::text(row, 0)?.as_str() {
        "clock" => return Ok(Some(StoreNow(rows::number(row, 3)?))),
        "live" => {
            let instance = InstanceId::new(&rows::text(row, 1)?).map_err(|e| e.to_string())?;
            if instance == *me {
                members.known = true;
            } else {
                members.instances.push(instance);
                members.zones.push(rows::text(row, 2)?);
            }
        }
        "waiting" => members.waiting.extend(announced::waiting(&rows::text(row, 1)?)),
        _ => {
            let one = contested.get(rows::number::<usize>(row, 3)?);
            members.announced.extend(one.map(|one| (one.own.job.clone(), one.in_force)));
        }
    }
    Ok(None)
}

fn wrong(message: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Configuration, message.to_string())
}

/// How the items of an operation are written, and its replies read.
struct Rule<I, T> {
    job: fn(&I) -> &JobName,
    encode: fn(&I) -> Value,
    decode: fn(Reply) -> Result<T, Damage>,
}

impl<I, T> Copy for Rule<I, T> {}
impl<I, T> Clone for Rule<I, T> {
    fn clone(&self) -> Self {
        *self
    }
}

/// What the server says to one item.
struct Reply {
    rule: String,
    now: StoreNow,
    /// As it is after the call.
    record: Result<Option<Record>, Damage>,
}

impl Reply {
    fn unknown_rule<T>(&self) -> Result<T, Damage> {
        Err(format!("its answer is {:?}", self.rule))
    }
    fn record(self) -> Result<Record, Damage> {
        self.record?.ok_or_else(|| "its answer holds no record".to_owned())
    }
}

fn encode_spec(spec: &JobSpec) -> Value {
    json!({
        "holder": spec.by.as_str(),
        "schedule": spec.schedule.to_string(),
        "old": spec.replace.map(|replace| replace.old.to_string()),
        "since": spec.replace.map(|replace| replace.since.0),
    })
}

fn decode_registered(reply: Reply) -> Result<Registered, Damage> {
    match reply.rule.as_str() {
        "created" => reply.record().map(Registered::Created),
        "in_force" | "replaced" => reply.record().map(Registered::InForce),
        "stale" => reply.record().map(Registered::Stale),
        _ => reply.unknown_rule(),
    }
}

fn encode_claim(claim: &Claim) -> Value {
    let mut item = json!({
        "lease": micros(claim.lease),
        // The two rules that look at the window round it apart.
        "window_up": whole_millis(claim.window.as_nanos().div_ceil(1_000_000)),
        "window_down": whole_millis(claim.window.as_millis()),
        "max_attempts": claim.max_attempts,
        "schedule": claim.schedule.to_string(),
        "holder": claim.holder.as_str(),
        "nonce": claim.nonce.to_string(),
        "expires": claim.expires.0,
    });
    match claim.what {
        What::Planned(at) => {
            item["kind"] = json!("planned");
            item["at"] = json!(at.0);
        }
        What::Takeover { token, observed } => {
            item["kind"] = json!("takeover");
            item["token"] = json!(signed(token.0));
            item["observed"] = json!(observed.map(|until| until.0));
        }
        What::Manual(seq) => {
            item["kind"] = json!("manual");
            item["seq"] = json!(signed(seq));
        }
    }
    item
}

fn decode_verdict(reply: Reply) -> Result<Verdict, Damage> {
    Ok(match reply.rule.as_str() {
        "repeated" | "first" | "next" | "manual" => Verdict::Awarded(Award::from(&reply.record()?)),
        "done" => Verdict::AlreadyDone(reply.record()?),
        "expired" => Verdict::Expired,
        "stale" => Verdict::Stale { schedule: reply.record()?.schedule },
        "early" => Verdict::Early,
        "decided" => Verdict::AlreadyDecided(reply.record()?),
        "paused" => Verdict::Paused(reply.record()?),
        "missed" => Verdict::Missed,
        "skipped" => Verdict::Skipped(reply.record()?),
        "held" => Verdict::Held(reply.record()?),
        "cancelled" | "lost" => Verdict::GaveUp(reply.record()?),
        "unregistered" => Verdict::Unregistered,
        _ => return reply.unknown_rule(),
    })
}

fn encode_renewal(renewal: &Renewal) -> Value {
    json!({"token": signed(renewal.token.0), "lease": micros(renewal.lease)})
}

fn decode_renewed(reply: Reply) -> Result<Renewed, Damage> {
    match reply.rule.as_str() {
        "extended" => {
            let record = reply.record()?;
            Ok(Renewed::Extended { until: record.until, cancel: record.cancel == Some(record.token) })
        }
        "gone" => Ok(Renewed::Lost),
        _ => reply.unknown_rule(),
    }
}

fn encode_finish(finish: &Finish) -> Value {
    let (outcome, after) = match finish.outcome {
        Outcome::Succeeded => ("succeeded", None),
        Outcome::Failed => ("failed", None),
        Outcome::Cancelled => ("cancelled", None),
        Outcome::Retry(after) => ("retrying", Some(micros(after))),
        Outcome::Released => ("released", None),
    };
    json!({
        "token": signed(finish.token.0),
        "outcome": outcome,
        "after": after,
        "message": finish.message.as_deref().map(kept),
    })
}

/// A text as it is kept: the history stays of constant size whatever the caller hands in, and PostgreSQL has no NUL.
fn kept(message: &str) -> String {
    message.chars().take(1000).map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn decode_finished(reply: Reply) -> Result<Finished, Damage> {
    match reply.rule.as_str() {
        "closed" | "repeated" => reply.record().map(Finished::Closed),
        "refused" => Ok(Finished::Refused),
        _ => reply.unknown_rule(),
    }
}

fn encode_control(control: &Control) -> Value {
    let (action, token) = match control.action {
        ControlAction::Trigger => ("trigger", None),
        ControlAction::Pause => ("pause", None),
        ControlAction::Resume => ("resume", None),
        ControlAction::Cancel(token) => ("cancel", Some(signed(token.0))),
        ControlAction::Forget => ("forget", None),
    };
    json!({"action": action, "token": token})
}

// The record is not looked at: what cannot be read can still be deleted.
#[expect(clippy::needless_pass_by_value, reason = "one signature for all operations")]
fn decode_controlled(reply: Reply) -> Result<Controlled, Damage> {
    match reply.rule.as_str() {
        "done" => Ok(Controlled::Done),
        "no_such_run" => Ok(Controlled::NoSuchRun),
        "unregistered" => Ok(Controlled::Unregistered),
        _ => reply.unknown_rule(),
    }
}

/// The server's integers are signed; no counter or token of ours gets near the edge.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Rounded up; so long at most that adding it to a time cannot overflow.
fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_nanos().div_ceil(1000)).unwrap_or(LONGEST).min(LONGEST)
}

fn whole_millis(length: u128) -> i64 {
    i64::try_from(length).unwrap_or(LONGEST).min(LONGEST)
}

/// 146,000 years in µs.
const LONGEST: i64 = 1 << 62;

#[async_trait]
impl Store for PostgresBackend {
    async fn open(&self, namespace: &Namespace) -> Result<Guarantees, StoreError> {
        let mut guarantees = self.server.open().await?;
        if self.listens {
            hints::check(&self.server).await?;
            guarantees.changes = true;
        }
        *self.namespace.write().unwrap_or_else(PoisonError::into_inner) = Some(namespace.clone());
        Ok(guarantees)
    }

    async fn register(&self, specs: &[JobSpec]) -> Vec<Answer<Registered>> {
        let rule = Rule { job: |s: &JobSpec| &s.job, encode: encode_spec, decode: decode_registered };
        self.batch(specs, &self.operations.register, rule).await
    }

    async fn claim(&self, claims: &[Claim]) -> Vec<Answer<Verdict>> {
        let rule = Rule { job: |c: &Claim| &c.job, encode: encode_claim, decode: decode_verdict };
        self.batch(claims, &self.operations.claim, rule).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Vec<Answer<Renewed>> {
        let rule = Rule { job: |r: &Renewal| &r.job, encode: encode_renewal, decode: decode_renewed };
        self.batch(renewals, &self.operations.renew, rule).await
    }

    async fn finish(&self, finishes: &[Finish]) -> Vec<Answer<Finished>> {
        let rule = Rule { job: |f: &Finish| &f.job, encode: encode_finish, decode: decode_finished };
        self.batch(finishes, &self.operations.finish, rule).await
    }

    async fn inspect(&self, jobs: &[JobName], history: u8) -> Vec<Answer<Option<Snapshot>>> {
        if jobs.is_empty() {
            return Vec::new();
        }
        self.snapshots(jobs, history)
            .await
            .unwrap_or_else(|error| jobs.iter().map(|_| Err(error.clone())).collect())
    }

    async fn control(&self, controls: &[Control]) -> Vec<Answer<Controlled>> {
        let rule = Rule { job: |c: &Control| &c.job, encode: encode_control, decode: decode_controlled };
        self.batch(controls, &self.operations.control, rule).await
    }

    async fn beat(&self, announcement: &Announcement) -> Answer<Members> {
        self.announce(announcement).await
    }

    fn changes(&self) -> Option<Pin<Box<dyn Stream<Item = JobName> + Send>>> {
        let namespace = self.namespace().ok().filter(|_| self.listens)?;
        Some(Box::pin(hints::hints(self.server.target.clone(), namespace)))
    }

    async fn close(&self) {
        self.server.close().await;
    }

    fn describe(&self) -> String {
        self.server.target.to_string() + &self.server.schema.in_url()
    }
}

impl Clone for PostgresBackend {
    /// Another handle to the same database; it may be opened for another namespace, and on another runtime.
    fn clone(&self) -> Self {
        let namespace = self.namespace.read().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            // A socket belongs to the runtime that made it.
            server: Arc::new(Server::new(self.server.target.clone(), self.server.schema.clone())),
            operations: Arc::clone(&self.operations),
            listens: self.listens,
            namespace: RwLock::new(namespace),
        }
    }
}

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("PostgresBackend")
            .field("server", &self.describe())
            .field("namespace", &namespace.as_ref().map(Namespace::as_str))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_never_overflows_a_time() {
        assert_eq!(micros(Duration::from_nanos(1)), 1);
        assert_eq!(micros(Duration::MAX), LONGEST);
        assert_eq!(whole_millis(u128::MAX), LONGEST);
    }
}
