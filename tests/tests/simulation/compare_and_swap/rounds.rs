//! Batches, in the order of the product's `rounds.rs`: what an item comes to is decided by the product itself.

use std::rc::Rc;

use anarchon::{
    protocol::Millis,
    store::{
        Answer, Stamped, StoreError,
        nats::{
            decision::{self, Draft, Fate, Rule, Step, Time},
            names,
            value::Kept,
        },
    },
};
use futures_util::future::join_all;

use super::{
    bucket::Judged,
    wire::{Put, Wire, no_taker},
};
use crate::{
    judge::{At, Judge},
    mutation::Mutation,
    plan::SECOND,
    site::Item,
};

/// As the product has them; microseconds.
const PATIENCE: u64 = 10 * SECOND;
const PAUSE: u64 = 100_000;
const ROOM: usize = 1 << 20;

/// How far an item has come.
struct Work<T> {
    answer: Option<Answer<T>>,
    drafts: Vec<Box<Draft<T>>>,
    behind: Option<u64>,
    has_trouble: bool,
}

impl Wire {
    pub(super) async fn batch<I: Item>(
        &self,
        items: &[I],
        rule: &Rule<I, I::Answer>,
    ) -> Vec<Answer<I::Answer>> {
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
                Put::Refused => {
                    needs_a_pause |= work.behind == Some(draft.revision);
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
        let mut step = step.map_err(StoreError::misconfigured)?;
        if self.client.site.is(Mutation::OrderRevivesVoid)
            && let Step::Write(draft) = &mut step
            && let Some(kept) = &mut draft.kept
        {
            kept.void_after = kept.void_after.filter(|after| *after != Millis(0));
        }
        Ok(step)
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
        let note =
            move |judge: &mut Judge| judge.saw(item.op(&answer), &job, record.as_ref(), record.as_ref(), at);
        self.client.site.note(note);
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
