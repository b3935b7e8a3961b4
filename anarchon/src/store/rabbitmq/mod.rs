//! RabbitMQ: the token queue. The record of a job is the one message of its queue, and whoever has it owns it.

mod address;
pub mod body;
mod fault;
mod greeting;
mod link;
pub mod operation;
mod quiet;
pub mod state;
mod token;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use lapin::{options::QueueDeclareOptions, types::FieldTable};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::oneshot,
};

use self::{
    address::Address,
    body::HISTORY,
    link::{Link, Live, Mode, Source},
    operation::{Look, Operation},
    token::{Slot, now},
};
use super::{
    Answer, Batch, ClockSource, Durability, Guarantees, HeldRecord, LeaseScope, Snapshot, Stamped, Store,
    StoreError, not_open,
};
use crate::{
    error::{Error, ErrorKind},
    protocol::{
        Announcement, Claim, Control, Controlled, Finish, Finished, JobName, JobSpec, Members, Namespace,
        Registered, Renewal, Renewed, Verdict,
    },
};

/// Keeps the records in RabbitMQ 3.10 or later.
///
/// | URL | broker |
/// | --- | --- |
/// | `amqp://user:password@host:5672/vhost` | one; without a user it is `guest`, without a virtual host `/` |
/// | `amqps://…` | the same over TLS |
///
/// Parts that hold other characters than letters and digits are percent-encoded. Parameters for TLS: `ca=FILE` (who signed the
/// broker's certificate, beside whom the system trusts), `cert=FILE&key=FILE` (our certificate). `queues=quorum` makes the
/// queues of new jobs quorum queues, for a cluster; those that are there stay what they are.
///
/// ```
/// use anarchon::RabbitMqBackend;
///
/// let store = RabbitMqBackend::connect("amqp://localhost:5672/jobs?queues=quorum")?;
/// # Ok::<(), anarchon::Error>(())
/// ```
///
/// Each job has a durable queue `anarchon/NAMESPACE/JOB` with one persistent message, the token: its body is the record and the
/// newest runs, as JSON. Whoever has the token owns the record; a connection that dies gives it back. One connection an
/// instance, which comes back by itself, with a channel for each run. A clone is another handle with a connection of its own, not open yet; it may be opened for
/// another namespace. Where the application's connection was handed in, clones share that.
///
/// # Guarantees
///
/// - **Each instance goes by its own clock**, as the broker has none to ask: keep the clocks in step. An instance whose clock is
///   ahead starts jobs early by as much. It causes no two runs at once while the holder is connected: the
///   token of a run cannot be had, whatever the time.
/// - **The lease is twice the heartbeat of the connection**, which is half of the shortest lease of the instance's jobs in whole
///   seconds, or less where the broker says so. A frozen or cut off instance gives way after two to three heartbeats. That of
///   a killed one is back at once, and is taken over when its lease is over: an instance whose connection alone broke has its
///   handler still running, and gets the token back with its next renewal.
/// - **A record can be read and changed by the instance that runs it alone.** To others `inspect` shows a run by `unknown`. `trigger`,
///   `pause`, `resume` and `forget` wait for the end of the run for 8 s and then say so; `cancel` works on the instance that
///   runs the job, and between attempts, and is refused elsewhere.
/// - **An occurrence that was skipped while an instance ran the job** is written down by that instance, and by those that asked for
///   it. If it dies before, an instance that did not ask meanwhile may run that occurrence: one that was started later, was cut
///   off, or had no room.
/// - **No announcements.** A schedule stays in force until one of its occurrences is older than the catch-up window and nobody
///   has claimed it; then another one may take over. Until then a rolling update waits.
/// - **A token that nobody has** for 30 s and three heartbeats is told as lost, with its mend, `forget`. It is never made anew
///   by itself: two tokens would be two runs. Where somebody copied a token, what is found beside the record is told, with the
///   same mend; and with classic queues an award is refused that sees the run of the other one.
/// - **What the broker acknowledged survives its crash**: tokens are persistent, and each write is a transaction. A classic queue
///   lives on one node, and its job waits while that is down; logs tell by turns that the store does not answer and that it does, for
///   the other queues do. In a cluster set `cluster_partition_handling = pause_minority`.
///   Quorum queues survive the loss of a minority, and drop a message that is returned too often: 20 times, where nothing else
///   is said, from RabbitMQ 4 on. So each tenth look at a token writes it anew.
/// - **No policy of the broker that matches `^anarchon/`** may set `message-ttl`, `expires`, `max-length`, or a `delivery-limit`
///   below 20: they drop tokens.
/// - **A run that is renewed less often than the broker's `consumer_timeout`**, 30 min by default, loses its token for a while: that
///   takes a lease of more than 90 min. Nobody takes the run over before its lease is over, and its next renewal has it again.
/// - **Alarms.** While the broker is low on memory or disk space nothing can be claimed, renewed or closed, and runs are
///   cancelled at 0.7 of their lease; a warning tells when that begins.
/// - lapin logs at `error` whatever ends a channel, which the birth of a job does as well, and a connection; the store tells what it
///   means. `lapin=off` in a filter of the log leaves that out.
/// - About 80 KB of the broker's memory a job. Ten instances with a thousand jobs ask for two thousand tokens a second: each looks
///   at its jobs in turn, up to 1,000 every 5 s.
/// - The user needs `configure` and `read` for `^anarchon/`, and `write` for `^amq\.default$`; the page
///   [security](crate::guide::security) of the guide has what is enough for one namespace.
pub struct RabbitMqBackend(Arc<Shared>);

struct Shared {
    link: Link,
    namespace: RwLock<Option<Namespace>>,
    slots: Mutex<HashMap<(Namespace, JobName), Arc<Slot>>>,
    /// A connection that was handed in belongs to a runtime that a handler can block.
    is_blockable: bool,
}

impl RabbitMqBackend {
    /// The server that a URL names.
    ///
    /// Only looks at the URL; the connection is made by [`Store::open`], on the runtime that calls it.
    ///
    /// # Errors
    /// When the URL is none of those above.
    pub fn connect(url: &str) -> crate::Result<Self> {
        let address =
            Address::parse(url).map_err(|error| Error::new(ErrorKind::Configuration, error.to_string()))?;
        Ok(Self::new(Source::Address(Box::new(address)), false))
    }

    /// A connection of the application, used as it is; call it on the runtime that made the connection.
    ///
    /// Its heartbeat decides the leases. Nobody but the application can make it anew when it has ended: by URL the store does so
    /// itself.
    #[must_use]
    pub fn from_client(connection: Arc<lapin::Connection>) -> Self {
        let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
        Self::new(
            Source::Given(connection),
            flavor.is_ok_and(|flavor| flavor == RuntimeFlavor::CurrentThread),
        )
    }

    fn new(source: Source, is_blockable: bool) -> Self {
        Self(Arc::new(Shared {
            link: Link::new(source),
            namespace: RwLock::new(None),
            slots: Mutex::default(),
            is_blockable,
        }))
    }

    fn slot(&self, namespace: &Namespace, job: &JobName) -> Arc<Slot> {
        let mut slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entry((namespace.clone(), job.clone()));
        Arc::clone(slot.or_insert_with(|| Arc::new(Slot::new(namespace, job))))
    }

    /// Each item is a task of its own, which comes to its end also when nobody waits for it any more: half of one would
    /// leave open who has the token.
    #[expect(clippy::disallowed_methods, reason = "a caller that gives up must not end what has begun")]
    async fn batch<O: Operation>(&self, items: Vec<O>) -> Vec<Answer<O::Answer>> {
        let namespace = self.0.namespace.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(namespace) = namespace else {
            return items.iter().map(|_| Err(not_open(self))).collect();
        };
        let begin = |item: O| {
            let (slot, shared) = (self.slot(&namespace, item.job()), Arc::clone(&self.0));
            let (answer, answered) = oneshot::channel();
            tokio::spawn(async move {
                let done = slot.carry_out(&shared.link, &item, || !answer.is_closed()).await;
                // The caller may have stopped waiting.
                let _ = answer.send(done);
            });
            answered
        };
        let begun: Vec<_> = items.into_iter().map(begin).collect();
        let mut answers = Vec::with_capacity(begun.len());
        for answered in begun {
            let lost = |_| Err(StoreError::unknown("the runtime of the store ended"));
            answers.push(answered.await.unwrap_or_else(lost));
        }
        answers
    }

    /// Shows what the user may not do, before there is a job to lose.
    async fn check_permissions(&self, namespace: &Namespace) -> Result<Arc<Live>, StoreError> {
        let live = self.0.link.live().await?;
        let channel = live.channel(Mode::Plain).await?;
        let probe = format!("anarchon/{namespace}/:probe-{:016x}", fastrand::u64(..));
        let exclusive = QueueDeclareOptions::exclusive().auto_delete();
        // One after the other: a refusal ends the channel, and what is asked on it meanwhile is not told why.
        live.ask(channel.queue_declare((&*probe).into(), exclusive, FieldTable::default())).await?;
        live.ask(channel.basic_get((&*probe).into(), Default::default())).await?;
        live.write_nothing(&probe).await?;
        live.delete(&probe).await?;
        live.keep(channel, Mode::Plain);
        Ok(live)
    }
}

impl Clone for RabbitMqBackend {
    fn clone(&self) -> Self {
        Self::new(self.0.link.source().clone(), self.0.is_blockable)
    }
}

impl fmt::Debug for RabbitMqBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RabbitMqBackend").field(&self.0.link.shown).finish()
    }
}

#[async_trait]
impl Store for RabbitMqBackend {
    fn shortest_lease(&self, lease: Duration) {
        self.0.link.follow(lease);
    }

    async fn open(&self, namespace: &Namespace) -> Result<Guarantees, StoreError> {
        let live = self.check_permissions(namespace).await?;
        let heartbeat = live.heartbeat();
        if heartbeat.is_zero() {
            return Err(StoreError::misconfigured(format_args!(
                "{} has no heartbeat, so that a frozen holder would never give way; set heartbeat of the server to 1 or more",
                self.0.link.shown
            )));
        }
        if let Some(version) = live.version().filter(|version| greeting::is_too_old(version)) {
            return Err(StoreError::misconfigured(format_args!(
                "{} is of version {version}; use RabbitMQ 3.10 or later",
                self.0.link.shown
            )));
        }
        if self.0.is_blockable {
            tracing::warn!(
                store = self.0.link.shown,
                "the connection belongs to a runtime of one thread: a handler that blocks it stops the renewals as well; name \
                 the server by URL, or use a runtime of several threads"
            );
        }
        *self.0.namespace.write().unwrap_or_else(PoisonError::into_inner) = Some(namespace.clone());
        let quorum = self.0.link.is_quorum();
        let version = live.version().map(|version| format!(" {version}")).unwrap_or_default();
        let queues = if quorum { "quorum" } else { "classic" };
        Ok(Guarantees {
            clock: ClockSource::Local,
            lease: LeaseScope::PerConnection(2 * heartbeat..=3 * heartbeat),
            durability: if quorum { Durability::Replicated } else { Durability::Fsync },
            batch: Batch::Pipelined,
            beat: false,
            changes: false,
            history: HISTORY,
            held: HeldRecord::HolderOnly,
            ..Guarantees::new(format!("RabbitMQ{version}, {queues} queues"))
        })
    }

    async fn register(&self, specs: &[JobSpec]) -> Vec<Answer<Registered>> {
        self.batch(specs.to_vec()).await
    }

    async fn claim(&self, claims: &[Claim]) -> Vec<Answer<Verdict>> {
        self.batch(claims.to_vec()).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Vec<Answer<Renewed>> {
        self.batch(renewals.to_vec()).await
    }

    async fn finish(&self, finishes: &[Finish]) -> Vec<Answer<Finished>> {
        self.batch(finishes.to_vec()).await
    }

    async fn inspect(&self, jobs: &[JobName], history: u8) -> Vec<Answer<Option<Snapshot>>> {
        self.batch(jobs.iter().map(|job| Look { job: job.clone(), history }).collect()).await
    }

    async fn control(&self, controls: &[Control]) -> Vec<Answer<Controlled>> {
        self.batch(controls.to_vec()).await
    }

    async fn beat(&self, _announcement: &Announcement) -> Answer<Members> {
        let namespace = self.0.namespace.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(namespace) = namespace else { return Err(not_open(self)) };
        let live = self.0.link.live().await?;
        live.write_nothing(&format!("anarchon/{namespace}/:nobody")).await?;
        Ok(Stamped { value: Members::default(), now: now() })
    }

    async fn close(&self) {
        let slots: Vec<_> = {
            let mut slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.drain().map(|(_, slot)| slot).collect()
        };
        for slot in slots {
            slot.let_go().await;
        }
        self.0.link.close().await;
    }

    fn describe(&self) -> String {
        self.0.link.shown.clone()
    }
}
