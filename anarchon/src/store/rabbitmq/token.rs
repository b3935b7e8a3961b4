//! The token of a job: the one message of its queue. Whoever has it unacknowledged owns the record.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{
    StreamExt as _,
    future::{try_join, try_join3},
};
use lapin::{
    BasicProperties, Channel, Consumer,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions,
        BasicPublishOptions, QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};
use tokio::sync::Mutex;

use super::{
    body::Body,
    fault::{self, failed},
    link::{Link, Live, Mode, passive},
    operation::{Elsewhere, Operation},
    state::{Missing, Unseen},
};
use crate::{
    clock::{Clock as _, Mono, SystemClock},
    protocol::{Decision, Fingerprint, JobName, Millis, Namespace, Record, Status, StoreNow, Write},
    store::{Answer, Stamped, StoreError, damage::unreadable},
};

/// Between two looks for a token that is on its way.
const SOON: Duration = Duration::from_millis(5);
/// Between two looks for one that a run has, or a birth.
const LATER: Duration = Duration::from_millis(50);
/// How often, each time after [`LATER`], a second sign of a run is looked for until it is believed.
const SIGN_LOOKS: u32 = 4;
/// Between two looks at the wall clock, which may be set, for the end of a lease.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// After how many returns a token is written anew. Quorum queues count them, and those of RabbitMQ 4 drop what has been
/// returned more than 20 times; before version 4 nothing that they can be told lifts such a limit.
const RETURNS: i64 = 10;
const PERSISTENT: u8 = 2;
/// For how long a queue that is gone is not looked for again.
const GONE: Duration = Duration::from_secs(5);

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
    /// The schedule that this handle registered last.
    registered: Option<Fingerprint>,
    skipped: Millis,
    /// Whether this handle had the token and has not given it back.
    torn: bool,
    missing: Option<(Weak<Live>, Missing)>,
    /// When the queue was found gone though the mark is there.
    gone: Option<Mono>,
}

impl State {
    /// Of a job of which nothing was seen but its birth.
    fn new(birth: Option<u64>) -> Self {
        Self {
            held: None,
            birth,
            seen: None,
            registered: None,
            skipped: Millis(i64::MIN),
            torn: false,
            missing: None,
            gone: None,
        }
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
    mode: Mode,
    tag: u64,
    /// How often it was given back, as far as its queue counts.
    returns: i64,
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
    Lost(Loss),
}

/// What is gone of a job that has a mark.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Queue,
    Message,
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
                Tried::Held if waited >= O::PATIENCE => {
                    return Err(StoreError::unavailable(format_args!(
                        "a run has the record of {} in {}, and no order reaches it before its end; try again then, or order it \
                         on the instance that runs it",
                        self.what, link.shown
                    )));
                }
                Tried::Held => LATER,
                Tried::Busy(_) if waited >= O::PATIENCE => {
                    return Err(StoreError::unavailable(format_args!(
                        "somebody else has had the record of {} in {} for {:?}",
                        self.what,
                        link.shown,
                        O::PATIENCE
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
        // Each look would end a channel. An order looks: somebody may have mended it.
        if operation.mend().is_none()
            && state.gone.is_some_and(|since| SystemClock.mono().since(since) < GONE)
        {
            return self.on_lost(state, operation, &live, Loss::Queue).await;
        }
        match self.look::<O>(state, Arc::clone(&live)).await? {
            Found::Token(taken) => self.on_token(state, operation, link.is_quorum(), *taken).await,
            Found::Lost(loss) => self.on_lost(state, operation, &live, loss).await,
            Found::Absent => self.on_absent(state, operation, link, &live).await,
            Found::Held => self.on_held_elsewhere(state, operation, &live),
            // At first it is on its way for a moment only.
            Found::Transit => Ok(Tried::Busy(if waited < LATER { SOON } else { LATER })),
        }
    }

    /// Takes the token out of its queue, or finds out where it is.
    async fn look<O: Operation>(&self, state: &mut State, live: Arc<Live>) -> Result<Found, StoreError> {
        let mode = if O::WRITES { Mode::Transaction } else { Mode::Plain };
        let channel = match live.channel(mode).await {
            Err(_) if live.is_full() => return Ok(Found::Transit),
            channel => channel?,
        };
        // Not the queue itself: who asks a quorum queue that is about to be made loses the whole connection.
        if state.birth.is_none() && !live.has(&self.mark).await? {
            live.keep(channel, mode);
            *state = State::new(None);
            return Ok(Found::Absent);
        }
        let got =
            live.request(channel.basic_get((&*self.queue).into(), BasicGetOptions { no_ack: false })).await?;
        let message = match got {
            Ok(message) => message,
            Err(error) if fault::is_not_found(&error) => return self.without_queue(state, &live).await,
            Err(error) => return Err(failed(live.shown(), &error, false)),
        };
        let Some(message) = message else {
            return self.without_message(state, live, channel, mode).await;
        };
        state.missing = None;
        state.gone = None;
        state.torn = false;
        let returns = returns(&message.delivery.properties);
        let body = match message.message_count {
            0 => Body::decode(&message.delivery.data),
            more => Err(format!(
                "its queue \"{}\" holds {} messages, and the record is one",
                self.queue,
                u64::from(more) + 1
            )),
        };
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
        let tag = message.delivery.delivery_tag;
        Ok(Found::Token(Box::new(Taken { live, channel, mode, tag, returns, body })))
    }

    /// By the order of births and forgettings there is no mark without a queue.
    async fn without_queue(&self, state: &mut State, live: &Live) -> Result<Found, StoreError> {
        if live.has(&self.mark).await? {
            // It may have been forgotten and made anew in between.
            pause(LATER).await;
            if live.has(&self.queue).await? {
                return Ok(Found::Transit);
            }
            if live.has(&self.mark).await? {
                state.gone = Some(SystemClock.mono());
                return Ok(Found::Lost(Loss::Queue));
            }
        }
        *state = State::new(None);
        Ok(Found::Absent)
    }

    async fn without_message(
        &self,
        state: &mut State,
        live: Arc<Live>,
        channel: Channel,
        mode: Mode,
    ) -> Result<Found, StoreError> {
        // Not of the queue itself: a quorum queue counts whoever looks as well.
        let declared = channel.queue_declare((&*self.mark).into(), passive(), FieldTable::default());
        let mark = match live.request(declared).await? {
            Ok(mark) => mark,
            // Half made, or half forgotten: whoever is at it has the lock, or has broken off.
            Err(error) if fault::is_not_found(&error) => {
                *state = State::new(None);
                return Ok(Found::Absent);
            }
            Err(error) => return Err(failed(live.shown(), &error, false)),
        };
        live.keep(channel, mode);
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
        is_quorum: bool,
        taken: Taken,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let Taken { live, channel, mode, tag, returns, body } = taken;
        let mut body = match body {
            Ok(body) => body,
            Err(damage) => {
                // Not bound to a name: what was formatted may not be kept over an await.
                let error =
                    unreadable(format_args!("the record of {} in {}", self.what, live.shown()), &damage);
                return self.mend(state, operation, &live, error).await;
            }
        };
        // Answered as decided while a run had the token that could not write it down.
        body.record.decided = body.record.decided.max(state.skipped);
        let now = now();
        let Decision { answer, write } = operation.decide(Some(&body), now);
        let is_kept = O::holds(&answer);
        let next = match write {
            Some(Write::Delete) => {
                return self.forget(state, &live, answer, now).await;
            }
            Some(Write::Put { record, closed }) => body.with(*record, closed),
            None if is_kept => body,
            None if returns >= RETURNS => body,
            None => {
                // That it was decided is not undone by a connection that breaks now: it gives the token back as well.
                if live.ask(give_back(&channel, mode, tag)).await.is_ok() {
                    live.keep(channel, mode);
                }
                state.seen = Some(body.record);
                return Ok(Tried::Answered(Stamped { value: answer, now }));
            }
        };
        if mode == Mode::Plain {
            live.ask(channel.tx_select()).await?;
        }
        if is_kept {
            // In one round trip: what comes first is done first.
            let kept = try_join(consume(&channel, &self.queue), self.replace(&channel, tag, &next));
            let (mut consumer, ()) = live.send(kept).await?;
            // Not before the record is written: to the others it says that the occurrence is decided.
            let signed = live.send(self.sign(&channel));
            let shown = try_join(self.receive(&live, &mut consumer, &next), signed).await;
            if shown.is_err() {
                // The mark may be gone, by a forgetting that broke off: then nobody is to use this token again.
                state.birth = None;
            }
            let (tag, (sign, runs)) = shown?;
            // A quorum queue counts the consumers of a node that is away as well.
            if runs > 1 && !is_quorum && self.is_run_twice(&live, &channel).await? {
                return Err(self.another_run(&live));
            }
            let until = next.record.until;
            state.seen = Some(next.record.clone());
            state.held = Some(Held { live, channel, consumer, sign, tag, body: next });
            self.watch_end(until);
        } else {
            live.send(self.replace(&channel, tag, &next)).await?;
            live.keep(channel, Mode::Transaction);
            state.seen = Some(next.record);
        }
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
                live.send(self.replace(&held.channel, held.tag, &next)).await?;
                held.tag = self.receive(&live, &mut held.consumer, &next).await?;
                state.seen = Some(next.record.clone());
                held.body = next;
                state.held = Some(held);
            }
            Some(Write::Put { record, closed }) => {
                let next = held.body.with(*record, closed);
                let Held { channel, consumer, sign, tag, .. } = held;
                let cancel =
                    |consumer: &Consumer| channel.basic_cancel(consumer.tag(), BasicCancelOptions::default());
                let closed = try_join3(cancel(&consumer), cancel(&sign), self.replace(&channel, tag, &next));
                live.send(closed).await?;
                live.keep(channel, Mode::Transaction);
                state.seen = Some(next.record);
            }
        }
        Ok(Tried::Answered(Stamped { value: answer, now }))
    }

    fn on_held_elsewhere<O: Operation>(
        &self,
        state: &mut State,
        operation: &O,
        live: &Live,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let heartbeat = live.heartbeat();
        state.registered = operation.schedule().or(state.registered);
        let unseen = Unseen {
            seen: state.seen.clone(),
            registered: state.registered,
            skipped: state.skipped,
            torn: state.torn,
            heartbeat,
        };
        let now = now();
        match operation.elsewhere(&unseen, now) {
            Elsewhere::Told(value) => Ok(Tried::Answered(Stamped { value, now })),
            Elsewhere::Decided(value, at) => {
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
        live: &Live,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let now = now();
        let Decision { answer, write } = operation.decide(None, now);
        let Some(Write::Put { record, .. }) = write else {
            return Ok(Tried::Answered(Stamped { value: answer, now }));
        };
        let body = Body::new(fastrand::u64(..), *record);
        match self
            .locked(live, async |is_marked| self.bear(live, link.is_quorum(), is_marked, &body).await)
            .await?
        {
            None => Ok(Tried::Busy(LATER)),
            Some(true) => {
                *state = State { seen: Some(body.record), ..State::new(Some(body.birth)) };
                Ok(Tried::Answered(Stamped { value: answer, now }))
            }
            // Somebody else has made it.
            Some(false) => Ok(Tried::Busy(LATER)),
        }
    }

    /// Makes queue, token and mark, unless the mark is there. Under the lock.
    async fn bear(
        &self,
        live: &Live,
        is_quorum: bool,
        is_marked: bool,
        body: &Body,
    ) -> Result<bool, StoreError> {
        if is_marked {
            return Ok(false);
        }
        let channel = live.channel(Mode::Transaction).await?;
        let (durable, arguments) = (QueueDeclareOptions::durable(), kind(is_quorum));
        // Nobody uses a token without a mark: what there is was left by a birth or a forgetting that broke off.
        let made = try_join3(
            channel.queue_delete((&*self.queue).into(), QueueDeleteOptions::default()),
            channel.queue_declare((&*self.queue).into(), durable, arguments.clone()),
            async {
                self.publish(&channel, body).await?;
                channel.tx_commit().await
            },
        );
        live.send(made).await?;
        live.send(channel.queue_declare((&*self.mark).into(), durable, arguments)).await?;
        live.keep(channel, Mode::Transaction);
        Ok(true)
    }

    /// Works on what makes the job be there, told whether the mark is; not while somebody else does so.
    async fn locked<T>(
        &self,
        live: &Live,
        work: impl AsyncFnOnce(bool) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let done = match self.lock(live).await {
            Ok(None) => return Ok(None),
            Ok(Some(is_marked)) => work(is_marked).await,
            Err(error) => Err(error),
        };
        // After an error as well: it would keep the others away for as long as this connection lasts.
        let unlocked = live.delete(&self.boot).await;
        let done = done?;
        unlocked.map(|()| Some(done))
    }

    /// An exclusive queue is a lock that ends with its connection. With it in hand, whether there is a mark.
    async fn lock(&self, live: &Live) -> Result<Option<bool>, StoreError> {
        let channel = live.channel(Mode::Plain).await?;
        let declare = |queue: &str, how| channel.queue_declare(queue.into(), how, FieldTable::default());
        let locked = declare(&self.boot, QueueDeclareOptions::exclusive());
        match live.request(try_join(locked, declare(&self.mark, passive()))).await? {
            Ok(_) => {
                live.keep(channel, Mode::Plain);
                Ok(Some(true))
            }
            Err(error) if fault::is_not_found(&error) => Ok(Some(false)),
            Err(error) if fault::is_locked(&error) => Ok(None),
            Err(error) => Err(failed(live.shown(), &error, false)),
        }
    }

    async fn on_lost<O: Operation>(
        &self,
        state: &mut State,
        operation: &O,
        live: &Live,
        loss: Loss,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let (gone, look) = match loss {
            Loss::Queue => ("is gone", "look who deleted it"),
            Loss::Message => (
                "is there and its message is not",
                "look who took it, or which policy of the broker drops it",
            ),
        };
        let error = StoreError::misconfigured(format_args!(
            "the record of {} in {} is lost: its queue \"{}\" {gone}; {look}, then forget the job, and it begins anew",
            self.what,
            live.shown(),
            self.queue
        ));
        self.mend(state, operation, live, error).await
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
        let gone = self.locked(live, async |_| {
            let channel = live.channel(Mode::Plain).await?;
            let delete = |queue: &str| channel.queue_delete(queue.into(), QueueDeleteOptions::default());
            live.send(try_join(delete(&self.mark), delete(&self.queue))).await?;
            live.keep(channel, Mode::Plain);
            Ok(())
        });
        if gone.await?.is_none() {
            return Ok(Tried::Busy(LATER));
        }
        *state = State::new(None);
        Ok(Tried::Answered(Stamped { value: answer, now }))
    }

    /// Shows the others that there is a run, and tells how many show so now: of two, one at least sees the other.
    async fn sign(&self, channel: &Channel) -> Result<(Consumer, u32), lapin::Error> {
        let looked = channel.queue_declare((&*self.mark).into(), passive(), FieldTable::default());
        let (sign, mark) = try_join(consume(channel, &self.mark), looked).await?;
        Ok((sign, mark.consumer_count()))
    }

    /// Whether another sign than ours stays: that of a holder whose connection has just ended may be there a moment longer than its
    /// token was away.
    async fn is_run_twice(&self, live: &Live, channel: &Channel) -> Result<bool, StoreError> {
        for _ in 0..SIGN_LOOKS {
            pause(LATER).await;
            let mark = channel.queue_declare((&*self.mark).into(), passive(), FieldTable::default());
            if live.ask(mark).await?.consumer_count() < 2 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// By the rules there is one token.
    fn another_run(&self, live: &Live) -> StoreError {
        StoreError::unknown(format_args!(
            "another run of {} goes on by a second record in {}; if this is told again, somebody copied the message of its \
             queue \"{}\": forget the job, and it begins anew",
            self.what,
            live.shown(),
            self.queue
        ))
    }

    async fn publish(&self, channel: &Channel, body: &Body) -> Result<(), lapin::Error> {
        let properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_content_type("application/json".into());
        let bytes = body.encode();
        let options = BasicPublishOptions::default();
        channel
            .basic_publish("".into(), (&*self.queue).into(), options, &bytes, properties)
            .await
            .map(|_confirm| ())
    }

    /// The new token in the place of the old one, in one transaction.
    async fn replace(&self, channel: &Channel, tag: u64, body: &Body) -> Result<(), lapin::Error> {
        // When this is done it was sent: lapin sends all else before what is published.
        self.publish(channel, body).await?;
        let acknowledged = channel.basic_ack(tag, BasicAckOptions::default());
        try_join(acknowledged, channel.tx_commit()).await.map(|_| ())
    }

    /// Waits for the token that was just put; it comes straight to its consumer.
    async fn receive(&self, live: &Live, consumer: &mut Consumer, body: &Body) -> Result<u64, StoreError> {
        let lost = || {
            StoreError::unknown(format_args!(
                "the connection that was given the record of {} ended",
                self.what
            ))
        };
        match live.wait(consumer.next()).await.map_err(StoreError::unknown)? {
            Some(Ok(delivery)) if Body::decode(&delivery.data).as_ref() == Ok(body) => {
                Ok(delivery.delivery_tag)
            }
            Some(Ok(_)) => Err(StoreError::unknown(format_args!(
                "the record of {} went elsewhere: its queue \"{}\" holds another message as well; forget the job, and it \
                 begins anew",
                self.what, self.queue
            ))),
            None => Err(lost()),
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

/// What the queues of a job are made with. Without a limit of returns: a number that says «none» to one version of RabbitMQ
/// makes another drop what is returned once.
fn kind(is_quorum: bool) -> FieldTable {
    let mut arguments = FieldTable::default();
    let kind = if is_quorum { "quorum" } else { "classic" };
    arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
    arguments
}

/// How often a message was returned to its queue, if that is a quorum queue. Which of the two is held against the limit
/// depends on the version.
fn returns(properties: &BasicProperties) -> i64 {
    let count = |name: &str| match properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::ShortShortInt(count) => Some(i64::from(*count)),
        AMQPValue::ShortShortUInt(count) => Some(i64::from(*count)),
        AMQPValue::ShortInt(count) => Some(i64::from(*count)),
        AMQPValue::ShortUInt(count) => Some(i64::from(*count)),
        AMQPValue::LongInt(count) => Some(i64::from(*count)),
        AMQPValue::LongUInt(count) => Some(i64::from(*count)),
        AMQPValue::LongLongInt(count) => Some(*count),
        _ => None,
    };
    ["x-delivery-count", "x-acquired-count"].into_iter().filter_map(count).max().unwrap_or_default()
}

/// Gives a token back as it is.
async fn give_back(channel: &Channel, mode: Mode, tag: u64) -> Result<(), lapin::Error> {
    let back = channel.basic_nack(tag, BasicNackOptions { multiple: false, requeue: true });
    match mode {
        Mode::Plain => back.await,
        Mode::Transaction => try_join(back, channel.tx_commit()).await.map(|_| ()),
    }
}

async fn consume(channel: &Channel, queue: &str) -> Result<Consumer, lapin::Error> {
    channel
        .basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default())
        .await
}

/// Notes that the token is nowhere to be seen.
fn missed(state: &mut State, live: &Arc<Live>) -> Found {
    let now = SystemClock.mono();
    let before = state.missing.take().filter(|(seen_on, _)| seen_on.as_ptr() == Arc::as_ptr(live));
    let missing = Missing::again(before.map(|(_, missing)| missing), now);
    state.missing = Some((Arc::downgrade(live), missing));
    if missing.is_lost(live.heartbeat()) { Found::Lost(Loss::Message) } else { Found::Transit }
}

/// The clock of this instance: the broker has none.
pub(super) fn now() -> StoreNow {
    StoreNow(SystemClock.wall_micros())
}

#[expect(clippy::disallowed_methods, reason = "a token that somebody looks at is back in a moment")]
pub(super) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
