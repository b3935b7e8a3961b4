//! How a job is made and forgotten, in the order of the product's `token.rs`.

use std::rc::Rc;

use anarchon::{
    protocol::{Decision, StoreNow, Write},
    store::{Stamped, StoreError, rabbitmq::body::Body},
};

use super::{
    broker::Connection,
    judged::Judged,
    slot::{LATER, Slot, State, Tried},
};
use crate::judge::At;

impl Slot {
    pub(super) async fn on_absent<O: Judged>(
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

    pub(super) async fn lock(&self, live: &Rc<Connection>) -> Result<bool, StoreError> {
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
        let is_marked = self.has(live, &self.mark).await?;
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
    pub(super) async fn forget<O: Judged>(
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
}
