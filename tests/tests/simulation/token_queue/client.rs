//! One instance's client, step by step like `store::rabbitmq`, on its own wall clock.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::{Rc, Weak},
};

use anarchon::{
    clock::Mono,
    protocol::{
        Claim, Control, Decision, Finish, JobName, JobSpec, LeaseEnd, Millis, Record, Renewal, Status,
        StoreNow, Write, claim,
    },
    store::{
        Answer, Stamped, StoreError,
        rabbitmq::{
            body::Body,
            operation::{Elsewhere, Look, Operation},
            state::{Missing, Unseen},
        },
    },
};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::broker::{Broker, Connection, Delivery, NotFound};
use crate::{
    judge::At,
    mutation::Mutation,
    plan::SECOND,
    site::{Item, Server, Site},
};

/// As the product has them; microseconds.
const TRANSIT: u64 = 10 * SECOND;
const ORDER: u64 = 8 * SECOND;
const SOON: u64 = 5_000;
const LATER: u64 = 50_000;
const LONGEST_SLEEP: u64 = 5 * SECOND;
const CONNECTING: u64 = 5 * SECOND;
const LEAST_PATIENCE: u64 = 2 * SECOND;
const MOST_PATIENCE: u64 = 10 * SECOND;

/// One item of a call, and how the judge hears of it; a look changes nothing.
pub(crate) trait Judged: Operation {
    fn saw(self, answer: Self::Answer, before: Option<Record>, after: Option<Record>, at: At, site: &Site);
    /// The claim that it is.
    fn claim(&self) -> Option<&Claim> {
        None
    }
}

fn note<I: Item>(
    item: I,
    job: JobName,
    answer: I::Answer,
    records: [Option<Record>; 2],
    at: At,
    site: &Site,
) {
    site.note(move |judge| {
        let [before, after] = records;
        judge.saw(item.op(&answer), &job, before.as_ref(), after.as_ref(), at);
    });
}

macro_rules! judged {
    ($($item:ty $(, $claim:ident)?;)*) => {$(
        impl Judged for $item {
            fn saw(self, answer: Self::Answer, before: Option<Record>, after: Option<Record>, at: At, site: &Site) {
                let job = self.job.clone();
                note(self, job, answer, [before, after], at, site);
            }
            $(fn $claim(&self) -> Option<&Claim> {
                Some(self)
            })?
        }
    )*};
}

judged! {
    JobSpec;
    Claim, claim;
    Renewal;
    Finish;
    Control;
}

impl Judged for Look {
    fn saw(self, _: Self::Answer, _: Option<Record>, _: Option<Record>, _: At, _: &Site) {}
}

pub(crate) struct Client {
    site: Rc<Site>,
    broker: Rc<Broker>,
    i: usize,
    heartbeat: u64,
    live: Mutex<Option<Rc<Connection>>>,
    /// What there is now, for those who must not wait.
    current: RefCell<Vec<Rc<Connection>>>,
    slots: RefCell<HashMap<JobName, Rc<Slot>>>,
}

/// A channel; what is open on it ends with it.
struct Channel {
    client: Rc<Client>,
    live: Rc<Connection>,
    number: u64,
    is_clean: Cell<bool>,
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.is_clean.get() && self.live.is_open.get() {
            let number = self.number;
            self.client.send(&self.live, move |broker| broker.close(number));
        }
    }
}

/// A job as one handle sees it.
struct Slot {
    client: Rc<Client>,
    queue: String,
    mark: String,
    boot: String,
    state: Mutex<State>,
}

struct State {
    held: Option<Held>,
    birth: Option<u64>,
    seen: Option<Record>,
    skipped: Millis,
    torn: bool,
    /// The first look in vain, and what the store makes of all of them.
    missing: Option<(Mono, Missing)>,
}

impl State {
    fn new(birth: Option<u64>) -> Self {
        Self { held: None, birth, seen: None, skipped: Millis(i64::MIN), torn: false, missing: None }
    }
}

/// A token that a run of this handle has.
struct Held {
    channel: Channel,
    consumer: u64,
    deliveries: mpsc::UnboundedReceiver<Delivery>,
    sign: u64,
    tag: u64,
    body: Body,
}

/// What only the judge may know of a job whose mark shows a run.
#[derive(Clone, Copy)]
struct Truth {
    is_run: bool,
    birth: Option<u64>,
}

enum Found {
    Token(Box<(Channel, Delivery)>),
    Absent,
    Held(Truth),
    Transit,
    Lost,
}

enum Tried<T> {
    Answered(Stamped<T>),
    Held,
    Busy(u64),
}

impl Client {
    pub(crate) fn new(site: &Rc<Site>, broker: &Rc<Broker>, i: usize, heartbeat: u64) -> Rc<Self> {
        Rc::new(Self {
            site: Rc::clone(site),
            broker: Rc::clone(broker),
            i,
            heartbeat,
            live: Mutex::new(None),
            current: RefCell::default(),
            slots: RefCell::default(),
        })
    }

    /// The process is gone.
    pub(crate) fn cut(&self) {
        for connection in self.current.borrow_mut().drain(..) {
            self.broker.closed(&connection);
        }
    }

    pub(crate) async fn item<O: Judged>(
        self: Rc<Self>,
        operation: O,
        is_wanted: Rc<Cell<bool>>,
    ) -> Answer<O::Answer> {
        let slot = self.slot(operation.job());
        slot.carry_out(&operation, &is_wanted).await
    }

    fn slot(self: &Rc<Self>, job: &JobName) -> Rc<Slot> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.entry(job.clone()).or_insert_with(|| Rc::new(Slot::new(self, job)));
        Rc::clone(slot)
    }

    fn now(&self) -> StoreNow {
        self.site.wall(self.i)
    }

    async fn live(&self) -> Result<Rc<Connection>, StoreError> {
        let mut live = self.live.lock().await;
        if let Some(live) = live.as_ref().filter(|live| live.is_open.get()) {
            return Ok(Rc::clone(live));
        }
        *live = None;
        if self.site.server() == Server::Down {
            self.site.sleep(1_000).await;
            return Err(StoreError::unavailable("refused"));
        }
        let made = Connection::new(self.site.random(|rng| rng.u64(..)), self.i, self.heartbeat);
        self.current.borrow_mut().retain(|connection| connection.is_open.get());
        self.current.borrow_mut().push(Rc::clone(&made));
        let (tell, told) = oneshot::channel();
        let (site, broker, connection, life) =
            (Rc::clone(&self.site), Rc::clone(&self.broker), Rc::clone(&made), self.site.life());
        self.site.tasks.spawn(None, async move {
            let Some(at) = connection.reaches(&site) else { return site.sleep(CONNECTING).await };
            site.tasks.sleep_until(at).await;
            if site.is_taken_in(life).await && connection.is_open.get() {
                broker.accept(&connection);
                if broker.serve(&connection, |_| ()).await.is_some() {
                    let _ = tell.send(());
                }
            }
        });
        match self.site.tasks.timeout(CONNECTING, told).await {
            Some(Ok(())) => {
                *live = Some(Rc::clone(&made));
                Ok(made)
            }
            Some(Err(_)) | None => {
                self.broker.closed(&made);
                Err(StoreError::unavailable("not connected"))
            }
        }
    }

    fn channel(self: &Rc<Self>, live: &Rc<Connection>) -> Channel {
        let number = self.site.random(|rng| rng.u64(..));
        Channel { client: Rc::clone(self), live: Rc::clone(live), number, is_clean: Cell::new(false) }
    }

    /// Sends a request; its answer comes, if it does.
    fn send<T: 'static>(
        &self,
        live: &Rc<Connection>,
        work: impl FnOnce(&Broker) -> T + 'static,
    ) -> oneshot::Receiver<T> {
        let (tell, told) = oneshot::channel();
        let (site, broker, live, life) =
            (Rc::clone(&self.site), Rc::clone(&self.broker), Rc::clone(live), self.site.life());
        if !live.is_open.get() {
            return told;
        }
        if site.loses_request() {
            // Nothing of what is sent from here on comes.
            broker.closed(&live);
            return told;
        }
        let reaches = live.reaches(&site);
        self.site.tasks.spawn(None, async move {
            let Some(at) = reaches else { return };
            site.tasks.sleep_until(at).await;
            if !site.is_taken_in(life).await {
                return;
            }
            let answer = broker.serve(&live, work).await;
            if site.loses_reply() {
                broker.closed(&live);
            }
            if let Some(answer) = answer
                && live.is_open.get()
            {
                let _ = tell.send(answer);
            }
        });
        told
    }

    /// Waits for an answer; a broker that gives none has lost this connection.
    async fn answer<T>(&self, live: &Rc<Connection>, told: oneshot::Receiver<T>) -> Result<T, StoreError> {
        let patience = self.heartbeat.clamp(LEAST_PATIENCE, MOST_PATIENCE);
        match self.site.tasks.timeout(patience, told).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(_)) => Err(StoreError::unavailable("the connection broke")),
            None => {
                self.broker.closed(live);
                Err(StoreError::unavailable("no answer in time"))
            }
        }
    }

    async fn ask<T: 'static>(
        &self,
        live: &Rc<Connection>,
        work: impl FnOnce(&Broker) -> T + 'static,
    ) -> Result<T, StoreError> {
        let told = self.send(live, work);
        self.answer(live, told).await
    }
}

impl Channel {
    fn name(&self) -> (u64, u64) {
        (self.live.number, self.number)
    }

    async fn ask<T: 'static>(&self, work: impl FnOnce(&Broker) -> T + 'static) -> Result<T, StoreError> {
        self.client.ask(&self.live, work).await
    }
}

impl Slot {
    fn new(client: &Rc<Client>, job: &JobName) -> Self {
        Self {
            client: Rc::clone(client),
            queue: job.to_string(),
            mark: format!("{job}:mark"),
            boot: format!("{job}:boot"),
            state: Mutex::new(State::new(None)),
        }
    }

    async fn carry_out<O: Judged>(
        self: &Rc<Self>,
        operation: &O,
        is_wanted: &Cell<bool>,
    ) -> Answer<O::Answer> {
        let site = &self.client.site;
        let mut first_in_vain = None;
        let mut waited = 0;
        loop {
            let mut state = self.state.lock().await;
            if !is_wanted.get() {
                return Err(StoreError::unavailable("nobody waits for it any more"));
            }
            let tried = self.attempt(&mut state, operation, waited).await;
            drop(state);
            let now = site.mono(self.client.i);
            waited = now.0 - first_in_vain.get_or_insert(now).0;
            let again = match tried? {
                Tried::Answered(answer) => return Ok(answer),
                Tried::Held if waited >= ORDER => {
                    return Err(StoreError::unavailable("a run has the record"));
                }
                Tried::Held => LATER,
                Tried::Busy(_) if waited >= TRANSIT => {
                    return Err(StoreError::unavailable("somebody else has the record"));
                }
                Tried::Busy(again) => again,
            };
            site.sleep(site.random(|rng| rng.u64(again / 2..=again))).await;
        }
    }

    async fn attempt<O: Judged>(
        self: &Rc<Self>,
        state: &mut State,
        operation: &O,
        waited: u64,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let live = self.client.live().await.inspect_err(|_| self.in_the_dark(state))?;
        if state.held.as_ref().is_some_and(|held| !held.channel.live.is_open.get()) {
            state.held = None;
            state.torn = true;
        }
        if state.held.is_some() {
            let tried = self.on_held(state, operation).await;
            state.torn |= tried.is_err();
            return tried;
        }
        let found = self.look(state, &live).await;
        match found.inspect_err(|_| self.in_the_dark(state))? {
            Found::Token(taken) => self.on_token(state, operation, *taken).await,
            Found::Lost => Err(StoreError::misconfigured("the token is lost")),
            Found::Absent => self.on_absent(state, operation, &live).await,
            Found::Held(truth) => self.on_held_elsewhere(state, operation, truth),
            Found::Transit => Ok(Tried::Busy(if waited < LATER { SOON } else { LATER })),
        }
    }

    /// A token that cannot be looked for is not missed meanwhile.
    fn in_the_dark(&self, state: &mut State) {
        if !self.client.site.is(Mutation::MissesAddUp) {
            state.missing = None;
        }
    }

    /// Takes the token out of its queue, or finds out where it is.
    async fn look(&self, state: &mut State, live: &Rc<Connection>) -> Result<Found, StoreError> {
        let channel = self.client.channel(live);
        let (queue, name) = (self.queue.clone(), channel.name());
        let got = channel.ask(move |broker| broker.get(&queue, name)).await?;
        let Some(delivery) = (match got {
            Ok(delivery) => delivery,
            Err(NotFound) => {
                channel.is_clean.set(true);
                if self.has_mark(live).await? {
                    return Ok(self.missed(state));
                }
                state.missing = None;
                return Ok(Found::Absent);
            }
        }) else {
            channel.is_clean.set(true);
            return self.without_message(state, live).await;
        };
        state.missing = None;
        state.torn = false;
        if state.birth != Some(delivery.body.birth) {
            if !self.has_mark(live).await? {
                return Ok(Found::Absent);
            }
            let skipped = if state.birth.is_none() { state.skipped } else { Millis(i64::MIN) };
            *state = State { skipped, ..State::new(Some(delivery.body.birth)) };
        }
        Ok(Found::Token(Box::new((channel, delivery))))
    }

    async fn has_mark(&self, live: &Rc<Connection>) -> Result<bool, StoreError> {
        let mark = self.mark.clone();
        self.client.ask(live, move |broker| broker.has(&mark)).await
    }

    async fn without_message(&self, state: &mut State, live: &Rc<Connection>) -> Result<Found, StoreError> {
        let (mark, queue) = (self.mark.clone(), self.queue.clone());
        let looked = self.client.ask(live, move |broker| {
            let body = broker.body(&queue);
            let is_run = body.as_ref().is_some_and(|body| body.record.status == Status::Running);
            broker
                .consumers(&mark)
                .map(|consumers| (consumers, Truth { is_run, birth: body.map(|body| body.birth) }))
        });
        match looked.await? {
            // A birth that broke off left it, or one is going on: whoever makes the job looks again under the lock.
            Err(NotFound) if self.client.site.is(Mutation::BrokenBirthStays) => Ok(Found::Transit),
            Err(NotFound) => Ok(Found::Absent),
            Ok((0, _)) => Ok(self.missed(state)),
            Ok((_, truth)) => {
                state.missing = None;
                Ok(Found::Held(truth))
            }
        }
    }

    fn missed(&self, state: &mut State) -> Found {
        let now = self.client.site.mono(self.client.i);
        let heartbeat = std::time::Duration::from_micros(self.client.heartbeat);
        let (first, missing) = state.missing.get_or_insert_with(|| (now, Missing::again(None, now)));
        *missing = match self.client.site.is(Mutation::MissesAddUp) {
            true => Missing::between(*first, now),
            false => Missing::again(Some(*missing), now),
        };
        if missing.is_lost(heartbeat) { Found::Lost } else { Found::Transit }
    }

    /// By the rules, on the token that was taken.
    async fn on_token<O: Judged>(
        self: &Rc<Self>,
        state: &mut State,
        operation: &O,
        (channel, delivery): (Channel, Delivery),
    ) -> Result<Tried<O::Answer>, StoreError> {
        let site = &self.client.site;
        let Delivery { tag, mut body } = delivery;
        let committed = body.clone();
        if !site.is(Mutation::SkipsAreForgotten) {
            body.record.decided = body.record.decided.max(state.skipped);
        }
        let now = self.client.now();
        let Decision { answer, write } = self.decide(operation, &body, now);
        if let Some(claim) = operation.claim() {
            let (claim, decided, remembered) = (claim.clone(), committed.record.decided, body.record.decided);
            site.note(move |judge| judge.remembers_skips(&claim, decided, remembered));
        }
        let holds = O::holds(&answer);
        let next = match write {
            Some(Write::Delete) => return self.forget(state, operation, &committed, answer, now).await,
            Some(Write::Put { record, closed }) => Some(body.with(*record, closed)),
            None if holds => Some(body.clone()),
            None => None,
        };
        let Some(next) = next else {
            self.said(operation, &answer, &committed.record, now);
            let queue = self.queue.clone();
            if channel.ask(move |broker| broker.give_back(&queue, tag)).await.is_ok() {
                channel.is_clean.set(true);
            }
            state.seen = Some(body.record);
            return Ok(Tried::Answered(Stamped { value: answer, now }));
        };
        if !holds {
            self.replace(&channel, operation, &answer, Some(tag), &next, now)?.await?;
            channel.is_clean.set(true);
            state.seen = Some(next.record);
            return Ok(Tried::Answered(Stamped { value: answer, now }));
        }
        // One after the other, or all at once.
        let is_quick = site.random(fastrand::Rng::bool);
        let number = || site.random(|rng| rng.u64(..));
        let (consumer, sign) = (number(), number());
        let (to, deliveries) = mpsc::unbounded_channel();
        let name = channel.name();
        let (queue, mark) = (self.queue.clone(), self.mark.clone());
        let consume =
            || self.client.send(&channel.live, move |broker| broker.consume(&queue, name, consumer, to));
        let (silent, _) = mpsc::unbounded_channel();
        let show =
            || self.client.send(&channel.live, move |broker| broker.consume(&mark, name, sign, silent));
        let is_early = site.is(Mutation::SignBeforeAward);
        let mut waiting = vec![consume()];
        if !is_quick {
            self.all(&channel, waiting.drain(..)).await?;
        }
        let mut show = Some(show);
        if is_early && let Some(show) = show.take() {
            waiting.push(show());
            if !is_quick {
                self.all(&channel, waiting.drain(..)).await?;
            }
        }
        let replaced = self.replace(&channel, operation, &answer, Some(tag), &next, now)?;
        if is_quick {
            if let Some(show) = show.take() {
                waiting.push(show());
            }
            self.all(&channel, waiting.drain(..)).await.map_err(StoreError::unknown)?;
            replaced.await?;
        } else {
            replaced.await?;
            if let Some(show) = show.take() {
                waiting.push(show());
                self.all(&channel, waiting.drain(..)).await.map_err(StoreError::unknown)?;
            }
        }
        let mut held = Held { channel, consumer, deliveries, sign, tag, body: next.clone() };
        held.tag = self.receive(&mut held, &next).await?;
        state.held = Some(held);
        state.seen = Some(next.record.clone());
        let (slot, i) = (Rc::downgrade(self), self.client.i);
        site.tasks.spawn(Some(i), Self::watch_end(Rc::clone(site), slot, next.record.until));
        Ok(Tried::Answered(Stamped { value: answer, now }))
    }

    async fn all(
        &self,
        channel: &Channel,
        waiting: impl Iterator<Item = oneshot::Receiver<Result<(), NotFound>>>,
    ) -> Result<(), StoreError> {
        for told in waiting {
            let done = self.client.answer(&channel.live, told).await?;
            done.map_err(|NotFound| StoreError::unavailable("there is no queue any more"))?;
        }
        Ok(())
    }

    fn decide<O: Judged>(&self, operation: &O, body: &Body, now: StoreNow) -> Decision<O::Answer> {
        let mut body = body.clone();
        if self.client.site.is(Mutation::TakeoverBeforeUntil)
            && let Some(asked) = operation.claim()
            && body.record.nonce != asked.nonce
            && matches!(
                claim(Some(&body.record), asked, now, LeaseEnd::ByClock).answer,
                anarchon::protocol::Verdict::Held(_)
            )
        {
            body.record.until = body.record.until.min(now.millis());
        }
        operation.decide(Some(&body), now)
    }

    /// Publishes, acknowledges and commits; the judge is told when that is done.
    fn replace<O: Judged>(
        &self,
        channel: &Channel,
        operation: &O,
        answer: &O::Answer,
        tag: Option<u64>,
        body: &Body,
        now: StoreNow,
    ) -> Result<impl Future<Output = Result<(), StoreError>> + use<O>, StoreError> {
        let (site, client, live) =
            (Rc::clone(&self.client.site), Rc::clone(&self.client), Rc::clone(&channel.live));
        let (queue, body, decided) = (self.queue.clone(), body.clone(), site.time());
        let (operation, answer) = (operation.clone(), answer.clone());
        let told = client.send(&live, move |broker| {
            let before = broker.replace(&queue, tag, &body)?;
            let at = At { now, time: site.time(), from: decided, stored_after: None };
            operation.saw(answer, before.map(|body| body.record), Some(body.record), at, &site);
            Ok(())
        });
        Ok(async move {
            let done: Result<(), NotFound> = client.answer(&live, told).await.map_err(StoreError::unknown)?;
            done.map_err(|NotFound| StoreError::unknown("the token is not there any more"))
        })
    }

    fn said<O: Judged>(&self, operation: &O, answer: &O::Answer, record: &Record, now: StoreNow) {
        let site = &self.client.site;
        let at = At { now, time: site.time(), from: site.time(), stored_after: None };
        let record = Some(record.clone());
        operation.clone().saw(answer.clone(), record.clone(), record, at, site);
    }

    /// By the rules, on the token that a run of this handle has.
    async fn on_held<O: Judged>(
        self: &Rc<Self>,
        state: &mut State,
        operation: &O,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let Some(mut held) = state.held.take() else { return Ok(Tried::Busy(SOON)) };
        let now = self.client.now();
        let Decision { answer, write } = operation.decide(Some(&held.body), now);
        match write {
            None => {
                self.said(operation, &answer, &held.body.record, now);
                let queue = self.queue.clone();
                let looked = held.channel.ask(move |broker| broker.consumers(&queue)).await?;
                looked.map_err(|NotFound| StoreError::unavailable("there is no queue any more"))?;
                state.held = Some(held);
            }
            Some(Write::Delete) => {
                let body = held.body.clone();
                drop(held);
                return self.forget(state, operation, &body, answer, now).await;
            }
            Some(Write::Put { record, closed }) if record.status == Status::Running => {
                let next = held.body.with(*record, closed);
                self.replace(&held.channel, operation, &answer, Some(held.tag), &next, now)?.await?;
                held.tag = self.receive(&mut held, &next).await?;
                state.seen = Some(next.record.clone());
                held.body = next;
                state.held = Some(held);
            }
            Some(Write::Put { record, closed }) => {
                let next = held.body.with(*record, closed);
                for consumer in [held.consumer, held.sign] {
                    held.channel.ask(move |broker| broker.cancel(consumer)).await?;
                }
                self.replace(&held.channel, operation, &answer, Some(held.tag), &next, now)?.await?;
                held.channel.is_clean.set(true);
                state.seen = Some(next.record);
            }
        }
        Ok(Tried::Answered(Stamped { value: answer, now }))
    }

    fn on_held_elsewhere<O: Judged>(
        &self,
        state: &mut State,
        operation: &O,
        truth: Truth,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let heartbeat = std::time::Duration::from_micros(self.client.heartbeat);
        let unseen = Unseen { seen: state.seen.clone(), skipped: state.skipped, torn: state.torn, heartbeat };
        let now = self.client.now();
        match operation.elsewhere(&unseen, now) {
            Elsewhere::Told(value) => Ok(Tried::Answered(Stamped { value, now })),
            Elsewhere::Decided(value, at) => {
                state.skipped = state.skipped.max(at);
                if let Some(claim) = operation.claim().cloned() {
                    let is_known = state.birth.is_none() || state.birth == truth.birth;
                    self.client
                        .site
                        .note(move |judge| judge.skipped_elsewhere(&claim, truth.is_run, is_known));
                }
                Ok(Tried::Answered(Stamped { value, now }))
            }
            Elsewhere::Wait => Ok(Tried::Held),
            Elsewhere::Refused(error) => Err(error),
        }
    }

    async fn on_absent<O: Judged>(
        &self,
        state: &mut State,
        operation: &O,
        live: &Rc<Connection>,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let now = self.client.now();
        let Decision { answer, write } = operation.decide(None, now);
        let Some(Write::Put { record, .. }) = write else {
            return Ok(Tried::Answered(Stamped { value: answer, now }));
        };
        let body = Body::new(self.client.site.random(|rng| rng.u64(..)), *record);
        if !self.bear(live, operation, &answer, &body, now).await? {
            return Ok(Tried::Busy(LATER));
        }
        *state = State { seen: Some(body.record), ..State::new(Some(body.birth)) };
        Ok(Tried::Answered(Stamped { value: answer, now }))
    }

    async fn lock(&self, live: &Rc<Connection>) -> Result<bool, StoreError> {
        let (boot, owner) = (self.boot.clone(), live.number);
        self.client.ask(live, move |broker| broker.declare(&boot, Some(owner))).await
    }

    async fn delete(&self, live: &Rc<Connection>, queue: &str) -> Result<(), StoreError> {
        let queue = queue.to_owned();
        self.client.ask(live, move |broker| broker.delete(&queue)).await.map_err(StoreError::unknown)
    }

    /// Makes queue, token and mark, unless somebody else is at it or has done so.
    async fn bear<O: Judged>(
        &self,
        live: &Rc<Connection>,
        operation: &O,
        answer: &O::Answer,
        body: &Body,
        now: StoreNow,
    ) -> Result<bool, StoreError> {
        if !self.lock(live).await? {
            return Ok(false);
        }
        let is_marked = self.has_mark(live).await?;
        if !is_marked {
            let (job, queue, site) =
                (operation.job().clone(), self.queue.clone(), Rc::clone(&self.client.site));
            let deleted = self.client.ask(live, move |broker| {
                // What a forgetting left that broke off ends here.
                if broker.body(&queue).is_some() {
                    let time = site.time();
                    site.note(move |judge| judge.forgotten(&job, time));
                }
                broker.delete(&queue);
            });
            deleted.await.map_err(StoreError::unknown)?;
            for (queue, body) in [(&self.queue, Some(body)), (&self.mark, None)] {
                let queue = queue.clone();
                let declared = self.client.ask(live, move |broker| broker.declare(&queue, None)).await;
                declared.map_err(StoreError::unknown)?;
                if let Some(body) = body {
                    let channel = self.client.channel(live);
                    self.replace(&channel, operation, answer, None, body, now)?.await?;
                    channel.is_clean.set(true);
                }
            }
        }
        self.delete(live, &self.boot).await?;
        Ok(!is_marked)
    }

    /// Deletes mark and queue, with the token in hand.
    async fn forget<O: Judged>(
        &self,
        state: &mut State,
        operation: &O,
        body: &Body,
        answer: O::Answer,
        now: StoreNow,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let live = self.client.live().await?;
        if !self.lock(&live).await? {
            return Ok(Tried::Busy(LATER));
        }
        self.delete(&live, &self.mark).await?;
        let (queue, site) = (self.queue.clone(), Rc::clone(&self.client.site));
        let (told, record) = ((operation.clone(), answer.clone()), body.record.clone());
        let deleted = self.client.ask(&live, move |broker| {
            broker.delete(&queue);
            let at = At { now, time: site.time(), from: site.time(), stored_after: None };
            told.0.saw(told.1, Some(record), None, at, &site);
        });
        deleted.await.map_err(StoreError::unknown)?;
        self.delete(&live, &self.boot).await?;
        *state = State::new(None);
        Ok(Tried::Answered(Stamped { value: answer, now }))
    }

    /// Waits for the token that was just put; it comes straight to its consumer.
    async fn receive(&self, held: &mut Held, body: &Body) -> Result<u64, StoreError> {
        let patience = self.client.heartbeat.clamp(LEAST_PATIENCE, MOST_PATIENCE);
        match self.client.site.tasks.timeout(patience, held.deliveries.recv()).await {
            Some(Some(delivery)) if delivery.body == *body => Ok(delivery.tag),
            Some(_) => Err(StoreError::unknown("the record went elsewhere")),
            None => {
                self.client.broker.closed(&held.channel.live);
                Err(StoreError::unknown("no answer in time"))
            }
        }
    }

    /// Gives the token back at the end of its lease.
    async fn watch_end(site: Rc<Site>, slot: Weak<Self>, until: Millis) {
        let mut until = until;
        loop {
            let Some(i) = slot.upgrade().map(|slot| slot.client.i) else { return };
            let left = until.since(site.wall(i).millis());
            let left = u64::try_from(left.as_micros()).unwrap_or(LONGEST_SLEEP);
            site.sleep(left.min(LONGEST_SLEEP)).await;
            let Some(slot) = slot.upgrade() else { return };
            let mut state = slot.state.lock().await;
            let Some(later) = state.held.as_ref().map(|held| held.body.record.until) else { return };
            if later > slot.client.now().millis() {
                until = later;
                continue;
            }
            let Some(held) = state.held.take() else { return };
            let number = held.channel.number;
            let closed = held.channel.ask(move |broker| broker.close(number)).await;
            held.channel.is_clean.set(true);
            state.torn = closed.is_err();
            return;
        }
    }
}
