//! What is done with a token in hand, in the order of the product's `token.rs`: what it comes to is decided by the product
//! itself.

use std::rc::{Rc, Weak};

use anarchon::{
    protocol::{Decision, LeaseEnd, Millis, Record, Status, StoreNow, Verdict, Write, claim},
    store::{Stamped, StoreError, rabbitmq::body::Body},
};
use tokio::sync::{mpsc, oneshot};

use super::{
    broker::{Delivery, NotFound},
    client::{Channel, LEAST_PATIENCE, MOST_PATIENCE},
    judged::Judged,
    slot::{SOON, Slot, State, Tried},
};
use crate::{judge::At, mutation::Mutation, plan::SECOND, site::Site};

/// As the product has it; microseconds.
const LONGEST_SLEEP: u64 = 5 * SECOND;

/// A token that a run of this handle has.
pub(super) struct Held {
    pub(super) channel: Channel,
    pub(super) consumer: u64,
    pub(super) deliveries: mpsc::UnboundedReceiver<Delivery>,
    pub(super) sign: u64,
    pub(super) tag: u64,
    pub(super) body: Body,
}

impl Slot {
    /// By the rules, on the token that was taken.
    pub(super) async fn on_token<O: Judged>(
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
        let number = || site.random(|rng| rng.u64(..));
        let (consumer, sign) = (number(), number());
        let (to, deliveries) = mpsc::unbounded_channel();
        let name = channel.name();
        let (queue, mark) = (self.queue.clone(), self.mark.clone());
        let consumed =
            self.client.send(&channel.live, move |broker| broker.consume(&queue, name, consumer, to));
        let (silent, _) = mpsc::unbounded_channel();
        let show = || {
            self.client.send(&channel.live, move |broker| {
                broker.consume(&mark, name, sign, silent)?;
                broker.consumers(&mark)
            })
        };
        let mut show = Some(show);
        if site.is(Mutation::SignBeforeAward)
            && let Some(show) = show.take()
        {
            self.done(&channel, show()).await?;
        }
        let replaced = self.replace(&channel, operation, &answer, Some(tag), &next, now)?;
        self.done(&channel, consumed).await?;
        replaced.await?;
        let signed = show.take().map(|show| show());
        let mut held = Held { channel, consumer, deliveries, sign, tag, body: next.clone() };
        held.tag = self.receive(&mut held, &next).await?;
        if let Some(signed) = signed {
            let shown = self.done(&held.channel, signed).await;
            if shown.is_err() {
                state.birth = None;
            }
            if shown? > 1 {
                return Err(StoreError::unknown("another run goes on"));
            }
        }
        state.held = Some(held);
        state.seen = Some(next.record.clone());
        let (slot, i) = (Rc::downgrade(self), self.client.i);
        site.tasks.spawn(Some(i), Self::watch_end(Rc::clone(site), slot, next.record.until));
        Ok(Tried::Answered(Stamped { value: answer, now }))
    }

    /// What may have written.
    async fn done<T>(
        &self,
        channel: &Channel,
        told: oneshot::Receiver<Result<T, NotFound>>,
    ) -> Result<T, StoreError> {
        let done = self.client.answer(&channel.live, told).await.map_err(StoreError::unknown)?;
        done.map_err(|NotFound| StoreError::unknown("there is no queue any more"))
    }

    pub(super) fn decide<O: Judged>(&self, operation: &O, body: &Body, now: StoreNow) -> Decision<O::Answer> {
        let mut body = body.clone();
        if self.client.site.is(Mutation::TakeoverBeforeUntil)
            && let Some(asked) = operation.claim()
            && body.record.nonce != asked.nonce
            && matches!(claim(Some(&body.record), asked, now, LeaseEnd::ByClock).answer, Verdict::Held(_))
        {
            body.record.until = body.record.until.min(now.millis());
        }
        operation.decide(Some(&body), now)
    }

    /// Publishes, acknowledges and commits; the judge is told when that is done.
    pub(super) fn replace<O: Judged>(
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
    pub(super) async fn on_held<O: Judged>(
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
