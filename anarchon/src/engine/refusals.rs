//! What the store refuses until somebody changes its set-up: each refusal is told once, and so is its end.

use std::collections::BTreeSet;

use super::{Action, Engine, Phase, Report};
use crate::{clock::Mono, store::StoreError};

/// How many refusals are remembered at once: a message that differs each time does not pile up.
const MOST: usize = 16;

/// What one answer is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    Beat,
    Read(usize),
    Write(usize),
}

impl Item {
    pub(super) fn job(self) -> Option<usize> {
        match self {
            Self::Beat => None,
            Self::Read(job) | Self::Write(job) => Some(job),
        }
    }
}

/// What showed that the store takes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    Beat,
    Record,
}

/// One message, and what the store has answered with it.
#[derive(Debug)]
struct Refusal {
    error: StoreError,
    items: BTreeSet<Item>,
    since: Mono,
    last: Mono,
    /// Not yet while it may be of the job alone.
    told: bool,
}

impl Refusal {
    fn jobs(&self) -> BTreeSet<usize> {
        self.items.iter().filter_map(|item| item.job()).collect()
    }
}

/// The refusals that are not over, oldest first.
#[derive(Debug, Default)]
pub(super) struct Refusals(Vec<Refusal>);

impl Refusals {
    fn add(&mut self, item: Item, error: &StoreError, now: Mono) -> &mut Refusal {
        let at = self.0.iter().position(|refusal| refusal.error == *error).unwrap_or_else(|| {
            if self.0.len() >= MOST {
                self.0.remove(0);
            }
            let (error, items) = (error.clone(), BTreeSet::new());
            self.0.push(Refusal { error, items, since: now, last: now, told: false });
            self.0.len() - 1
        });
        let refusal = &mut self.0[at];
        refusal.items.insert(item);
        refusal.last = now;
        refusal
    }

    /// Whether it is still to be found out if the store refuses as a whole.
    pub(super) fn is_doubtful(&self) -> bool {
        self.0.iter().any(|refusal| !refusal.told)
    }

    /// Takes in an answer to a call sent at `sent`; what is over by it and was told.
    ///
    /// What was refused must go well itself: other calls may go on meanwhile. A write that had nothing to do proves
    /// only that the job is not refused by itself.
    fn answered(&mut self, item: Item, wrote: bool, sent: Mono) -> Vec<(StoreError, Mono)> {
        let proves = wrote || !matches!(item, Item::Write(_));
        let mut over = Vec::new();
        self.0.retain_mut(|refusal| {
            if sent < refusal.last || !refusal.items.contains(&item) {
                return true;
            }
            if refusal.told {
                if proves {
                    over.push((refusal.error.clone(), refusal.since));
                }
                return !proves;
            }
            refusal.items.remove(&item);
            !refusal.items.is_empty()
        });
        over
    }
}

impl Engine {
    /// Takes in that the store refused one item: the job of it alone where others of the call were answered, else
    /// perhaps all; a beat shows which.
    pub(super) fn refused(&mut self, item: Item, error: &StoreError, all: bool, now: Mono) {
        if let Some(job) = item.job() {
            if self.jobs[job].refused.contains(error) {
                return;
            }
            if !all {
                return self.job_refused(job, error.clone());
            }
        }
        let in_doubt = item.job().is_some() && self.has_beat() && self.phase == Phase::Up;
        let refusal = self.refusals.add(item, error, now);
        if refusal.told {
            return;
        }
        if in_doubt {
            return self.try_to_write(now);
        }
        refusal.told = true;
        self.tell_refusal(error.clone());
    }

    /// Takes in an answer to a call sent at `sent`.
    pub(super) fn not_refused(&mut self, item: Item, wrote: bool, sent: Mono, now: Mono) {
        if let Item::Write(job) = item
            && !self.jobs[job].refused.is_empty()
        {
            self.jobs[job].refused.clear();
            self.report(Report::JobAccepted { job: self.jobs[job].spec.name.clone() });
        }
        for (error, since) in self.refusals.answered(item, wrote, sent) {
            self.report(Report::StoreAccepts { error, after: now.since(since) });
        }
    }

    /// A call sent at `sent` showed that the store does not refuse everything as it refused some jobs before. By a
    /// record that was written those are refused by themselves; by a beat only if it is one job for its own reason, for
    /// the records may be refused and the announcements not.
    pub(super) fn doubt_is_over(&mut self, by: Proof, sent: Mono) {
        let (over, doubtful): (Vec<_>, Vec<_>) = std::mem::take(&mut self.refusals.0)
            .into_iter()
            .partition(|refusal| !refusal.told && refusal.last <= sent);
        self.refusals.0 = doubtful;
        for mut refusal in over {
            let jobs = refusal.jobs();
            if by == Proof::Record || jobs.len() < 2 {
                for job in jobs {
                    self.job_refused(job, refusal.error.clone());
                }
            } else {
                refusal.told = true;
                self.tell_refusal(refusal.error.clone());
                self.refusals.0.push(refusal);
            }
        }
    }

    fn job_refused(&mut self, job: usize, error: StoreError) {
        let known = &mut self.jobs[job];
        if known.refused.len() >= MOST {
            known.refused.remove(0);
        }
        known.refused.push(error.clone());
        let job = known.spec.name.clone();
        self.report(Report::JobRefused { job, error });
    }

    fn tell_refusal(&mut self, error: StoreError) {
        self.actions.push_back(match self.phase {
            Phase::New | Phase::Starting => Action::Failed(error),
            Phase::Up | Phase::Draining | Phase::Leaving | Phase::Stopped => {
                Action::Report(Report::Misconfigured(error))
            }
        });
    }
}
