//! One instance's client, step by step like `store::nats`, on its own cache, clock and leases.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use anarchon::{
    clock::Mono,
    protocol::{Announcement, Fingerprint, InstanceId, JobName, LeaseEnd, Members, Record, StoreNow},
    store::{
        Answer, Snapshot, Stamped, StoreError,
        nats::{
            cache::{Cache, Entry, Told, Value, is_news},
            clock::ServerClock,
            decision::{self, Draft, Fate, Rule, Step, Time},
            leases::Leases,
            members::{self, Member},
            names,
            value::Kept,
        },
    },
};
use futures_util::{
    FutureExt as _,
    future::{LocalBoxFuture, Shared, join_all},
};
use tokio::sync::{mpsc, oneshot, watch};

use super::bucket::{Connection, Host, Judged, Message, Written, prefix};
use crate::{
    judge::At,
    mutation::Mutation,
    plan::SECOND,
    site::{Item, Server, Site},
};

/// As the product has them; microseconds.
const LOST: u64 = 1_500_000;
const SILENT: u64 = 700_000;
const PATIENCE: u64 = 10 * SECOND;
const PAUSE: u64 = 100_000;
const BEHIND: u64 = 3 * SECOND;
const SILENCE: u64 = 2 * SECOND;
const CONNECTING: u64 = 5 * SECOND;
const BEAT: Duration = Duration::from_secs(15);
const ROOM: usize = 1 << 20;

type Opening = Shared<LocalBoxFuture<'static, Result<Rc<Wire>, StoreError>>>;

enum State {
    None,
    Opening(Opening),
    Open(Rc<Wire>),
}

/// What one process knows across its connections.
pub(crate) struct Client {
    site: Rc<Site>,
    host: Rc<Host>,
    i: usize,
    clock: RefCell<ServerClock>,
    leases: RefCell<Leases>,
    state: RefCell<State>,
}

/// A connection with a bucket on it, and a watch.
pub(crate) struct Wire {
    client: Rc<Client>,
    connection: Rc<Connection>,
    is_given_up: Cell<bool>,
    created: u64,
    prefix: String,
    cache: Rc<RefCell<Cache>>,
    /// The newest revision that was taken in; closed when the watch has ended.
    seen: watch::Receiver<u64>,
}

/// The answer to a write, as the client sees it.
enum Put {
    Stored(u64),
    Refused,
    NoTaker,
    Failed(StoreError),
    Unanswered(StoreError),
}

enum Trouble {
    NotSent,
    Unanswered,
}

/// How far an item has come.
struct Work<T> {
    answer: Option<Answer<T>>,
    drafts: Vec<Box<Draft<T>>>,
    behind: Option<u64>,
    has_trouble: bool,
}

impl Client {
    pub(crate) fn new(site: &Rc<Site>, host: &Rc<Host>, i: usize) -> Rc<Self> {
        Rc::new(Self {
            site: Rc::clone(site),
            host: Rc::clone(host),
            i,
            clock: RefCell::default(),
            leases: RefCell::default(),
            state: RefCell::new(State::None),
        })
    }

    fn mono(&self) -> Mono {
        self.site.mono(self.i)
    }

    /// The process is gone: the server sees its connection end.
    pub(crate) fn cut(&self) {
        if let State::Open(wire) = &*self.state.borrow() {
            wire.connection.is_open.set(false);
        }
    }

    async fn wire(self: &Rc<Self>) -> Result<Rc<Wire>, StoreError> {
        let opening = {
            let mut state = self.state.borrow_mut();
            match &*state {
                State::Open(wire) if wire.is_open() => return Ok(Rc::clone(wire)),
                State::Opening(opening) => opening.clone(),
                State::Open(_) | State::None => {
                    let opening = Rc::clone(self).open().boxed_local().shared();
                    *state = State::Opening(opening.clone());
                    opening
                }
            }
        };
        let opened = opening.clone().await;
        let mut state = self.state.borrow_mut();
        if matches!(&*state, State::Opening(current) if current.ptr_eq(&opening)) {
            *state = match &opened {
                Ok(wire) => State::Open(Rc::clone(wire)),
                Err(_) => State::None,
            };
        }
        opened.map_err(StoreError::unavailable)
    }

    async fn open(self: Rc<Self>) -> Result<Rc<Wire>, StoreError> {
        let connection = Rc::new(Connection { i: self.i, is_open: Cell::new(true), heard: Cell::new(0) });
        let link = Link { client: &self, connection: &connection, is_given_up: &Cell::new(false) };
        let unreached = |_| StoreError::unavailable("not connected");
        if self.site.server() == Server::Down {
            self.site.sleep(1_000).await;
            return Err(StoreError::unavailable("refused"));
        }
        let connected = self.site.tasks.timeout(CONNECTING, link.request(|_| ())).await;
        connected.unwrap_or(Err(Trouble::Unanswered)).map_err(unreached)?;
        let created = link.request(Host::make).await.map_err(unreached)?;
        self.clock.borrow_mut().reconnected();
        let to = Rc::clone(&connection);
        let messages = link.request(move |host| host.watch(&to)).await.map_err(unreached)?;
        let messages = messages.ok_or_else(|| StoreError::unavailable("no bucket"))?;
        let (tell, seen) = watch::channel(0);
        let cache = Rc::new(RefCell::new(Cache::default()));
        let wire = Rc::new(Wire {
            client: Rc::clone(&self),
            connection,
            is_given_up: Cell::new(false),
            created,
            prefix: prefix(&self.site, created),
            cache: Rc::clone(&cache),
            seen,
        });
        let reading =
            Reading { client: Rc::clone(&self), prefix: wire.prefix.clone(), cache, tell, delivered: 0 };
        self.site.tasks.spawn(Some(self.i), reading.read(messages));
        for _ in 0..2 {
            wire.beat().await?;
        }
        Ok(wire)
    }

    fn saw(&self, job: &JobName, record: Option<&Record>, at: Mono, stored: Option<i64>) {
        match record {
            Some(record) => self.leases.borrow_mut().see(job, record, at, stored),
            None => self.leases.borrow_mut().forget(job),
        }
    }

    fn lease_end(&self, job: &JobName, kept: &Kept, now: StoreNow, at: Mono) -> LeaseEnd {
        if self.site.is(Mutation::LeaseEndsByUntil) {
            return LeaseEnd::ByClock;
        }
        let own = self.clock.borrow().newest_own();
        if self.site.is(Mutation::VoidIsIgnored) {
            let mut kept = kept.clone();
            kept.void_after = None;
            return self.leases.borrow().end(job, &kept, now, at, own);
        }
        self.leases.borrow().end(job, kept, now, at, own)
    }

    /// Carries out the items of one call.
    pub(crate) async fn batch<I: Item>(
        self: Rc<Self>,
        items: Vec<I>,
        rule: Rule<I, I::Answer>,
    ) -> Vec<Answer<I::Answer>> {
        match self.wire().await {
            Ok(wire) => wire.batch(&items, &rule).await,
            Err(error) => items.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    pub(crate) async fn inspect(self: Rc<Self>, jobs: Vec<JobName>) -> Vec<Answer<Option<Snapshot>>> {
        let all = |error: StoreError| jobs.iter().map(|_| Err(error.clone())).collect();
        let wire = match self.wire().await {
            Ok(wire) => wire,
            Err(error) => return all(error),
        };
        wire.freshen().await;
        if let Err(error) = wire.catch_up().await {
            return all(error);
        }
        let read = |job: &JobName| {
            let now = wire.now(self.mono())?;
            let value = match wire.job(job).value {
                Value::None => None,
                Value::Some(kept) => Some(Snapshot { record: kept.record, history: Vec::new() }),
                Value::Damaged(damage) => return Err(StoreError::misconfigured(damage)),
            };
            Ok(Stamped { value, now })
        };
        jobs.iter().map(read).collect()
    }

    pub(crate) async fn beat(self: Rc<Self>, announcement: Announcement) -> Answer<Members> {
        match &announcement {
            Announcement::Present { instance, schedules, zones, contested } => {
                self.announce(instance, contested, Some((schedules, zones))).await
            }
            Announcement::Withdrawn { instance } => self.announce(instance, &[], None).await,
        }
    }

    async fn announce(
        self: &Rc<Self>,
        me: &InstanceId,
        contested: &[(JobName, Fingerprint)],
        present: Option<(&[(JobName, Fingerprint)], &str)>,
    ) -> Answer<Members> {
        let wire = self.wire().await?;
        wire.freshen().await;
        if wire.cache.borrow().member(me).revision == 0 {
            wire.catch_up().await?;
        }
        for _ in 0..6 {
            let decided = self.mono();
            let now = wire.now(decided)?;
            let entry = wire.cache.borrow().member(me);
            let known = entry.value().is_some_and(|member| member.is_live(now));
            let member = match present {
                Some((schedules, zones)) => Member::new(now, schedules, zones),
                None if known => Member::withdrawn(now),
                None => {
                    wire.catch_up().await?;
                    return Ok(wire.told(now, false, me, contested));
                }
            };
            match wire.put(&names::of_member(me), Some(entry.revision), Some(member.encode()), None).await {
                Put::Stored(revision) => {
                    self.clock.borrow_mut().wrote(revision, decided);
                    wire.cache.borrow_mut().wrote_member(me, revision, Some(member));
                    wire.brings(revision).await?;
                    return Ok(wire.told(now, known, me, contested));
                }
                Put::Refused => wire.catch_up().await?,
                Put::NoTaker => return Err(no_taker()),
                Put::Failed(error) | Put::Unanswered(error) => return Err(error),
            }
        }
        Err(StoreError::unavailable("written by somebody else too"))
    }
}

/// What a request goes over.
struct Link<'a> {
    client: &'a Rc<Client>,
    connection: &'a Rc<Connection>,
    is_given_up: &'a Cell<bool>,
}

impl Link<'_> {
    async fn request<T: 'static>(&self, work: impl Fn(&Host) -> T + 'static) -> Result<T, Trouble> {
        if !self.connection.is_open.get() || self.is_given_up.get() {
            return Err(Trouble::NotSent);
        }
        let site = &self.client.site;
        let _silence = Silence { link: self, heard: self.connection.heard.get(), since: site.time() };
        let (tell, told) = oneshot::channel();
        let (host, connection) = (Rc::clone(&self.client.host), Rc::clone(self.connection));
        site.tasks.spawn(None, carry(Rc::clone(site), host, connection, work, tell));
        match site.tasks.timeout(LOST, told).await {
            Some(Ok(answer)) => Ok(answer),
            // The connection broke, or nothing came.
            Some(Err(_)) | None => {
                if !self.connection.is_open.get() {
                    self.is_given_up.set(true);
                }
                // Whoever is told at once that the connection broke is told so; the rest waits.
                Err(Trouble::Unanswered)
            }
        }
    }
}

/// A request on its way, at the server, and its answer on its way back.
async fn carry<T>(
    site: Rc<Site>,
    host: Rc<Host>,
    connection: Rc<Connection>,
    work: impl Fn(&Host) -> T,
    tell: oneshot::Sender<T>,
) {
    let (i, life) = (connection.i, site.life());
    if site.loses_request() {
        if site.random(fastrand::Rng::bool) {
            connection.is_open.set(false);
        } else {
            // Silence.
            site.sleep(LOST).await;
        }
        return;
    }
    let Some(at) = site.arrival(i) else { return site.sleep(LOST).await };
    site.tasks.sleep_until(at).await;
    if !site.is_taken_in(life).await {
        return;
    }
    let answer = work(&host);
    if site.doubles() {
        work(&host);
    }
    if site.loses_reply() {
        connection.is_open.set(false);
        return;
    }
    let Some(at) = site.arrival(i) else { return site.sleep(LOST).await };
    site.tasks.sleep_until(at).await;
    if connection.is_open.get() {
        connection.heard.set(connection.heard.get() + 1);
        let _ = tell.send(answer);
    }
}

/// Sees whether a connection was silent for as long as a call waited, however the call ended.
struct Silence<'a> {
    link: &'a Link<'a>,
    heard: u64,
    since: u64,
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        let waited = self.link.client.site.time() - self.since;
        if self.link.connection.heard.get() == self.heard && waited >= SILENT {
            self.link.is_given_up.set(true);
        }
    }
}

impl Wire {
    fn is_open(&self) -> bool {
        self.is_link_open() && self.seen.has_changed().is_ok()
    }

    fn is_link_open(&self) -> bool {
        self.connection.is_open.get() && !self.is_given_up.get()
    }

    fn give_up(&self) {
        self.is_given_up.set(true);
    }

    fn link(&self) -> Link<'_> {
        Link { client: &self.client, connection: &self.connection, is_given_up: &self.is_given_up }
    }

    fn job(&self, job: &JobName) -> Entry<Kept> {
        self.cache.borrow().job(job)
    }

    fn now(&self, at: Mono) -> Result<StoreNow, StoreError> {
        let now = self.client.clock.borrow_mut().now(at);
        now.ok_or_else(|| StoreError::unavailable("the time is not known"))
    }

    fn told(
        &self,
        now: StoreNow,
        known: bool,
        me: &InstanceId,
        contested: &[(JobName, Fingerprint)],
    ) -> Stamped<Members> {
        let cache = self.cache.borrow();
        Stamped { value: members::told(cache.members(), now, known, me, contested), now }
    }

    async fn freshen(&self) {
        let age = self.client.clock.borrow().own_age(self.client.mono());
        if age.is_none_or(|age| age > BEAT) {
            let _ = self.beat().await;
        }
    }

    async fn beat(&self) -> Result<(), StoreError> {
        let sent = self.client.mono();
        match self.put(names::CLOCK, None, Some(Vec::new()), None).await {
            Put::Stored(revision) => {
                self.client.clock.borrow_mut().wrote(revision, sent);
                self.brings(revision).await
            }
            Put::NoTaker | Put::Refused => Err(no_taker()),
            Put::Failed(error) | Put::Unanswered(error) => Err(error),
        }
    }

    async fn put(
        &self,
        key: &str,
        revision: Option<u64>,
        value: Option<Vec<u8>>,
        judged: Option<Judged>,
    ) -> Put {
        let key = format!("{}{key}", self.prefix);
        let payload = value.map(Rc::from);
        let link = self.link();
        let written = link.request(move |host| host.put(&key, revision, &payload, judged.as_ref()));
        match written.await {
            Ok(Written::Stored(revision)) => Put::Stored(revision),
            Ok(Written::Refused) => Put::Refused,
            Ok(Written::NoTaker) => Put::NoTaker,
            Err(Trouble::NotSent) => Put::Failed(StoreError::unavailable("the connection is broken")),
            Err(Trouble::Unanswered) => Put::Unanswered(StoreError::unknown("no answer")),
        }
    }

    async fn catch_up(&self) -> Result<(), StoreError> {
        let seen = *self.seen.borrow();
        let info = self.link().request(Host::info).await.map_err(|_| StoreError::unavailable("no answer"))?;
        let is_same = |created| created == self.created || self.client.site.is(Mutation::LostBucketIsTheSame);
        match info {
            Some((created, newest)) if is_same(created) && newest >= seen => self.brings(newest).await,
            Some(_) | None => {
                self.give_up();
                Err(StoreError::unavailable("the bucket was lost"))
            }
        }
    }

    async fn brings(&self, revision: u64) -> Result<(), StoreError> {
        let mut seen = self.seen.clone();
        let reaches = async move { seen.wait_for(|seen| *seen >= revision).await.is_ok() };
        match self.client.site.tasks.timeout(BEHIND, reaches).await {
            Some(true) => Ok(()),
            Some(false) | None => {
                self.give_up();
                Err(StoreError::unavailable("the watch has ended"))
            }
        }
    }

    async fn batch<I: Item>(&self, items: &[I], rule: &Rule<I, I::Answer>) -> Vec<Answer<I::Answer>> {
        self.freshen().await;
        let site = &self.client.site;
        let began = site.time();
        let new = || Work { answer: None, drafts: Vec::new(), behind: None, has_trouble: false };
        let mut work: Vec<Work<I::Answer>> = items.iter().map(|_| new()).collect();
        let mut is_caught_up = false;
        loop {
            let (needs_a_pause, needs_to_catch_up) = self.round(items, rule, &mut work, is_caught_up).await;
            is_caught_up = false;
            if work.iter().all(|work| work.answer.is_some()) {
                break;
            }
            if site.time() - began >= PATIENCE || !self.is_link_open() {
                break;
            }
            if needs_a_pause {
                site.sleep(PAUSE).await;
            }
            if needs_to_catch_up {
                match self.catch_up().await {
                    Ok(()) => {
                        is_caught_up = true;
                        self.recognise(items, rule, &mut work);
                    }
                    Err(_) if !self.is_open() => break,
                    Err(_) => {
                        for open in work.iter_mut().filter(|work| work.answer.is_none()) {
                            open.has_trouble = true;
                        }
                        site.sleep(PAUSE).await;
                    }
                }
            }
        }
        let unanswered = |work: Work<I::Answer>| {
            work.answer.unwrap_or_else(|| {
                Err(if work.drafts.is_empty() { no_taker() } else { StoreError::unknown("no answer") })
            })
        };
        work.into_iter().map(unanswered).collect()
    }

    async fn round<I: Item>(
        &self,
        items: &[I],
        rule: &Rule<I, I::Answer>,
        work: &mut [Work<I::Answer>],
        is_caught_up: bool,
    ) -> (bool, bool) {
        let (mut needs_a_pause, mut needs_to_catch_up) = (false, false);
        let mut sent = Vec::new();
        for (place, work) in work.iter_mut().enumerate().filter(|(_, work)| work.answer.is_none()) {
            if work.behind.is_some() && !is_caught_up {
                needs_to_catch_up = true;
                continue;
            }
            let item = &items[place];
            match self.decide(item, rule) {
                Ok(Step::Write(draft)) if draft.revision == 0 && !is_caught_up => needs_to_catch_up = true,
                Ok(Step::Write(draft)) => sent.push((place, draft)),
                Ok(Step::Say(answer)) if is_caught_up => {
                    self.said(item, rule, &answer);
                    work.answer = Some(Ok(answer));
                }
                Err(error) if is_caught_up => work.answer = Some(Err(error)),
                Ok(Step::Say(_)) | Err(_) => needs_to_catch_up = true,
            }
        }
        let writes = sent.iter().map(|(place, draft)| {
            let item = &items[*place];
            let key = names::of_job((rule.job)(item));
            let value = draft.kept.as_ref().map(|kept| kept.encode(ROOM));
            let judged = self.judged(item, rule, draft);
            async move { self.put(&key, Some(draft.revision), value, Some(judged)).await }
        });
        let outcomes = join_all(writes).await;
        for ((place, draft), outcome) in sent.into_iter().zip(outcomes) {
            let work = &mut work[place];
            match outcome {
                Put::Stored(revision) => {
                    self.wrote((rule.job)(&items[place]), revision, draft.kept, draft.decided);
                    work.answer = Some(Ok(draft.answer));
                }
                Put::Refused if work.behind == Some(draft.revision) => {
                    self.give_up();
                    work.has_trouble = true;
                }
                Put::Refused => {
                    work.behind = Some(draft.revision);
                    needs_to_catch_up = true;
                }
                Put::NoTaker => {
                    work.has_trouble = true;
                    needs_a_pause = true;
                }
                Put::Failed(error) if work.drafts.is_empty() => work.answer = Some(Err(error)),
                Put::Failed(error) => work.answer = Some(Err(StoreError::unknown(error))),
                Put::Unanswered(_) => {
                    work.has_trouble = true;
                    work.drafts.push(draft);
                }
            }
        }
        (needs_a_pause, needs_to_catch_up)
    }

    fn decide<I: Item>(&self, item: &I, rule: &Rule<I, I::Answer>) -> Result<Step<I::Answer>, StoreError> {
        let job = (rule.job)(item);
        let entry = self.job(job);
        let decided = self.client.mono();
        let now = self.now(decided)?;
        let end = |kept: &Kept| self.client.lease_end(job, kept, now, decided);
        let id = self.client.site.random(|rng| rng.u64(1..));
        let step = decision::decide(item, rule, &entry, end, Time { now, decided }, id);
        step.map_err(StoreError::misconfigured)
    }

    /// What the judge is told when a draft is stored.
    fn judged<I: Item>(&self, item: &I, rule: &Rule<I, I::Answer>, draft: &Draft<I::Answer>) -> Judged {
        let (site, item, answer) = (Rc::clone(&self.client.site), item.clone(), draft.answer.clone());
        let job = (rule.job)(&item).clone();
        let granted = (rule.lease)(&item).map(|(lease, _)| lease);
        let decided = site.time();
        Rc::new(move |before, after| {
            let at = At { now: answer.now, time: site.time(), from: decided, stored_after: granted };
            let (item, answer, job) = (item.clone(), answer.value.clone(), job.clone());
            site.note(move |judge| judge.saw(item.op(&answer), &job, before.as_ref(), after.as_ref(), at));
        })
    }

    /// An answer without a write, on what is cached.
    fn said<I: Item>(&self, item: &I, rule: &Rule<I, I::Answer>, answer: &Stamped<I::Answer>) {
        let job = (rule.job)(item).clone();
        let record = self.job(&job).value().map(|kept| kept.record.clone());
        let time = self.client.site.time();
        let at = At { now: answer.now, time, from: time, stored_after: None };
        let (item, answer) = (item.clone(), answer.value.clone());
        let note = move |judge: &mut crate::judge::Judge| {
            judge.saw(item.op(&answer), &job, record.as_ref(), record.as_ref(), at)
        };
        self.client.site.note(note);
    }

    fn wrote(&self, job: &JobName, revision: u64, kept: Option<Kept>, decided: Mono) {
        self.client.clock.borrow_mut().wrote(revision, decided);
        let record = kept.as_ref().map(|kept| kept.record.clone());
        if self.cache.borrow_mut().wrote_job(job, revision, kept) {
            self.client.saw(job, record.as_ref(), decided, None);
        }
    }

    fn recognise<I: Item>(&self, items: &[I], rule: &Rule<I, I::Answer>, work: &mut [Work<I::Answer>]) {
        for (work, item) in work.iter_mut().zip(items).filter(|(work, _)| work.answer.is_none()) {
            let job = (rule.job)(item);
            match decision::recognise(&mut work.drafts, &self.job(job)) {
                Fate::Stored(draft) => {
                    self.client.saw(job, draft.kept.as_ref().map(|kept| &kept.record), draft.decided, None);
                    work.answer = Some(Ok(draft.answer));
                }
                Fate::Unknown if !rule.is_repeatable => {
                    work.answer = Some(Err(StoreError::unknown("it may have been there before")));
                }
                Fate::Unknown | Fate::Open => {}
            }
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.connection.is_open.set(false);
    }
}

/// Reads a watch, until it loses a message or falls silent.
struct Reading {
    client: Rc<Client>,
    prefix: String,
    cache: Rc<RefCell<Cache>>,
    tell: watch::Sender<u64>,
    delivered: u64,
}

impl Reading {
    async fn read(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        while let Some(message) = self.next(&mut messages).await {
            let goes_on = match message {
                Message::Idle { delivered } => delivered == self.delivered,
                Message::Value { delivered, key, revision, stored, payload } => {
                    let follows = delivered == self.delivered + 1;
                    self.delivered = delivered;
                    if follows {
                        self.take_in(&key, revision, stored, payload.as_deref());
                    }
                    follows
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    async fn next(&self, messages: &mut mpsc::UnboundedReceiver<Message>) -> Option<Message> {
        for _ in 0..2 {
            if let Some(message) = self.client.site.tasks.timeout(SILENCE, messages.recv()).await {
                return message;
            }
        }
        None
    }

    fn take_in(&self, key: &str, revision: u64, stored: i64, payload: Option<&[u8]>) {
        let at = self.client.mono();
        if let Some(key) = key.strip_prefix(&self.prefix) {
            let mut cache = self.cache.borrow_mut();
            let before = names::job(key).and_then(|job| cache.record(&job).cloned());
            match cache.hear(key, revision, payload) {
                Told::Job(job) => {
                    let after = cache.record(&job);
                    self.client.saw(&job, after, at, Some(stored));
                    if is_news(before.as_ref(), after) {
                        self.client.site.hints.borrow_mut().push_back((self.client.i, job));
                    }
                }
                Told::Member(_) | Told::Nothing => {}
            }
        }
        self.client.clock.borrow_mut().heard(revision, stored, at);
        self.tell.send_replace(revision);
    }
}

fn no_taker() -> StoreError {
    StoreError::unavailable("nobody takes writes")
}
