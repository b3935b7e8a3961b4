//! The server: one bucket of keys with revisions, and those who watch it.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use anarchon::{protocol::Record, store::nats::value::Kept};
use tokio::sync::mpsc;

use crate::{
    mutation::Mutation,
    plan::SECOND,
    site::{Server, Site},
};

/// How long the newest writes may be lost.
const LAG: u64 = 3 * SECOND;

/// A connection; each side sees for itself that it has ended.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) i: usize,
    pub(crate) is_open: Cell<bool>,
    /// How many messages have come on it.
    pub(crate) heard: Cell<u64>,
}

/// The bytes of a value; none for a deletion.
type Payload = Option<Rc<[u8]>>;

#[derive(Debug, Clone)]
struct Stored {
    revision: u64,
    at: i64,
    payload: Payload,
    /// As the product reads it, once for all who ask.
    kept: Option<Rc<Kept>>,
}

/// What a watch tells.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    Value {
        delivered: u64,
        key: String,
        revision: u64,
        stored: i64,
        payload: Payload,
    },
    /// Nothing new; how many there were so far.
    Idle {
        delivered: u64,
    },
}

/// Somebody who watches.
#[derive(Debug)]
struct Consumer {
    to: Rc<Connection>,
    messages: mpsc::UnboundedSender<Message>,
    delivered: u64,
    /// When the newest message is there: none overtakes another.
    last: u64,
}

#[derive(Debug, Default)]
struct Bucket {
    /// The time of its creation.
    created: u64,
    last: u64,
    keys: BTreeMap<String, Stored>,
    /// What there was before each write of the last [`LAG`].
    replaced: VecDeque<(u64, String, Option<Stored>)>,
    consumers: Vec<Consumer>,
}

/// The answer to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    Stored(u64),
    Refused,
    NoTaker,
}

/// What is judged when a write is stored: the record before and after it.
pub(crate) type Judged = Rc<dyn Fn(Option<Record>, Option<Record>)>;

pub(crate) struct Host {
    site: Rc<Site>,
    bucket: RefCell<Option<Bucket>>,
    made: Cell<u64>,
}

impl Host {
    pub(crate) fn new(site: Rc<Site>) -> Rc<Self> {
        let host = Rc::new(Self { site, bucket: RefCell::default(), made: Cell::new(0) });
        host.site.tasks.spawn(None, Rc::clone(&host).beat());
        host
    }

    /// Tells those who watch that there is nothing new.
    async fn beat(self: Rc<Self>) {
        loop {
            self.site.sleep(SECOND).await;
            if self.site.server() == Server::Up
                && let Some(bucket) = &mut *self.bucket.borrow_mut()
            {
                bucket.consumers.retain(|consumer| consumer.to.is_open.get());
                for consumer in &mut bucket.consumers {
                    let message = Message::Idle { delivered: consumer.delivered };
                    tell(&self.site, consumer, message);
                }
            }
        }
    }

    /// Creation time and newest revision.
    pub(crate) fn info(&self) -> Option<(u64, u64)> {
        self.bucket.borrow().as_ref().map(|bucket| (bucket.created, bucket.last))
    }

    /// Makes the bucket where there is none.
    pub(crate) fn make(&self) -> u64 {
        let mut bucket = self.bucket.borrow_mut();
        if bucket.is_none() {
            self.made.set(self.made.get() + 1);
        }
        bucket.get_or_insert_with(|| Bucket { created: self.made.get(), ..Bucket::default() }).created
    }

    /// Begins to tell all values, and every new one; `None` without a bucket.
    pub(crate) fn watch(&self, to: &Rc<Connection>) -> Option<mpsc::UnboundedReceiver<Message>> {
        let mut bucket = self.bucket.borrow_mut();
        let bucket = bucket.as_mut()?;
        let (messages, received) = mpsc::unbounded_channel();
        let mut consumer = Consumer { to: Rc::clone(to), messages, delivered: 0, last: 0 };
        let mut all: Vec<(&String, &Stored)> = bucket.keys.iter().collect();
        all.sort_by_key(|(_, stored)| stored.revision);
        for (key, stored) in all {
            tell_value(&self.site, &mut consumer, key, stored);
        }
        bucket.consumers.push(consumer);
        Some(received)
    }

    /// Writes a key on top of `revision`, where one is named.
    pub(crate) fn put(
        &self,
        key: &str,
        revision: Option<u64>,
        payload: &Payload,
        judged: Option<&Judged>,
    ) -> Written {
        let mut bucket = self.bucket.borrow_mut();
        let Some(bucket) = bucket.as_mut() else { return Written::NoTaker };
        let before = bucket.keys.get(key).cloned();
        let newest = before.as_ref().map_or(0, |stored| stored.revision);
        self.site.log(|| format!("server: put {key} on {revision:?}, newest {newest}"));
        if revision.is_some_and(|revision| revision != newest) && !self.site.is(Mutation::NoRevisionCheck) {
            return Written::Refused;
        }
        bucket.last += 1;
        let kept = payload.as_deref().and_then(|payload| Kept::decode(payload).ok()).map(Rc::new);
        let at = self.site.server_now().0;
        let stored = Stored { revision: bucket.last, at, payload: payload.clone(), kept };
        let time = self.site.time();
        while bucket.replaced.pop_front_if(|(at, ..)| *at + LAG < time).is_some() {}
        bucket.replaced.push_back((time, key.to_owned(), before.clone()));
        bucket.keys.insert(key.to_owned(), stored.clone());
        bucket.consumers.retain(|consumer| consumer.to.is_open.get());
        for consumer in &mut bucket.consumers {
            tell_value(&self.site, consumer, key, &stored);
        }
        // Beside the keys that others look at it changes nothing.
        if let Some(judged) = judged
            && key.starts_with(&prefix(&self.site, bucket.created))
        {
            judged(before.and_then(|stored| record(&stored)), record(&stored));
        }
        Written::Stored(stored.revision)
    }

    fn stored(&self, key: &str) -> Option<Stored> {
        let bucket = self.bucket.borrow();
        let bucket = bucket.as_ref()?;
        bucket.keys.get(&format!("{}{key}", prefix(&self.site, bucket.created))).cloned()
    }

    pub(crate) fn record(&self, key: &str) -> Option<Record> {
        record(&self.stored(key)?)
    }

    /// Each run is a line behind that of the record.
    pub(crate) fn kept_runs(&self, key: &str) -> usize {
        let payload = self.stored(key).and_then(|stored| stored.payload);
        payload.map_or(0, |payload| payload.iter().filter(|byte| **byte == b'\n').count())
    }

    pub(crate) fn lose_data(&self) {
        *self.bucket.borrow_mut() = None;
    }

    pub(crate) fn lose_newest(&self, since: u64) {
        let mut bucket = self.bucket.borrow_mut();
        let Some(bucket) = bucket.as_mut() else { return };
        while let Some((_, key, before)) = bucket.replaced.pop_back_if(|(at, ..)| *at >= since) {
            bucket.last -= 1;
            match before {
                Some(before) => bucket.keys.insert(key, before),
                None => bucket.keys.remove(&key),
            };
        }
    }

    pub(crate) fn drop_consumers(&self) {
        if let Some(bucket) = &mut *self.bucket.borrow_mut() {
            bucket.consumers.clear();
        }
    }
}

/// What the keys of a bucket begin with.
pub(crate) fn prefix(site: &Site, created: u64) -> String {
    if site.is(Mutation::LostBucketIsTheSame) { String::new() } else { format!("{created:x}.") }
}

fn record(stored: &Stored) -> Option<Record> {
    Some(stored.kept.as_ref()?.record.clone())
}

fn tell_value(site: &Rc<Site>, consumer: &mut Consumer, key: &str, stored: &Stored) {
    consumer.delivered += 1;
    let message = Message::Value {
        delivered: consumer.delivered,
        key: key.to_owned(),
        revision: stored.revision,
        stored: stored.at,
        payload: stored.payload.clone(),
    };
    if !site.loses_message() {
        tell(site, consumer, message);
    }
}

fn tell(site: &Rc<Site>, consumer: &mut Consumer, message: Message) {
    consumer.last = site.heard_at(consumer.to.i).max(consumer.last);
    let (at, to, messages) = (consumer.last, Rc::clone(&consumer.to), consumer.messages.clone());
    let tasks = site.tasks.clone();
    site.tasks.spawn(None, async move {
        tasks.sleep_until(at).await;
        if to.is_open.get() {
            to.heard.set(to.heard.get() + 1);
            // The watch may have ended.
            let _ = messages.send(message);
        }
    });
}
