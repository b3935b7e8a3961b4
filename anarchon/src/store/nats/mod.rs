//! NATS JetStream: the rules decided here, on records that a watch brings, and written by compare-and-swap.

mod address;
mod bucket;
pub mod cache;
pub mod clock;
pub mod decision;
mod fault;
mod hub;
pub mod leases;
mod link;
pub mod members;
pub mod names;
mod rounds;
pub mod value;
mod watch;
mod wire;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use futures_core::Stream;
use futures_util::{FutureExt as _, future::Shared, stream};
use tokio::sync::broadcast::error::RecvError;

use self::{
    address::Address,
    decision::Rule,
    hub::Hub,
    link::{Door, Put},
    members::Member,
    wire::Wire,
};
use super::{Answer, Guarantees, Snapshot, Stamped, Store, StoreError, not_open};
use crate::{
    error::{Error, ErrorKind},
    protocol::{
        self, Announcement, Claim, Contested, Control, Controlled, Fingerprint, Finish, Finished, InstanceId,
        JobName, JobSpec, Members, Namespace, Registered, Renewal, Renewed, Verdict,
    },
};

/// How many old announcements are removed at a time.
const SWEPT: usize = 5;

/// Keeps the records in a key-value bucket of NATS JetStream 2.9 or later: one server, or a cluster.
///
/// | URL | servers |
/// | --- | --- |
/// | `nats://user:password@host:4222` | one, or one of a cluster |
/// | `nats://token@host1:4222,host2:4222` | whichever of these can be reached, in an order of chance |
/// | `tls://host` | the same over TLS |
///
/// Parts that hold other characters than letters and digits are percent-encoded. Other ways to log in: `creds=FILE` (a JWT with its
/// seed, as `nsc` writes it), `nkey=FILE` (the seed of a user). Parameters for TLS: `ca=FILE` (who signed the server's certificate;
/// else whom the system trusts), `cert=FILE&key=FILE` (our certificate).
///
/// ```
/// use anarchon::NatsBackend;
///
/// let store = NatsBackend::connect("nats://localhost:4222")?;
/// # Ok::<(), anarchon::Error>(())
/// ```
///
/// One connection an instance, which comes back by itself. The bucket `anarchon_NAMESPACE` is made when it is not there: kept in
/// files, with three replicas in a cluster of NATS 2.11 or later; one with settings that would lose records is refused. A clone is another handle with a connection of its own, not
/// yet open.
///
/// # Guarantees
///
/// - **Each instance decides, and the server compares.** What an instance decides is written only if the record has not changed since
///   it was read, so that one of several claims wins. The records are the same on all instances: a watch brings each change.
/// - **The server's clock, as each instance knows it** by the times at which the server stored its messages: not ahead of it, and
///   behind it by what a message takes. Clocks of instances do not matter. An instance that got no message through for 30 s claims nothing.
/// - **A server clock that is set back** by up to a minute makes the announcement of an instance that has died count for as much
///   longer: so long an update to another schedule waits.
/// - **A lease ends when an observer has seen it unchanged for its length** on its own clock, as well as by the server's. An instance that has just
///   started takes over what was renewed last more than the lease and 2 s ago, by the server's clock.
/// - **What survives a crash**: the server answers a write before it is flushed to disk (every 2 minutes, unless its `sync_interval`
///   says otherwise). One server whose machine loses power loses the writes since then; the process alone may die at any time. With
///   three replicas a majority has each write before it is answered: any one server may go, with its disk; a loss of power of
///   two at once loses what one alone would. Whoever lost records registers the jobs again, and nothing from before that moment runs.
/// - **Replicas need NATS 2.11 or later**, and are refused before: older clusters may let two of several simultaneous writes win in a
///   replicated bucket. With one replica, the default there, each write is compared on the one server that has the bucket; while
///   it is down, its jobs wait.
/// - **A fail-over loses nothing**, and takes a cluster 4 to 7 s in which nobody can renew a lease: with replicas, a lease has 15 s or
///   more. One of 15 s can still be lost to a change of 7 s that begins when a renewal is due; one of 30 s, the default, outlasts it.
/// - **A bucket that was deleted and made anew** is another one, whatever the revisions are: the keys hold its time of creation.
/// - **Constant size.** One key a job, with its 20 newest runs in the value (fewer, where the server takes no message that
///   large), and one key an instance, removed ten minutes after its last beat.
/// - The user needs the rights that the page [security](crate::guide::security) of the guide has for one namespace.
pub struct NatsBackend {
    door: Door,
    replicas: Option<u8>,
    hub: Arc<Hub>,
    state: Mutex<State>,
}

/// What there is of a connection.
struct State {
    namespace: Option<Namespace>,
    wire: Connection,
}

enum Connection {
    None,
    /// Shared, so that it goes on when the call that began it is cut off.
    Opening(Opening),
    Open(Arc<Wire>),
}

type Opening = Shared<Pin<Box<dyn Future<Output = Result<Arc<Wire>, StoreError>> + Send>>>;

impl NatsBackend {
    /// The servers that a URL names.
    ///
    /// Only looks at the URL; connections are made by [`Store::open`], on the runtime that calls it.
    ///
    /// # Errors
    /// When the URL is none of those above.
    pub fn connect(url: &str) -> crate::Result<Self> {
        let address =
            Address::parse(url).map_err(|error| Error::new(ErrorKind::Configuration, error.to_string()))?;
        Ok(Self::at(Door::Address(address)))
    }

    /// The servers of a client of the application, which is used as it is.
    ///
    /// It stays on the runtime that made it: where that has one thread and a handler blocks it, the renewals stop as well.
    /// What it had not yet sent when a connection broke it sends on the next one; a claim among that is compared
    /// like any other, and if it wins, nobody runs it until its lease ends.
    #[must_use]
    pub fn from_client(client: async_nats::Client) -> Self {
        Self::at(Door::Client(client))
    }

    fn at(door: Door) -> Self {
        Self {
            door,
            replicas: None,
            hub: Arc::new(Hub::new()),
            state: Mutex::new(State { namespace: None, wire: Connection::None }),
        }
    }

    /// How many servers of the cluster keep the bucket: 1 to 5, best an odd number (another one is an error at start); if not set, 3 where there are as many, of NATS 2.11 or later. A bucket that is
    /// there with fewer is refused.
    #[must_use]
    pub fn replicas(mut self, replicas: u8) -> Self {
        self.replicas = Some(replicas);
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every write to it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, made anew where it broke.
    async fn wire(&self) -> Result<Arc<Wire>, StoreError> {
        let opening = {
            let mut state = self.state();
            let Some(namespace) = state.namespace.clone() else {
                drop(state);
                return Err(not_open(self));
            };
            match &state.wire {
                Connection::Open(wire) if wire.is_open() => return Ok(Arc::clone(wire)),
                Connection::Opening(opening) => opening.clone(),
                Connection::Open(_) | Connection::None => {
                    let opening =
                        Wire::open(self.door.clone(), Arc::clone(&self.hub), namespace, self.replicas)
                            .boxed()
                            .shared();
                    state.wire = Connection::Opening(opening.clone());
                    opening
                }
            }
        };
        let opened = opening.clone().await;
        let mut state = self.state();
        if matches!(&state.wire, Connection::Opening(current) if current.ptr_eq(&opening)) {
            state.wire = match &opened {
                Ok(wire) => Connection::Open(Arc::clone(wire)),
                Err(_) => Connection::None,
            };
        }
        opened.map_err(|error| match error.kind {
            // Whatever became of its messages, no call was begun.
            super::StoreErrorKind::Unknown => StoreError::unavailable(error),
            super::StoreErrorKind::Unavailable | super::StoreErrorKind::Misconfigured => error,
        })
    }

    async fn batch<I: Sync, T: Send>(&self, items: &[I], rule: &Rule<I, T>) -> Vec<Answer<T>> {
        match self.wire().await {
            Ok(_) if items.is_empty() => Vec::new(),
            Ok(wire) => wire.batch(items, rule).await,
            Err(error) => items.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn announce(
        &self,
        me: &InstanceId,
        contested: &[Contested],
        present: Option<(&[(JobName, Fingerprint)], &str)>,
    ) -> Answer<Members> {
        let wire = self.wire().await?;
        wire.freshen().await?;
        if wire.member(me).revision == 0 {
            // What is new passes in any bucket: it must be the one that others look at.
            wire.catch_up().await?;
        }
        let mut tries = 0;
        loop {
            let decided = wire.hub.clock.mono();
            let now = wire.now(decided)?;
            let entry = wire.member(me);
            let known = entry.value().is_some_and(|member| member.is_live(now));
            let member = match present {
                Some((schedules, zones)) => Member::new(now, schedules, contested, zones),
                None if known => Member::withdrawn(now),
                None => {
                    wire.catch_up().await?;
                    return Ok(self.told(&wire, now, false, me, contested));
                }
            };
            let put = wire.put(&names::of_member(me), Some(entry.revision), Some(member.encode())).await;
            match put {
                Put::Stored(revision) => {
                    wire.wrote_member(me, revision, member, decided);
                    // All that others had written before is read when our own comes.
                    wire.brings(revision).await?;
                    self.sweep(&wire, now).await;
                    return Ok(self.told(&wire, now, known, me, contested));
                }
                Put::Refused(revision) if tries < 5 => {
                    tries += 1;
                    if revision == Some(0) {
                        wire.is_purged(me);
                    }
                    wire.catch_up().await?;
                }
                Put::Refused(_) => {
                    return Err(StoreError::unavailable(format_args!(
                        "the announcement of instance \"{me}\" is written by somebody else too; give each instance an id of its own"
                    )));
                }
                Put::NoTaker => return Err(wire.no_taker()),
                Put::Failed(error) | Put::Unanswered(error) => return Err(error),
            }
        }
    }

    fn told(
        &self,
        wire: &Wire,
        now: protocol::StoreNow,
        known: bool,
        me: &InstanceId,
        contested: &[Contested],
    ) -> Stamped<Members> {
        let value = wire.with_cache(|cache| members::told(cache.members(), now, known, me, contested));
        Stamped { value, now }
    }

    async fn sweep(&self, wire: &Wire, now: protocol::StoreNow) {
        let old: Vec<_> = wire.with_cache(|cache| {
            cache
                .members()
                .filter(|(_, entry)| members::is_forgotten(entry, now))
                .take(SWEPT)
                .map(|(instance, entry)| (instance.clone(), entry.clone()))
                .collect()
        });
        for (instance, entry) in old {
            wire.sweep(&instance, &entry).await;
        }
    }
}

impl Clone for NatsBackend {
    /// Another handle with a connection of its own, not yet open.
    fn clone(&self) -> Self {
        Self { replicas: self.replicas, ..Self::at(self.door.clone()) }
    }
}

impl fmt::Debug for NatsBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.state().namespace.as_ref().map(Namespace::to_string);
        f.debug_struct("NatsBackend")
            .field("servers", &self.describe())
            .field("replicas", &self.replicas)
            .field("namespace", &namespace)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for NatsBackend {
    async fn open(&self, namespace: &Namespace) -> Result<Guarantees, StoreError> {
        {
            let mut state = self.state();
            if state.namespace.as_ref() != Some(namespace) {
                state.namespace = Some(namespace.clone());
                state.wire = Connection::None;
            }
        }
        Ok(self.wire().await?.guarantees.clone())
    }

    async fn register(&self, specs: &[JobSpec]) -> Vec<Answer<Registered>> {
        self.batch(specs, &decision::REGISTER).await
    }

    async fn claim(&self, claims: &[Claim]) -> Vec<Answer<Verdict>> {
        self.batch(claims, &decision::CLAIM).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Vec<Answer<Renewed>> {
        self.batch(renewals, &decision::RENEW).await
    }

    async fn finish(&self, finishes: &[Finish]) -> Vec<Answer<Finished>> {
        self.batch(finishes, &decision::FINISH).await
    }

    async fn inspect(&self, jobs: &[JobName], history: u8) -> Vec<Answer<Option<Snapshot>>> {
        let wire = match self.wire().await {
            Ok(wire) => wire,
            Err(error) => return jobs.iter().map(|_| Err(error.clone())).collect(),
        };
        if jobs.is_empty() {
            return Vec::new();
        }
        let caught_up = match wire.freshen().await {
            Ok(()) => wire.catch_up().await,
            Err(error) => Err(error),
        };
        if let Err(error) = caught_up {
            return jobs.iter().map(|_| Err(error.clone())).collect();
        }
        let read = |job: &JobName| {
            let now = wire.now(wire.hub.clock.mono())?;
            let value = match wire.job(job).value {
                cache::Value::None => None,
                cache::Value::Some(kept) => {
                    Some(Snapshot { history: kept.history(history), record: kept.record })
                }
                cache::Value::Damaged(damage) => return Err(wire.damaged(job, &damage)),
            };
            Ok(Stamped { value, now })
        };
        jobs.iter().map(read).collect()
    }

    async fn control(&self, controls: &[Control]) -> Vec<Answer<Controlled>> {
        self.batch(controls, &decision::CONTROL).await
    }

    async fn beat(&self, announcement: &Announcement) -> Answer<Members> {
        match announcement {
            Announcement::Present { instance, schedules, zones, contested } => {
                self.announce(instance, contested, Some((schedules, zones))).await
            }
            Announcement::Withdrawn { instance } => self.announce(instance, &[], None).await,
        }
    }

    fn changes(&self) -> Option<Pin<Box<dyn Stream<Item = JobName> + Send>>> {
        let hints = stream::unfold(self.hub.hints(), |mut hints| async move {
            loop {
                match hints.recv().await {
                    Ok(job) => return Some((job, hints)),
                    // Only hints: a look finds what they were about.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        Some(Box::pin(hints))
    }

    async fn close(&self) {
        self.state().wire = Connection::None;
    }

    fn describe(&self) -> String {
        self.door.to_string()
    }
}
