//! Batches: decide each item on what is cached, write it on top of the revision that it was decided on, and where that was
//! not the newest, catch up and decide again.

use std::time::Duration;

use futures_util::future::join_all;

use super::{
    decision::{self, Draft, Fate, Rule, Step, Time},
    link::Put,
    names,
    value::Kept,
    wire::Wire,
};
use crate::{
    protocol::JobName,
    store::{Answer, StoreError, StoreErrorKind, damage::unreadable},
};

/// How long a call goes on while nobody takes writes, as when a cluster chooses a leader. Most callers give up sooner.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts of that kind.
const PAUSE: Duration = Duration::from_millis(100);

/// How far an item has come.
struct Work<T> {
    answer: Option<Answer<T>>,
    /// What was sent without an answer.
    drafts: Vec<Box<Draft<T>>>,
    /// The revision that was not the newest, if what is cached was not.
    behind: Option<u64>,
    trouble: Option<StoreError>,
}

impl Wire {
    pub(super) async fn batch<I: Sync, T: Send>(&self, items: &[I], rule: &Rule<I, T>) -> Vec<Answer<T>> {
        if let Err(error) = self.freshen().await {
            return items.iter().map(|_| Err(error.clone())).collect();
        }
        let began = self.hub.clock.mono();
        let new = || Work { answer: None, drafts: Vec::new(), behind: None, trouble: None };
        let mut work: Vec<Work<T>> = items.iter().map(|_| new()).collect();
        let mut is_caught_up = false;
        loop {
            let needs = self.round(items, rule, &mut work, is_caught_up).await;
            let is_late = self.hub.clock.mono().since(began) >= PATIENCE;
            is_caught_up = false;
            if work.iter().all(|work| work.answer.is_some()) {
                break;
            }
            if is_late || !self.link.is_open() {
                self.give_up(&mut work, None);
                break;
            }
            for place in needs.in_doubt {
                let job = (rule.job)(&items[place]);
                if self.is_gone(&names::of_job(job)).await {
                    self.link.give_up();
                    work[place].trouble = Some(self.purged(job));
                }
            }
            if needs.a_pause {
                pause().await;
            }
            if needs.to_catch_up {
                match self.catch_up().await {
                    Ok(()) => {
                        is_caught_up = true;
                        self.recognise(items, rule, &mut work);
                    }
                    Err(error) if !self.is_open() || error.kind == StoreErrorKind::Misconfigured => {
                        self.give_up(&mut work, Some(&error));
                        break;
                    }
                    Err(error) => {
                        for open in work.iter_mut().filter(|work| work.answer.is_none()) {
                            open.trouble = Some(error.clone());
                        }
                        pause().await;
                    }
                }
            }
        }
        let unanswered = || Err(self.no_taker());
        work.into_iter().map(|work| work.answer.unwrap_or_else(unanswered)).collect()
    }

    /// Decides all open items, and sends what is to be written.
    async fn round<I, T>(
        &self,
        items: &[I],
        rule: &Rule<I, T>,
        work: &mut [Work<T>],
        is_caught_up: bool,
    ) -> Needs {
        let mut needs = Needs::default();
        let mut sent = Vec::new();
        for (place, work) in work.iter_mut().enumerate().filter(|(_, work)| work.answer.is_none()) {
            if work.behind.is_some() && !is_caught_up {
                needs.to_catch_up = true;
                continue;
            }
            match self.decide(&items[place], rule) {
                // What is new passes in any bucket: it must be the one that others look at.
                Ok(Step::Write(draft)) if draft.revision == 0 && !is_caught_up => needs.to_catch_up = true,
                Ok(Step::Write(draft)) => sent.push((place, draft)),
                Ok(Step::Say(answer)) if is_caught_up => work.answer = Some(Ok(answer)),
                Err(error) if is_caught_up => work.answer = Some(Err(error)),
                Ok(Step::Say(_)) | Err(_) => needs.to_catch_up = true,
            }
        }
        let writes = sent.iter().map(|(place, draft)| {
            let key = names::of_job((rule.job)(&items[*place]));
            let value = draft.kept.as_ref().map(|kept| self.encode(kept));
            async move { self.put(&key, Some(draft.revision), value).await }
        });
        let outcomes = join_all(writes).await;
        for ((place, draft), outcome) in sent.into_iter().zip(outcomes) {
            let work = &mut work[place];
            match outcome {
                Put::Stored(revision) => {
                    self.wrote_job((rule.job)(&items[place]), revision, draft.kept, draft.decided);
                    work.answer = Some(Ok(draft.answer));
                }
                Put::Refused(_) => {
                    // It was the newest that there is: another one is on its way, or there is none any more.
                    if work.behind == Some(draft.revision) {
                        needs.a_pause = true;
                        needs.in_doubt.push(place);
                    }
                    work.behind = Some(draft.revision);
                    needs.to_catch_up = true;
                }
                Put::NoTaker => {
                    work.trouble = Some(self.no_taker());
                    needs.a_pause = true;
                }
                Put::Failed(error) if work.drafts.is_empty() => work.answer = Some(Err(error)),
                // What was sent before it may still have happened.
                Put::Failed(error) => work.answer = Some(Err(self.unknown(Some(&error)))),
                Put::Unanswered(error) if error.kind == StoreErrorKind::Misconfigured => {
                    work.answer = Some(Err(error));
                }
                Put::Unanswered(error) => {
                    work.trouble = Some(error);
                    work.drafts.push(draft);
                }
            }
        }
        needs
    }

    fn decide<I, T>(&self, item: &I, rule: &Rule<I, T>) -> Result<Step<T>, StoreError> {
        let job = (rule.job)(item);
        let entry = self.job(job);
        let decided = self.hub.clock.mono();
        let now = self.now(decided)?;
        let end = |kept: &Kept| self.hub.lease_end(job, kept, now, decided);
        let step = decision::decide(item, rule, &entry, end, Time { now, decided }, fastrand::u64(1..));
        step.map_err(|damage| self.damaged(job, &damage))
    }

    /// Finds what was written without an answer.
    fn recognise<I, T>(&self, items: &[I], rule: &Rule<I, T>, work: &mut [Work<T>]) {
        for (work, item) in work.iter_mut().zip(items).filter(|(work, _)| work.answer.is_none()) {
            let job = (rule.job)(item);
            match decision::recognise(&mut work.drafts, &self.job(job)) {
                Fate::Stored(draft) => {
                    self.hub.saw(job, draft.kept.as_ref().map(|kept| &kept.record), draft.decided, None);
                    work.answer = Some(Ok(draft.answer));
                }
                Fate::Unknown if !rule.is_repeatable => {
                    work.answer = Some(Err(self.unknown(work.trouble.as_ref())));
                }
                Fate::Unknown | Fate::Open => {}
            }
        }
    }

    fn give_up<T>(&self, work: &mut [Work<T>], error: Option<&StoreError>) {
        for work in work.iter_mut().filter(|work| work.answer.is_none()) {
            let why = work.trouble.as_ref().or(error);
            let told = if work.drafts.is_empty() {
                why.filter(|why| why.kind != StoreErrorKind::Unknown)
                    .cloned()
                    .unwrap_or_else(|| self.no_taker())
            } else {
                self.unknown(why)
            };
            work.answer = Some(Err(told));
        }
    }

    fn unknown(&self, why: Option<&StoreError>) -> StoreError {
        match why {
            Some(why) => StoreError::unknown(why),
            None => StoreError::unknown(format_args!("{} gave no answer", self.link)),
        }
    }

    fn purged(&self, job: &JobName) -> StoreError {
        StoreError::unavailable(format_args!(
            "somebody purged the record of job \"{job}\" from {}; the bucket is read anew",
            self.link
        ))
    }

    pub(super) fn damaged(&self, job: &JobName, damage: &str) -> StoreError {
        unreadable(format_args!("the record of job \"{job}\" of {}", self.link), damage)
    }
}

/// What comes before the next round.
#[derive(Debug, Default)]
struct Needs {
    to_catch_up: bool,
    a_pause: bool,
    /// Whose records may have been purged.
    in_doubt: Vec<usize>,
}

#[expect(clippy::disallowed_methods, reason = "no other caller could wait for a new leader")]
pub(super) async fn pause() {
    tokio::time::sleep(PAUSE).await;
}
