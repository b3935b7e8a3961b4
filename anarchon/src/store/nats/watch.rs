//! The watch: a consumer that tells every value of the bucket, and every new one.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_nats::{Client, Message, Subscriber};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    cache::{Cache, Told, is_news},
    fault,
    hub::Hub,
    link::Link,
};
use crate::store::StoreError;

/// How often the server says that there is nothing to say.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// After twice this long without one, it is over. Twice, as who wakes from a freeze finds the first time over before it has
/// read what came meanwhile.
const SILENCE: Duration = Duration::from_secs(2);
/// How often a stream is looked for that should be there.
const TRIES: u32 = 30;
/// What nobody listens to is removed by the server after so long.
const INACTIVE: Duration = Duration::from_secs(30);

/// A watch that is read by a task of its own, until it is dropped or loses a message.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) cache: Arc<Mutex<Cache>>,
    /// The newest revision that was taken in; closed when the watch has ended.
    seen: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Begins to read all `subjects` of the stream, and takes in those that begin with `prefix`.
    pub(super) async fn begin(
        link: &Link,
        stream: &str,
        subjects: &str,
        prefix: &str,
        hub: &Arc<Hub>,
    ) -> Result<Self, StoreError> {
        let inbox = link.client.new_inbox();
        let subscriber = link.client.subscribe(inbox.clone()).await.map_err(|error| {
            StoreError::unavailable(format_args!("{link} cannot be subscribed to: {error}"))
        })?;
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let consumer = json!({
            "stream_name": stream,
            "config": {
                "deliver_subject": inbox,
                "deliver_policy": "last_per_subject",
                "filter_subject": subjects,
                "ack_policy": "none",
                "replay_policy": "instant",
                "max_deliver": 1,
                "flow_control": true,
                "idle_heartbeat": nanos(HEARTBEAT),
                "inactive_threshold": nanos(INACTIVE),
                "mem_storage": true,
                "num_replicas": 1,
            },
        });
        let mut tries = 0;
        loop {
            match link.ask(&format!("CONSUMER.CREATE.{stream}"), &consumer).await? {
                Ok(_) => break,
                // In a cluster the server that is asked may not have heard yet of a stream that was just made.
                Err(refusal) if refusal.code == fault::NOT_FOUND && tries < TRIES => {
                    tries += 1;
                    super::rounds::pause().await;
                }
                Err(refusal) => return Err(refusal.told(&link.to_string())),
            }
        }
        let cache = Arc::default();
        let (tell, seen) = watch::channel(0);
        let reading = Reading {
            client: link.client.clone(),
            prefix: prefix.to_owned(),
            cache: Arc::clone(&cache),
            hub: Arc::clone(hub),
            tell,
            delivered: 0,
        };
        Ok(Self { cache, seen, task: spawn(reading.read(subscriber)) })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.seen.has_changed().is_ok()
    }

    /// The newest revision that was taken in.
    pub(super) fn seen(&self) -> u64 {
        *self.seen.borrow()
    }

    /// Waits until all up to this revision is taken in; false if the watch has ended before.
    pub(super) async fn reaches(&self, revision: u64) -> bool {
        self.seen.clone().wait_for(|seen| *seen >= revision).await.is_ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "the watch is read, and leases are timed, while nobody calls")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(task)
}

struct Reading {
    client: Client,
    prefix: String,
    cache: Arc<Mutex<Cache>>,
    hub: Arc<Hub>,
    tell: watch::Sender<u64>,
    /// How many messages the consumer has sent.
    delivered: u64,
}

impl Reading {
    async fn read(mut self, mut messages: Subscriber) {
        while let Some(message) = next(&mut messages).await {
            let went_well =
                if message.status.is_some() { self.answer(&message).await } else { self.take_in(&message) };
            if !went_well {
                return;
            }
        }
    }

    /// A heartbeat, or the question whether we keep up. False if a message before it is missing.
    async fn answer(&self, message: &Message) -> bool {
        let header = |name| message.headers.as_ref()?.get(name).map(|value| value.as_str().to_owned());
        let stalled = header("Nats-Consumer-Stalled").map(Into::into);
        if let Some(reply) = message.reply.clone().or(stalled) {
            // Not answered, the consumer stands still, which shows.
            let _ = self.client.publish(reply, Vec::new().into()).await;
        }
        header("Nats-Last-Consumer")
            .and_then(|last| last.parse().ok())
            .is_none_or(|last: u64| last == self.delivered)
    }

    fn take_in(&mut self, message: &Message) -> bool {
        let at = self.hub.clock.mono();
        let Some(place) = message.reply.as_deref().and_then(Place::read) else { return false };
        if place.delivered != self.delivered + 1 {
            return false;
        }
        self.delivered = place.delivered;
        let headers = message.headers.as_ref();
        let is_deletion = headers.is_some_and(|headers| {
            headers
                .get("KV-Operation")
                .is_some_and(|operation| ["DEL", "PURGE"].contains(&operation.as_str()))
        });
        let payload = (!is_deletion).then_some(&message.payload[..]);
        if let Some(key) = message.subject.strip_prefix(&self.prefix) {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            let before = super::names::job(key).and_then(|job| cache.record(&job).cloned());
            match cache.hear(key, place.revision, payload) {
                Told::Job(job) => {
                    let after = cache.record(&job);
                    // Under the lock: a write of our own may be about to be taken in.
                    self.hub.saw(&job, after, at, Some(place.stored));
                    if is_news(before.as_ref(), after) {
                        self.hub.hint(&job);
                    }
                }
                Told::Member(_) | Told::Nothing => {}
            }
        }
        self.hub.heard(place.revision, place.stored, at);
        self.tell.send_replace(place.revision);
        true
    }
}

async fn next(messages: &mut Subscriber) -> Option<Message> {
    for _ in 0..2 {
        if let Ok(message) = tokio::time::timeout(SILENCE, messages.next()).await {
            return message;
        }
    }
    None
}

/// Where in the stream a message stands, as the subject for its acknowledgement tells.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    revision: u64,
    delivered: u64,
    /// In microseconds.
    stored: i64,
}

impl Place {
    /// `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<nanoseconds>.<pending>`; newer servers may put
    /// domain and account before the stream, and something behind (ADR-15).
    fn read(reply: &str) -> Option<Self> {
        let parts: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let first = match parts.len() {
            7 => 3,
            9.. => 5,
            _ => return None,
        };
        let number = |place: usize| parts.get(first + place)?.parse().ok();
        let nanos: i64 = parts.get(first + 2)?.parse().ok()?;
        Some(Self { revision: number(0)?, delivered: number(1)?, stored: nanos.div_euclid(1000) })
    }
}

/// The stream's creation time in an answer, as it stands in the keys.
pub(super) fn created(info: &Value) -> Option<String> {
    let text = info.get("created")?.as_str()?;
    let at = chrono::DateTime::parse_from_rfc3339(text).ok()?;
    Some(format!("{:x}", at.timestamp_nanos_opt()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_message_is_read_in_the_forms_of_all_servers() {
        let place = Some(Place { revision: 12, delivered: 3, stored: 1_700_000_000_123_456 });
        for reply in [
            "$JS.ACK.KV_b.c.1.12.3.1700000000123456789.0",
            "$JS.ACK._.hash.KV_b.c.1.12.3.1700000000123456789.0",
            "$JS.ACK._.hash.KV_b.c.1.12.3.1700000000123456789.0.random",
        ] {
            assert_eq!(Place::read(reply), place, "{reply}");
        }
        for reply in ["", "$JS.ACK.KV_b.c.1.12.3", "_INBOX.x", "$JS.ACK.KV_b.c.1.x.3.1.0"] {
            assert_eq!(Place::read(reply), None, "{reply}");
        }
    }

    #[test]
    fn buckets_made_at_different_times_have_different_keys() {
        let of = |text: &str| created(&json!({"created": text}));
        let one = of("2026-11-30T08:00:00.123456789Z").unwrap();
        assert_eq!(of("2026-11-30T10:00:00.123456789+02:00"), Some(one.clone()));
        assert_ne!(of("2026-11-30T08:00:00.123456788Z"), Some(one.clone()));
        assert!(one.bytes().all(|b| b.is_ascii_hexdigit()), "{one}");
        assert_eq!((of("yesterday"), created(&json!({}))), (None, None));
    }
}
