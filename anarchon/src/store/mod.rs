//! The stores: one small trait, and a backend for each kind.
//!
#![doc = include_str!("guarantees.md")]

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_core::Stream;

use crate::protocol::{
    Announcement, Claim, Control, Controlled, Finish, Finished, JobName, JobSpec, Members, Namespace, Record,
    Registered, Renewal, Renewed, Run, StoreNow, Verdict,
};

#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod announced;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod columns;
pub(crate) mod connect;
#[cfg(any(
    feature = "nats",
    feature = "postgres",
    feature = "rabbitmq",
    feature = "redis",
    feature = "sqlite"
))]
mod damage;
#[cfg(feature = "sqlite")]
mod host_clock;
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
mod json;
mod memory;
// Hidden: what decides in these two is played by the simulation, and is no part of the API.
#[cfg(feature = "nats")]
#[doc(hidden)]
pub mod nats;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "rabbitmq")]
#[doc(hidden)]
pub mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(test)]
mod tests;
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod tls;
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod url;

pub use memory::MemoryBackend;
#[cfg(feature = "nats")]
pub use nats::NatsBackend;
#[cfg(feature = "postgres")]
pub use postgres::PostgresBackend;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitMqBackend;
#[cfg(feature = "redis")]
pub use redis::{RedisBackend, ValkeyBackend};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteBackend;

/// How long an announcement counts after its last beat.
pub const ANNOUNCEMENT_AGE: Duration = Duration::from_secs(30);

/// A shared store: decides each call atomically and knows nothing of schedules, handlers or retries.
///
/// Every batch is answered item by item, in order, with as many answers as items; one bad item never fails the others.
/// All calls may run at the same time. `open` comes first and may be repeated; before it every other call answers
/// [`Misconfigured`](StoreErrorKind::Misconfigured).
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Comes before the first `open`: the shortest lease that will be asked for, for a store whose leases are those of its
    /// connection.
    fn shortest_lease(&self, _lease: Duration) {}
    /// Connects, creates or migrates what the store needs, and checks the server's settings.
    async fn open(&self, namespace: &Namespace) -> Result<Guarantees, StoreError>;
    /// Makes the jobs known; the only call that creates records.
    async fn register(&self, specs: &[JobSpec]) -> Vec<Answer<Registered>>;
    /// Asks for attempts.
    async fn claim(&self, claims: &[Claim]) -> Vec<Answer<Verdict>>;
    /// Extends leases.
    async fn renew(&self, renewals: &[Renewal]) -> Vec<Answer<Renewed>>;
    /// Closes runs.
    async fn finish(&self, finishes: &[Finish]) -> Vec<Answer<Finished>>;
    /// Reads records, with up to `history` of their newest runs, newest first.
    async fn inspect(&self, jobs: &[JobName], history: u8) -> Vec<Answer<Option<Snapshot>>>;
    /// Carries out operators' orders.
    async fn control(&self, controls: &[Control]) -> Vec<Answer<Controlled>>;
    /// Announces or withdraws the caller, and says who else is there; a write in any case. A store without announcements
    /// only shows by it that it takes writes, and knows nobody.
    async fn beat(&self, announcement: &Announcement) -> Answer<Members>;
    /// Hints that a job's record changed; only ever advances a look.
    fn changes(&self) -> Option<Pin<Box<dyn Stream<Item = JobName> + Send>>> {
        None
    }
    /// Lets go of connections and files when the scheduler has ended; a later call may open them anew. Nothing depends on it:
    /// an instance may vanish at any time.
    async fn close(&self) {}
    /// What to call the store in logs: kind and address, passwords masked.
    fn describe(&self) -> String;
}

/// A record, with the newest runs of its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The record.
    pub record: Record,
    /// The newest closed runs, newest first.
    pub history: Vec<Run>,
}

/// One item's answer: a value with the store's time at which it was decided, or why there is none.
pub type Answer<T> = Result<Stamped<T>, StoreError>;

/// A value and the store's time at which it was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamped<T> {
    /// The value.
    pub value: T,
    /// The store's clock.
    pub now: StoreNow,
}

/// Why a store gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    /// What it means for the caller.
    pub kind: StoreErrorKind,
    message: Arc<str>,
}

/// What a failed call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// It was sent and no reply came: it may have happened.
    Unknown,
    /// It did not happen, and may work later.
    Unavailable,
    /// It did not happen and will not until somebody changes the set-up.
    Misconfigured,
}

impl StoreError {
    /// It may have happened.
    pub fn unknown(message: impl fmt::Display) -> Self {
        Self::new(StoreErrorKind::Unknown, message)
    }
    /// It did not happen, and may work later.
    pub fn unavailable(message: impl fmt::Display) -> Self {
        Self::new(StoreErrorKind::Unavailable, message)
    }
    /// It will not work until somebody changes the set-up.
    pub fn misconfigured(message: impl fmt::Display) -> Self {
        Self::new(StoreErrorKind::Misconfigured, message)
    }
    fn new(kind: StoreErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string().into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}

/// The answer to every call but `open` of a handle that was not opened.
fn not_open(store: &dyn Store) -> StoreError {
    StoreError::misconfigured(format_args!(
        "{} was used before it was opened; call open first",
        store.describe()
    ))
}

/// What a store can promise, found at `open`: printed at start-up, asserted by the conformance suite.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantees {
    /// Kind and version of the store.
    pub store: String,
    /// Whose clock decides.
    pub clock: ClockSource,
    /// What a lease belongs to.
    pub lease: LeaseScope,
    /// What survives a crash of the store.
    pub durability: Durability,
    /// Whether a fail-over can lose acknowledged writes.
    pub loses_on_failover: bool,
    /// How a batch reaches the store.
    pub batch: Batch,
    /// Whether instances can announce themselves.
    pub beat: bool,
    /// Whether the store hints at changes.
    pub changes: bool,
    /// How many runs of a job it keeps.
    pub history: u8,
    /// The shortest lease that outlasts what is usual on this store, such as the change of a leader; zero where any that a
    /// job may have will do.
    pub shortest_lease: Duration,
    /// Who can read and change a record while a run holds the lease.
    pub held: HeldRecord,
}

impl Guarantees {
    /// A store on its own clock with a lease per claim, durable to disk, one call a batch, with beat, without hints.
    ///
    /// The fields are public: change what differs.
    #[must_use]
    pub fn new(store: impl Into<String>) -> Self {
        Self {
            store: store.into(),
            clock: ClockSource::Store,
            lease: LeaseScope::PerClaim,
            durability: Durability::Fsync,
            loses_on_failover: false,
            batch: Batch::OneCall,
            beat: true,
            changes: false,
            history: 20,
            shortest_lease: Duration::ZERO,
            held: HeldRecord::Anybody,
        }
    }
}

/// Whose clock decides leases, earliness and the catch-up window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockSource {
    /// The store's own.
    Store,
    /// The store's, estimated by each instance.
    Estimated,
    /// Each instance's own.
    Local,
}

/// Who can read and change a record while a run holds the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldRecord {
    /// Every handle.
    Anybody,
    /// Only the handle that was awarded the lease. To others `inspect` tells that somebody has it and neither who nor since
    /// when, a claim is held or already decided, an order waits for the end of the run, and a cancel is refused.
    HolderOnly,
}

/// What a lease belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseScope {
    /// Each claim has its own length.
    PerClaim,
    /// All leases of a connection end together, after a time in this range.
    PerConnection(std::ops::RangeInclusive<Duration>),
}

/// What survives a crash of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Every acknowledged write: flushed to disk before the answer.
    Fsync,
    /// All but the writes since the last periodic flush.
    Periodic,
    /// Every write that a majority of replicas acknowledged.
    Replicated,
    /// Nothing is promised, for this reason.
    Unsafe(String),
}

/// How a batch reaches the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batch {
    /// In one call.
    OneCall,
    /// In one round trip of several calls.
    Pipelined,
    /// One item after the other.
    OneByOne,
}
