//! The token of a job: the one message of its queue. Whoever has it unacknowledged owns the record.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::StreamExt as _;
use lapin::{
    BasicProperties, Channel, Consumer,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions,
        BasicPublishOptions, QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};
use tokio::sync::Mutex;

use super::{
    body::Body,
    fault::{self, failed},
    link::{Link, Live, passive, quorum},
    operation::{Elsewhere, Operation},
    state::{self, Unseen},
};
use crate::{
    clock::{Clock as _, Mono, SystemClock},
    protocol::{Decision, JobName, Millis, Namespace, Record, Status, StoreNow, Write},
    store::{Answer, Stamped, StoreError},
};

/// How long a token that somebody looks at is waited for.
const TRANSIT: Duration = Duration::from_secs(10);
/// How long an order waits for the end of a run; an operator waits for 10 s.
const ORDER: Duration = Duration::from_secs(8);
/// Between two looks for a token that is on its way.
const SOON: Duration = Duration::from_millis(5);
/// Between two looks for one that a run has, or a birth.
const LATER: Duration = Duration::from_millis(50);
/// Between two looks at the wall clock, which may be set, for the end of a lease.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
const PERSISTENT: u8 = 2;

/// A job as one handle sees it.
#[derive(Debug)]
pub(super) struct Slot {
    queue: String,
    mark: String,
    boot: String,
    what: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    held: Option<Held>,
    /// Whose mark was seen.
    birth: Option<u64>,
    seen: Option<Record>,
    skipped: Millis,
    /// Whether this handle had the token and has not given it back.
    torn: bool,
    missing: Option<Mono>,
}

impl State {
    /// Of a job of which nothing was seen but its birth.
    fn new(birth: Option<u64>) -> Self {
        Self { held: None, birth, seen: None, skipped: Millis(i64::MIN), torn: false, missing: None }
    }
}

/// A token that a run of this handle has.
#[derive(Debug)]
struct Held {
    live: Arc<Live>,
    channel: Channel,
    consumer: Consumer,
    /// On the mark: shows the others that there is a run.
    sign: Consumer,
    tag: u64,
    body: Body,
}

/// A token that was taken from its queue for a moment.
struct Taken {
    live: Arc<Live>,
    channel: Channel,
    tag: u64,
    body: Result<Body, String>,
}

/// What a look for the token found.
enum Found {
    Token(Box<Taken>),
    /// The job is not there.
    Absent,
    Held,
    Transit,
    /// Nobody has it any more.
    Lost,
}

/// What came of one try.
enum Tried<T> {
    Answered(Stamped<T>),
    /// A run has the token.
    Held,
    /// Somebody looks at it, or is about to make it.
    Busy(Duration),
}

impl Slot {
    pub(super) fn new(namespace: &Namespace, job: &JobName) -> Self {
        // Neither name can hold a slash or a colon.
        let queue = format!("anarchon/{namespace}/{job}");
        Self {
            mark: format!("{queue}:mark"),
            boot: format!("{queue}:boot"),
            queue,
            what: format!("job \"{job}\" in namespace \"{namespace}\""),
            state: Mutex::new(State::new(None)),
        }
    }

    /// Carries out one item of a call. Once begun it comes to its end; before, it is left when nobody waits for it any more.
    pub(super) async fn carry_out<O: Operation>(
        self: &Arc<Self>,
        link: &Link,
        operation: &O,
        is_wanted: impl Fn() -> bool,
    ) -> Answer<O::Answer> {
        let mut first_in_vain = None;
        let mut waited = Duration::ZERO;
        loop {
            let mut state = self.state.lock().await;
            if !is_wanted() {
                return Err(StoreError::unavailable("nobody waits for it any more"));
            }
            let tried = self.attempt(&mut state, link, operation, waited).await;
            drop(state);
            let now = SystemClock.mono();
            waited = now.since(*first_in_vain.get_or_insert(now));
            let again = match tried? {
                Tried::Answered(answer) => return Ok(answer),
                Tried::Held if waited >= ORDER => {
                    return Err(StoreError::unavailable(format_args!(
                        "a run has the record of {} in {}, and no order reaches it before its end; try again then, or order it \
                         on the instance that runs it",
                        self.what, link.shown
                    )));
                }
                Tried::Held => LATER,
                Tried::Busy(_) if waited >= TRANSIT => {
                    return Err(StoreError::unavailable(format_args!(
                        "somebody else has had the record of {} in {} for {TRANSIT:?}",
                        self.what, link.shown
                    )));
                }
                Tried::Busy(again) => again,
            };
            // At random, so that those who wait for each other do not go on doing so.
            pause(again.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        }
    }

    async fn attempt<O: Operation>(
        self: &Arc<Self>,
        state: &mut State,
        link: &Link,
        operation: &O,
        waited: Duration,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let live = link.live().await?;
        let _room = live.room().await;
        if state.held.as_ref().is_some_and(|held| !held.channel.status().connected()) {
            state.held = None;
            state.torn = true;
        }
        if state.held.is_some() {
            let tried = self.on_held(state, operation).await;
            state.torn |= tried.is_err();
            return tried;
        }
        match self.look(state, Arc::clone(&live)).await? {
            Found::Token(taken) => {
                let Taken { live, channel, tag, body } = *taken;
                match body {
                    Ok(body) => self.on_token(state, operation, live, channel, tag, body).await,
                    Err(damage) => {
                        let error = StoreError::misconfigured(format_args!(
                            "the record of {} in {} is damaged or written by something else: {damage}; delete it with \
                             forget, and the job begins anew",
                            self.what, link.shown
                        ));
                        self.mend(state, operation, &live, error).await
                    }
                }
            }
            Found::Lost => {
                let error = StoreError::misconfigured(format_args!(
                    "the record of {} in {} is lost: its queue \"{}\" is there and its message is not; look who took it, then \
                     forget the job, and it begins anew",
                    self.what, link.shown, self.queue
                ));
                let live = link.live().await?;
                self.mend(state, operation, &live, error).await
            }
            Found::Absent => self.on_absent(state, operation, link).await,
            Found::Held => self.on_held_elsewhere(state, operation, link).await,
            // At first it is on its way for a moment only.
            Found::Transit => Ok(Tried::Busy(if waited < LATER { SOON } else { LATER })),
        }
    }

    /// Takes the token out of its queue, or finds out where it is.
    async fn look(&self, state: &mut State, live: Arc<Live>) -> Result<Found, StoreError> {
        let channel = match live.channel().await {
            Err(_) if live.is_full() => return Ok(Found::Transit),
            channel => channel?,
        };
        let got =
            live.request(channel.basic_get((&*self.queue).into(), BasicGetOptions { no_ack: false })).await?;
        let message = match got {
            Ok(message) => message,
            Err(error) if fault::is_not_found(&error) => return self.without_queue(state, &live).await,
            Err(error) => return Err(failed(live.shown(), &error, false)),
        };
        let Some(message) = message else {
            return self.without_message(state, live, channel).await;
        };
        state.missing = None;
        state.torn = false;
        let body = Body::decode(&message.delivery.data);
        if let Ok(body) = &body
            && state.birth != Some(body.birth)
        {
            if !live.has(&self.mark).await? {
                // Half made, or half forgotten: whoever is at it goes on.
                drop(channel);
                return Ok(Found::Absent);
            }
            let skipped = if state.birth.is_none() { state.skipped } else { Millis(i64::MIN) };
            *state = State { skipped, ..State::new(Some(body.birth)) };
        }
        Ok(Found::Token(Box::new(Taken { live, channel, tag: message.delivery.delivery_tag, body })))
    }

    async fn without_queue(&self, state: &mut State, live: &Live) -> Result<Found, StoreError> {
        if live.has(&self.mark).await? {
            return Ok(missed(state, live));
        }
        state.missing = None;
        Ok(Found::Absent)
    }

    async fn without_message(
        &self,
        state: &mut State,
        live: Arc<Live>,
        channel: Channel,
    ) -> Result<Found, StoreError> {
        // Not of the queue itself: a quorum queue counts whoever looks as well.
        let declared = channel.queue_declare((&*self.mark).into(), passive(), FieldTable::default());
        let mark = match live.request(declared).await? {
            Ok(mark) => mark,
            // Deleted in between: the next look finds out why.
            Err(error) if fault::is_not_found(&error) => return Ok(Found::Transit),
            Err(error) => return Err(failed(live.shown(), &error, false)),
        };
        live.keep(channel);
        if mark.consumer_count() > 0 {
            state.missing = None;
            return Ok(Found::Held);
        }
        Ok(missed(state, &live))
    }

    /// By the rules, on the token that was taken.
    async fn on_token<O: Operation>(
        self: &Arc<Self>,
        state: &mut State,
        operation: &O,
        live: Arc<Live>,
        channel: Channel,
        tag: u64,
        mut body: Body,
    ) -> Result<Tried<O::Answer>, StoreError> {
        // Answered as skipped while a run had the token that could not write it down.
        body.record.decided = body.record.decided.max(state.skipped);
        let now = now();
        let Decision { answer, write } = operation.decide(Some(&body), now);
        let holds = O::holds(&answer);
        let next = match write {
            Some(Write::Delete) => {
                return self.forget(state, &live, answer, now).await;
            }
            Some(Write::Put { record, closed }) => Some(body.with(*record, closed)),
            None if holds => Some(body.clone()),
            None => None,
        };
        let Some(next) = next else {
            // That it was decided is not undone by a connection that breaks now: it gives the token back as well.
            let back = channel.basic_nack(tag, BasicNackOptions { multiple: false, requeue: true });
            if live.ask(back).await.is_ok() {
                live.keep(channel);
            }
            state.seen = Some(body.record);
            return Ok(Tried::Answered(Stamped { value: answer, now }));
        };
        live.ask(channel.tx_select()).await?;
        let consumers = match holds {
            true => {
                let consumer = live.ask(consume(&channel, &self.queue)).await?;
                Some((consumer, live.ask(consume(&channel, &self.mark)).await?))
            }
            false => None,
        };
        self.put(&live, &channel, tag, &next).await?;
        match consumers {
            None => {}
            Some((mut consumer, sign)) => {
                let tag = self.receive(&live, &mut consumer, &next).await?;
                let held = Held { live, channel, consumer, sign, tag, body: next.clone() };
                state.held = Some(held);
                self.watch_end(next.record.until);
            }
        }
        state.seen = Some(next.record);
        Ok(Tried::Answered(Stamped { value: answer, now }))
    }

    /// By the rules, on the token that a run of this handle has.
    async fn on_held<O: Operation>(
        self: &Arc<Self>,
        state: &mut State,
        operation: &O,
    ) -> Result<Tried<O::Answer>, StoreError> {
        // Put back when all went well: a channel on which something failed has given the token back.
        let Some(mut held) = state.held.take() else { return Ok(Tried::Busy(SOON)) };
        let live = Arc::clone(&held.live);
        let now = now();
        let Decision { answer, write } = operation.decide(Some(&held.body), now);
        match write {
            None => {
                // That the broker is still there is what the caller wants to know as well.
                let declared =
                    held.channel.queue_declare((&*self.queue).into(), passive(), FieldTable::default());
                live.ask(declared).await?;
                state.held = Some(held);
            }
            Some(Write::Delete) => {
                drop(held);
                return self.forget(state, &live, answer, now).await;
            }
            Some(Write::Put { record, closed }) if record.status == Status::Running => {
                let next = held.body.with(*record, closed);
                self.put(&live, &held.channel, held.tag, &next).await?;
                held.tag = self.receive(&live, &mut held.consumer, &next).await?;
                state.seen = Some(next.record.clone());
                held.body = next;
                state.held = Some(held);
            }
            Some(Write::Put { record, closed }) => {
                let next = held.body.with(*record, closed);
                for consumer in [&held.consumer, &held.sign] {
                    let cancelled = held.channel.basic_cancel(consumer.tag(), BasicCancelOptions::default());
                    live.ask(cancelled).await?;
                }
                self.put(&live, &held.channel, held.tag, &next).await?;
                state.seen = Some(next.record);
            }
        }
        Ok(Tried::Answered(Stamped { value: answer, now }))
    }

    async fn on_held_elsewhere<O: Operation>(
        &self,
        state: &mut State,
        operation: &O,
        link: &Link,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let heartbeat = link.live().await?.heartbeat();
        let unseen = Unseen { seen: state.seen.clone(), skipped: state.skipped, torn: state.torn, heartbeat };
        let now = now();
        match operation.elsewhere(&unseen, now) {
            Elsewhere::Told(value) => Ok(Tried::Answered(Stamped { value, now })),
            Elsewhere::Skipped(value, at) => {
                state.skipped = state.skipped.max(at);
                Ok(Tried::Answered(Stamped { value, now }))
            }
            Elsewhere::Wait => Ok(Tried::Held),
            Elsewhere::Refused(error) => Err(error),
        }
    }

    async fn on_absent<O: Operation>(
        &self,
        state: &mut State,
        operation: &O,
        link: &Link,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let now = now();
        match operation.decide(None, now) {
            Decision { answer, write: Some(Write::Put { record, .. }) } => {
                let body = Body::new(fastrand::u64(..), *record);
                if !self.bear(link, &body).await? {
                    return Ok(Tried::Busy(LATER));
                }
                *state = State { seen: Some(body.record), ..State::new(Some(body.birth)) };
                Ok(Tried::Answered(Stamped { value: answer, now }))
            }
            Decision { answer, .. } => Ok(Tried::Answered(Stamped { value: answer, now })),
        }
    }

    /// Makes queue, token and mark, unless somebody else is at it or has done so.
    async fn bear(&self, link: &Link, body: &Body) -> Result<bool, StoreError> {
        let live = link.live().await?;
        let channel = live.channel().await?;
        if !self.lock(&live, &channel).await? {
            return Ok(false);
        }
        if !live.has(&self.mark).await? {
            // Nobody uses a token without a mark: what there is was left by a birth or a forgetting that broke off.
            live.delete(&channel, &self.queue).await?;
            let arguments = self.arguments(link, &live).await?;
            let durable = QueueDeclareOptions::durable();
            live.send(channel.queue_declare((&*self.queue).into(), durable, arguments.clone())).await?;
            let writing = live.channel().await?;
            live.ask(writing.tx_select()).await?;
            self.publish(&live, &writing, body).await?;
            live.send(writing.tx_commit()).await?;
            live.send(channel.queue_declare((&*self.mark).into(), durable, arguments)).await?;
            live.delete(&channel, &self.boot).await?;
            live.keep(channel);
            return Ok(true);
        }
        live.delete(&channel, &self.boot).await?;
        live.keep(channel);
        Ok(false)
    }

    /// An exclusive queue is a lock that ends with its connection.
    async fn lock(&self, live: &Live, channel: &Channel) -> Result<bool, StoreError> {
        let declared = channel.queue_declare(
            (&*self.boot).into(),
            QueueDeclareOptions::exclusive(),
            FieldTable::default(),
        );
        match live.request(declared).await? {
            Ok(_) => Ok(true),
            Err(error) if fault::is_locked(&error) => Ok(false),
            Err(error) => Err(failed(live.shown(), &error, false)),
        }
    }

    /// What the queues of the job are made with.
    async fn arguments(&self, link: &Link, live: &Live) -> Result<FieldTable, StoreError> {
        if link.is_quorum() {
            return Ok(quorum(live.lifts_limit(&format!("{}:probe", self.queue)).await?));
        }
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("classic".into()));
        Ok(arguments)
    }

    /// Carries out what is left to do for a token that is lost or cannot be read.
    async fn mend<O: Operation>(
        &self,
        state: &mut State,
        operation: &O,
        live: &Live,
        error: StoreError,
    ) -> Result<Tried<O::Answer>, StoreError> {
        match operation.mend() {
            Some(answer) => self.forget(state, live, answer, now()).await,
            None => Err(error),
        }
    }

    /// Deletes mark and queue, with the token in hand. Under the lock, or a birth in between would lose its token.
    async fn forget<T>(
        &self,
        state: &mut State,
        live: &Live,
        answer: T,
        now: StoreNow,
    ) -> Result<Tried<T>, StoreError> {
        let channel = live.channel().await?;
        if !self.lock(live, &channel).await? {
            return Ok(Tried::Busy(LATER));
        }
        live.delete(&channel, &self.mark).await?;
        live.delete(&channel, &self.queue).await?;
        live.delete(&channel, &self.boot).await?;
        live.keep(channel);
        *state = State::new(None);
        Ok(Tried::Answered(Stamped { value: answer, now }))
    }

    async fn publish(&self, live: &Live, channel: &Channel, body: &Body) -> Result<(), StoreError> {
        let properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_content_type("application/json".into());
        let bytes = body.encode();
        let options = BasicPublishOptions::default();
        let published = channel.basic_publish("".into(), (&*self.queue).into(), options, &bytes, properties);
        live.send(published).await.map(|_confirm| ())
    }

    /// The new token in the place of the old one, in one transaction.
    async fn put(&self, live: &Live, channel: &Channel, tag: u64, body: &Body) -> Result<(), StoreError> {
        self.publish(live, channel, body).await?;
        live.send(channel.basic_ack(tag, BasicAckOptions::default())).await?;
        live.send(channel.tx_commit()).await
    }

    /// Waits for the token that was just put; it comes straight to its consumer.
    async fn receive(&self, live: &Live, consumer: &mut Consumer, body: &Body) -> Result<u64, StoreError> {
        let lost = || StoreError::unknown(format_args!("the record of {} went elsewhere", self.what));
        match live.wait(consumer.next()).await.map_err(StoreError::unknown)? {
            Some(Ok(delivery)) if Body::decode(&delivery.data).as_ref() == Ok(body) => {
                Ok(delivery.delivery_tag)
            }
            Some(Ok(_)) | None => Err(lost()),
            Some(Err(error)) => Err(failed(live.shown(), &error, true)),
        }
    }

    /// Gives the token back at the end of its lease, when nobody has renewed or closed it: others cannot reach it.
    #[expect(clippy::disallowed_methods, reason = "nobody calls at the end of a lease that is not renewed")]
    fn watch_end(self: &Arc<Self>, until: Millis) {
        let slot = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut until = until;
            loop {
                pause(until.since(now().millis()).min(LONGEST_SLEEP)).await;
                match Self::end(&slot).await {
                    Some(later) => until = later,
                    None => return,
                }
            }
        });
    }

    /// Until when to wait once more, if there is still a lease to wait for.
    async fn end(slot: &Weak<Self>) -> Option<Millis> {
        let slot = slot.upgrade()?;
        let mut state = slot.state.lock().await;
        let until = state.held.as_ref()?.body.record.until;
        if until > now().millis() {
            return Some(until);
        }
        let held = state.held.take()?;
        // Until it is back nobody here is to look for it.
        let closed = held.channel.close(200, "the lease is over".into());
        state.torn = held.live.ask(closed).await.is_err();
        None
    }

    /// Lets go of the token, if there is one: closing its channel gives it back.
    pub(super) async fn let_go(&self) {
        self.state.lock().await.held = None;
    }
}

async fn consume(channel: &Channel, queue: &str) -> Result<Consumer, lapin::Error> {
    channel
        .basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default())
        .await
}

/// Notes that the token is nowhere to be seen.
fn missed(state: &mut State, live: &Live) -> Found {
    let now = SystemClock.mono();
    let since = *state.missing.get_or_insert(now);
    if state::is_lost(since, now, live.heartbeat()) { Found::Lost } else { Found::Transit }
}

fn now() -> StoreNow {
    StoreNow(SystemClock.wall_micros())
}

#[expect(clippy::disallowed_methods, reason = "a token that somebody looks at is back in a moment")]
pub(super) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
