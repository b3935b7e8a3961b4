//! A connection with a bucket on it, and a watch that has read all of the bucket.

use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};

use super::{
    bucket::{self, Found},
    cache::{Cache, Entry},
    fault::{self, Refusal},
    hub::Hub,
    link::{Door, Link, Put},
    members::Member,
    names,
    rounds::pause,
    value::Kept,
    watch::{self, Watch},
};
use crate::{
    clock::Mono,
    protocol::{InstanceId, JobName, Namespace, StoreNow},
    store::{Guarantees, StoreError},
};

/// How often a server is asked again that seems to be behind what was seen.
const LAGS: u32 = 5;
/// How long the watch may take to bring what the server said it has.
const BEHIND: std::time::Duration = std::time::Duration::from_secs(3);
/// A message of our own, for the server's time, is sent when the newest is older than this.
const BEAT: std::time::Duration = std::time::Duration::from_secs(15);
/// What a value may not use of the largest message: subject and headers.
const HEADROOM: usize = 1024;
/// Where a watch answers the server that it has kept up; not allowed to, it stands still.
const FLOW: &str = "$JS.FC.";
/// More are kept by no version.
const MOST_REPLICAS: u8 = 5;
/// How many replicas a cluster keeps, unless told.
const REPLICAS: u8 = 3;
/// From this version on a replicated stream takes one of several writes on top of one revision. Before, its leader compares
/// them while the first is still on its way to the others, and takes them all: seen on 2.9.10, and told in issue 4320 of
/// nats-server, of which parts were mended until 2.10.23.
const COMPARES: (i64, i64, i64) = (2, 11, 0);

/// What calls are carried out on. Everything is read anew on the next one.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) hub: Arc<Hub>,
    pub(super) link: Link,
    stream: String,
    /// Of the stream: another one under the same name is another bucket.
    created: String,
    /// What the keys of this bucket begin with, its creation time in it: a cached record of before it was lost passes no
    /// revision check by chance.
    prefix: String,
    watch: Watch,
    began: tokio::time::Instant,
    pub(super) guarantees: Guarantees,
}

impl Wire {
    /// Connects, makes the bucket where there is none, checks its settings, and reads all of it.
    pub(super) async fn open(
        door: Door,
        hub: Arc<Hub>,
        namespace: Namespace,
        replicas: Option<u8>,
    ) -> Result<Arc<Self>, StoreError> {
        let link = Link::open(&door).await?;
        let bucket = names::bucket(&namespace);
        let info = find_or_make(&link, &bucket, replicas).await?;
        let created =
            watch::created(&info).ok_or_else(|| link.foreign(&"it does not tell the stream's age"))?;
        let found = settings(&link, &bucket, &info, replicas)?;
        let server = link.client.server_info();
        let guarantees = found.guarantees(&server.version);
        let stream = bucket::stream(&bucket);
        let prefix = format!("{}{created}.", bucket::subject(&bucket));
        hub.server().reconnected();
        let began = tokio::time::Instant::now();
        let watch = Watch::begin(&link, &stream, &bucket::subjects(&bucket), &prefix, &hub).await?;
        let wire = Self { hub, link, stream, created, prefix, watch, began, guarantees };
        // All that was there before the first is read when it comes; the second was sent after that.
        for _ in 0..2 {
            wire.beat().await?;
        }
        Ok(Arc::new(wire))
    }

    /// Whether it can be called on.
    pub(super) fn is_open(&self) -> bool {
        self.link.is_open() && self.watch.is_alive()
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        // Every write to it is whole.
        self.watch.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn job(&self, job: &JobName) -> Entry<Kept> {
        self.cache().job(job)
    }

    pub(super) fn member(&self, instance: &InstanceId) -> Entry<Member> {
        self.cache().member(instance)
    }

    /// Looks at all announcements.
    pub(super) fn with_cache<T>(&self, look: impl FnOnce(&Cache) -> T) -> T {
        look(&self.cache())
    }

    /// What the server's clock has surely reached.
    pub(super) fn now(&self, at: Mono) -> Result<StoreNow, StoreError> {
        self.hub.server().now(at).ok_or_else(|| {
            StoreError::unavailable(format_args!(
                "the time of {} is not known: it took no message of ours for 30 s",
                self.link
            ))
        })
    }

    /// Sees that the server's time is known, and well; or says why it cannot be.
    pub(super) async fn freshen(&self) -> Result<(), StoreError> {
        let age = self.hub.server().own_age(self.hub.clock.mono());
        if age.is_some_and(|age| age <= BEAT) {
            return Ok(());
        }
        let beat = self.beat().await;
        // While it is known well enough, what fails is told by what follows.
        if self.now(self.hub.clock.mono()).is_ok() { Ok(()) } else { beat }
    }

    /// Sends a message that tells us the server's time, and waits until it has come back.
    pub(super) async fn beat(&self) -> Result<(), StoreError> {
        let sent = self.hub.clock.mono();
        // Without a revision: nobody reads its value, and there is nothing that it could undo.
        match self.put(names::CLOCK, None, Some(Vec::new())).await {
            Put::Stored(revision) => {
                self.hub.server().wrote(revision, sent);
                self.brings(revision).await
            }
            Put::NoTaker => Err(self.no_taker()),
            Put::Refused(_) => Err(self.link.foreign(&"it compares what it was not asked to")),
            Put::Failed(error) | Put::Unanswered(error) => Err(error),
        }
    }

    pub(super) fn no_taker(&self) -> StoreError {
        StoreError::unavailable(format_args!(
            "{} takes no writes for stream {} at the moment: it has no leader, or it is gone",
            self.link, self.stream
        ))
    }

    pub(super) async fn put(&self, key: &str, revision: Option<u64>, value: Option<Vec<u8>>) -> Put {
        self.link.put(format!("{}{key}", self.prefix), revision, value).await
    }

    /// The value of a record, short enough for the server.
    pub(super) fn encode(&self, kept: &Kept) -> Vec<u8> {
        kept.encode(self.link.client.max_payload().saturating_sub(HEADROOM))
    }

    /// Takes in a write of our own that was decided at `decided`.
    pub(super) fn wrote_job(&self, job: &JobName, revision: u64, kept: Option<Kept>, decided: Mono) {
        self.hub.server().wrote(revision, decided);
        let record = kept.as_ref().map(|kept| kept.record.clone());
        let mut cache = self.cache();
        if cache.wrote_job(job, revision, kept) {
            // Under the lock: the watch may be about to see a newer one.
            self.hub.saw(job, record.as_ref(), decided, None);
        }
    }

    pub(super) fn wrote_member(&self, instance: &InstanceId, revision: u64, member: Member, decided: Mono) {
        self.hub.server().wrote(revision, decided);
        self.cache().wrote_member(instance, revision, Some(member));
    }

    /// Waits until all that the server has now is read.
    pub(super) async fn catch_up(&self) -> Result<(), StoreError> {
        // Our own writes too: one whose message has not come is known by its reply alone.
        let seen = self.watch.seen().max(self.cache().newest());
        let mut lags = 0;
        loop {
            let info = match self.link.ask(&format!("STREAM.INFO.{}", self.stream), &json!({})).await? {
                Ok(info) => info,
                Err(refusal) => {
                    if refusal.code == fault::NOT_FOUND {
                        self.link.give_up();
                    }
                    return Err(refusal.told(&self.link.to_string()));
                }
            };
            let newest = info.pointer("/state/last_seq").and_then(Value::as_u64);
            let is_same = watch::created(&info).as_deref() == Some(self.created.as_str());
            match newest {
                // Revisions of a bucket never go back.
                Some(newest) if is_same && newest >= seen => return self.brings(newest).await,
                // A new leader answers before it has caught up with what it shall lead.
                Some(_) if is_same && lags < LAGS => {
                    lags += 1;
                    pause().await;
                }
                Some(_) | None => {
                    self.link.give_up();
                    let what = match newest {
                        _ if !is_same => "was lost and made anew",
                        Some(_) => "has lost its newest records",
                        None => "does not say how far it has come",
                    };
                    return Err(StoreError::unavailable(format_args!(
                        "stream {} of {} {what}; it is read anew, look at the server's log for why",
                        self.stream, self.link
                    )));
                }
            }
        }
    }

    pub(super) async fn brings(&self, revision: u64) -> Result<(), StoreError> {
        match tokio::time::timeout(BEHIND, self.watch.reaches(revision)).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => {
                self.link.give_up();
                Err(self.link.not_allowed(FLOW, self.began).unwrap_or_else(|| {
                    StoreError::unavailable(format_args!(
                        "the watch of stream {} of {} has ended",
                        self.stream, self.link
                    ))
                }))
            }
        }
    }

    /// Removes the key of an instance that is gone for long; whatever goes wrong is for the next to mend.
    pub(super) async fn sweep(&self, instance: &InstanceId, entry: &Entry<Member>) {
        let which = json!({
            "filter": format!("{}{}", self.prefix, names::of_member(instance)),
            "seq": entry.revision.saturating_add(1),
        });
        if let Ok(Ok(_)) = self.link.ask(&format!("STREAM.PURGE.{}", self.stream), &which).await {
            self.cache().drop_member(instance);
        }
    }

    /// Whether the server surely has no such key any more; the watch is told of deletions, and not of a purge.
    pub(super) async fn is_gone(&self, key: &str) -> bool {
        let which = json!({ "last_by_subj": format!("{}{key}", self.prefix) });
        let answer = self.link.ask(&format!("STREAM.MSG.GET.{}", self.stream), &which).await;
        matches!(answer, Ok(Err(refusal)) if refusal.code == fault::NO_MESSAGE)
    }

    /// A key that the server does not have any more, without a word: somebody purged it.
    pub(super) fn is_purged(&self, instance: &InstanceId) {
        self.cache().drop_member(instance);
    }
}

/// What the server tells of the bucket.
async fn find_or_make(link: &Link, bucket: &str, replicas: Option<u8>) -> Result<Value, StoreError> {
    let stream = bucket::stream(bucket);
    let info = format!("STREAM.INFO.{stream}");
    let told = |refusal: Refusal| refusal.told(&link.to_string());
    if let Some(wrong) = replicas.filter(|replicas| !(1..=MOST_REPLICAS).contains(replicas)) {
        return Err(StoreError::misconfigured(format_args!(
            "replicas({wrong}) is no number of replicas that JetStream keeps; take an odd one up to {MOST_REPLICAS}, such as {REPLICAS}"
        )));
    }
    match link.ask(&info, &json!({})).await? {
        Ok(info) => return Ok(info),
        Err(refusal) if refusal.code == fault::NOT_FOUND => {}
        Err(refusal) => return Err(told(refusal)),
    }
    let is_cluster = link.client.server_info().cluster.is_some_and(|name| !name.is_empty());
    if is_cluster && !compares(link) && replicas.is_none() {
        tracing::warn!(
            store = %link,
            "the bucket has one replica, as a cluster of this version lets two writes win in more; with NATS 2.11 or later, \
             give it more with: nats stream edit {stream} --replicas {REPLICAS}"
        );
    }
    let wanted = replicas.unwrap_or(if is_cluster && compares(link) { REPLICAS } else { 1 });
    if wanted > 1 && !compares(link) {
        return Err(too_old(link, bucket));
    }
    let make = async |replicas| {
        link.ask(&format!("STREAM.CREATE.{stream}"), &bucket::settings(bucket, replicas)).await
    };
    let mut made = make(wanted).await?;
    if let Err(refusal) = &made
        && [fault::NO_PEERS, fault::NO_REPLICAS].contains(&refusal.code)
        && replicas.is_none()
        && wanted > 1
    {
        tracing::warn!(
            store = %link,
            "the cluster has too few servers for {wanted} replicas: the bucket has one; when there are more servers, give it \
             more with: nats stream edit {stream} --replicas {wanted}"
        );
        made = make(1).await?;
    }
    match made {
        Ok(info) => Ok(info),
        // Somebody else was faster, with other settings.
        Err(refusal) if refusal.code == fault::NAME_IN_USE => {
            link.ask(&info, &json!({})).await?.map_err(told)
        }
        Err(refusal) => Err(told(refusal)),
    }
}

fn compares(link: &Link) -> bool {
    let (major, minor, patch) = COMPARES;
    link.client.is_server_compatible(major, minor, patch)
}

fn too_old(link: &Link, bucket: &str) -> StoreError {
    StoreError::misconfigured(format_args!(
        "{link} is of version {}, which lets two claims win in a replicated bucket; update its servers to 2.11 or later, or keep \
         one replica: with replicas(1), and nats stream edit {} --replicas 1 where there are more",
        link.client.server_info().version,
        bucket::stream(bucket)
    ))
}

fn settings(link: &Link, bucket: &str, info: &Value, replicas: Option<u8>) -> Result<Found, StoreError> {
    let config = info.get("config").ok_or_else(|| link.foreign(&"it does not tell the stream's settings"))?;
    let wrong = |why: &str| {
        StoreError::misconfigured(format_args!("the bucket \"{bucket}\" of {link} cannot be used: {why}"))
    };
    let found = bucket::check(bucket, config).map_err(|why| wrong(&why))?;
    if found.replicas > 1 && !compares(link) {
        return Err(too_old(link, bucket));
    }
    match replicas.map(u64::from) {
        Some(wanted) if found.replicas < wanted => Err(wrong(&format!(
            "it has {} of {wanted} replicas; give it more with: nats stream edit {} --replicas {wanted}",
            found.replicas,
            bucket::stream(bucket)
        ))),
        Some(_) | None => Ok(found),
    }
}
