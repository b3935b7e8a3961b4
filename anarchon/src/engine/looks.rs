//! Reading records: the watched ones each second, all of them in turn, some because of a hint.

use std::{collections::BTreeSet, time::Duration};

use super::{At, Call, Engine, Phase, Standing, Timer, calls::Sent, members, watch};
use crate::{
    clock::Mono,
    protocol::{JobName, Millis, Record, Token},
    store::{Snapshot, StoreError},
};

/// Between two looks at the watched jobs.
const WATCHED: Duration = Duration::from_secs(1);
/// Between two turns of looks, on a store without hints and on one with them.
const TURN: Duration = Duration::from_secs(5);
const TURN_WITH_HINTS: Duration = Duration::from_secs(30);
/// How many instances look as often as that. What a turn is for, an order whose instance has died or a record that is lost, is found if
/// one of them looks; more of them only load the store, by their number times that of the jobs.
const ENOUGH: usize = 10;
/// The least between two looks that hints ask for.
const HINTED: Duration = Duration::from_millis(250);
/// A record seen so recently is not looked at again by the clock.
const FRESH: Duration = Duration::from_millis(900);
/// How long one look may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// How many records one call reads, and one turn.
const BATCH: usize = 1000;
/// Before a takeover is tried again that the store refused although the lease seemed over.
const HELD_AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Looks {
    pub(super) look_due: bool,
    pub(super) sweep_due: bool,
    watched: BTreeSet<usize>,
    wanted: BTreeSet<usize>,
    /// The job that the next turn begins with.
    next: usize,
    /// Whether that turn is one of all jobs.
    pub(super) all: bool,
    last: Option<Mono>,
}

impl Engine {
    /// The record of the job may have changed.
    pub(super) fn changed(&mut self, job: &JobName, now: Mono) {
        if let Some(&job) = self.index.get(job) {
            self.want_look(job, now);
        }
    }

    pub(super) fn want_look(&mut self, job: usize, now: Mono) {
        self.looks.wanted.insert(job);
        let at = self.looks.last.map_or(now, |last| last.plus(HINTED).max(now));
        self.timers.advance(Timer::Look, at);
        self.looks.look_due |= at <= now;
    }

    /// Looks at all jobs in turn from now on.
    pub(super) fn start_sweeping(&mut self, now: Mono) {
        self.timers.set(Timer::Sweep, now.plus(self.sweep_interval()));
        if !self.looks.watched.is_empty() {
            self.timers.advance(Timer::Look, now.plus(WATCHED));
        }
    }

    fn sweep_interval(&self) -> Duration {
        let has_hints = self.guarantees.as_ref().is_some_and(|g| g.changes);
        let turn = if has_hints { TURN_WITH_HINTS } else { TURN };
        let tens = self.deploy.instances.len().div_ceil(ENOUGH).max(1);
        turn.saturating_mul(u32::try_from(tens).unwrap_or(u32::MAX))
    }

    /// The jobs whose turn it is.
    fn next_turn(&mut self) -> impl Iterator<Item = usize> + use<> {
        let (all, from) = (self.jobs.len(), self.looks.next);
        let turn = if std::mem::take(&mut self.looks.all) { all } else { BATCH.min(all) };
        self.looks.next = (from + turn).checked_rem(all).unwrap_or(0);
        (from..from + turn).map(move |job| job % all)
    }

    pub(super) fn send_looks(&mut self, now: Mono) {
        let look = std::mem::take(&mut self.looks.look_due);
        let sweep = std::mem::take(&mut self.looks.sweep_due);
        match self.phase {
            Phase::Up => {}
            Phase::New | Phase::Starting | Phase::Draining | Phase::Leaving | Phase::Stopped => return,
        }
        if sweep {
            self.start_sweeping(now);
        }
        if !look && !sweep {
            return;
        }
        let mut jobs = std::mem::take(&mut self.looks.wanted);
        let turn = sweep.then(|| self.next_turn());
        let by_the_clock = self.looks.watched.iter().copied().chain(turn.into_iter().flatten());
        jobs.extend(by_the_clock.filter(|&job| now.since(self.jobs[job].seen) >= FRESH));
        let jobs: Vec<usize> =
            jobs.into_iter().filter(|&j| !std::mem::replace(&mut self.jobs[j].looking, true)).collect();
        self.timers.clear(Timer::Look);
        if !self.looks.watched.is_empty() {
            self.timers.set(Timer::Look, now.plus(WATCHED));
        }
        if jobs.is_empty() {
            return;
        }
        self.looks.last = Some(now);
        for batch in jobs.chunks(BATCH) {
            let names = batch.iter().map(|&j| self.jobs[j].spec.name.clone()).collect();
            self.call(Call::Inspect(names), Sent::Inspect(batch.to_vec()), DEADLINE);
        }
    }

    pub(super) fn inspected(
        &mut self,
        jobs: &[usize],
        answers: impl Iterator<Item = Result<(Option<Snapshot>, At), StoreError>>,
        now: Mono,
    ) {
        for (&job, answer) in jobs.iter().zip(answers) {
            self.jobs[job].looking = false;
            match answer {
                Ok((Some(snapshot), at)) => self.absorb(job, &snapshot.record, at, now),
                Ok((None, at)) => {
                    if self.is_news(job, Token(0), at) {
                        self.record_lost(job, now);
                    }
                }
                // The next look comes by itself.
                Err(_) => {}
            }
        }
    }

    /// Whether a reply says something newer than what is known: replies overtake each other.
    fn is_news(&self, job: usize, token: Token, at: At) -> bool {
        let known = &self.jobs[job];
        at.sent >= known.seen || token > known.token || (token == known.token && at.received >= known.seen)
    }

    /// Learns from a record whatever reply it came with.
    pub(super) fn absorb(&mut self, job: usize, record: &Record, at: At, now: Mono) {
        self.check_schedule(job, record, at, now);
        match self.jobs[job].standing {
            Standing::InForce => {}
            Standing::New | Standing::Stale(_) => return,
        }
        // It goes down only when the store has lost the record and another instance registered the job anew.
        let known = &mut self.jobs[job];
        if record.decided > known.decided || (record.decided < known.decided && at.sent >= known.seen) {
            known.decided = record.decided;
            self.arm(job);
        }
        if !self.is_news(job, record.token, at) {
            return;
        }
        let known = &mut self.jobs[job];
        known.seen = known.seen.max(at.received);
        known.token = record.token;
        known.trigger = record.has_trigger().then_some(record.manual_asked);
        if known.trigger.is_some() {
            self.want_claim(job);
        }
        if self.is_own(job, record, at, now) {
            self.unwatch(job);
            return;
        }
        let courtesy = self.courtesy(job, record);
        match watch::Watched::new(record, at.received, at.store, self.lease(job), courtesy) {
            Some(watched) => self.watch(job, watched, now),
            None => self.unwatch(job),
        }
    }

    /// Whether the record is of a run of this instance that is still to be finished; notes what it says about that run.
    fn is_own(&mut self, job: usize, record: &Record, at: At, now: Mono) -> bool {
        if self.finishes.contains_key(&(job, record.token)) {
            return record.status == crate::protocol::Status::Running;
        }
        let Some(id) = self.jobs[job].run else { return false };
        self.run_seen(id, record, at, now)
    }

    fn courtesy(&mut self, job: usize, record: &Record) -> Duration {
        // Nobody waits for one that is finished, as most are.
        let rank = if record.status.is_unfinished() {
            let (me, instances) = (&self.settings.instance, &self.deploy.instances);
            members::rank(&self.jobs[job].spec.name, me, &record.holder, instances)
        } else {
            0
        };
        watch::courtesy(rank, self.random.f64())
    }

    /// Waits for the end of a lease or retry; the time it was first seen counts on when nothing changed.
    pub(super) fn watch(&mut self, job: usize, watched: watch::Watched, now: Mono) {
        if self.jobs[job].watch.as_ref().is_some_and(|old| old.is_same(&watched)) {
            return;
        }
        self.jobs[job].watch = Some(Box::new(watched));
        self.jobs[job].takeover = false;
        self.looks.watched.insert(job);
        self.timers.advance(Timer::Look, now.plus(WATCHED));
        self.arm_watch(job, now);
    }

    /// The store refused a takeover: asks again when the record says so, but not at once.
    pub(super) fn takeover_held(&mut self, job: usize, now: Mono) {
        if let Some(watched) = &mut self.jobs[job].watch {
            watched.not_before = now.plus(HELD_AGAIN);
        }
        self.jobs[job].takeover = false;
        self.arm_watch(job, now);
    }

    pub(super) fn arm_watch(&mut self, job: usize, now: Mono) {
        let Some(watched) = &self.jobs[job].watch else { return };
        if watched.not_before > now {
            self.watches.clear(job);
            self.timers.set(Timer::Observed(job), watched.not_before);
            return;
        }
        self.watches.set(job, watched.by_store());
        match watched.by_own_clock() {
            Some(at) => self.timers.set(Timer::Observed(job), at),
            None => self.timers.clear(Timer::Observed(job)),
        }
    }

    pub(super) fn unwatch(&mut self, job: usize) {
        self.jobs[job].takeover = false;
        if self.jobs[job].watch.take().is_some() {
            self.looks.watched.remove(&job);
            self.timers.clear(Timer::Observed(job));
            self.watches.clear(job);
        }
    }

    /// What the record said is void: the store has lost it.
    pub(super) fn forget(&mut self, job: usize) {
        self.unwatch(job);
        self.jobs[job].trigger = None;
        self.jobs[job].token = Token(0);
        self.jobs[job].missed = Millis(i64::MIN);
    }
}
