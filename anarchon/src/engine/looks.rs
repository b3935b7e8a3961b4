//! Reading records: the watched ones each second, all of them in turn, some because of a hint.

use std::{collections::BTreeSet, time::Duration};

use super::{At, Call, Engine, Job, Phase, Standing, Timer, backoff, calls::Sent, due, members, watch};
use crate::{
    clock::Mono,
    protocol::{JobName, Millis, Record, Token},
    store::{Snapshot, StoreError, StoreErrorKind},
};

/// Between two looks at the watched jobs.
const WATCHED: Duration = Duration::from_secs(1);
/// Between two turns of looks, on a store without hints and on one with them.
const TURN: Duration = Duration::from_secs(5);
const TURN_WITH_HINTS: Duration = Duration::from_secs(30);
/// How many instances look as often as that. What a turn is for is an order whose instance has died or cannot carry it out, a run that
/// nobody else has heard of, a record that is lost, and without announcements the schedule in force. Most of it is found if one of them
/// looks; more of them only load the store, by their number times that of the jobs.
const ENOUGH: usize = 10;
/// The least between two looks that hints ask for.
const HINTED: Duration = Duration::from_millis(250);
/// A record seen so recently is not looked at again by the clock.
const FRESH: Duration = Duration::from_millis(900);
/// How long one look may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// From the first record that is found lost to the look for others, and from one such look to the next.
const LOST: Duration = Duration::from_secs(1);
/// For so long after a loss a look that fails is one at all jobs again.
const COMES_BACK: Duration = Duration::from_secs(60);
/// How many records one call reads, and one turn.
const BATCH: usize = 1000;
/// What is allowed to a takeover beyond the round that it was found in.
const LATE: Duration = Duration::from_secs(2);
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
    /// How many jobs have still to be looked at, as records are lost, and when one was last found to be.
    lost: usize,
    lost_at: Option<Mono>,
    /// When the turns began.
    began: Option<Mono>,
    /// How many looks failed one after the other.
    failures: u32,
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

    /// Looks at all jobs in turn from now on. When and with which it begins is chance: instances that were started together would look
    /// at the same records at the same time.
    pub(super) fn start_sweeping(&mut self, now: Mono) {
        self.looks.began = Some(now);
        self.looks.next = match self.jobs.len() {
            0 => 0,
            jobs => self.random.usize(..jobs),
        };
        let first = self.sweep_interval().mul_f64(self.random.f64());
        self.timers.set(Timer::Sweep, now.plus(if self.looks.lost > 0 { LOST } else { first }));
        if !self.looks.watched.is_empty() || !self.looks.wanted.is_empty() {
            self.timers.advance(Timer::Look, now.plus(WATCHED));
        }
    }

    /// There may be fewer instances than when the next turn was planned.
    pub(super) fn sweep_in_time(&mut self, now: Mono) {
        if self.looks.began.is_some() {
            self.timers.advance(Timer::Sweep, now.plus(self.sweep_interval()));
        }
    }

    /// Where one record is lost, more may be: also where it is such a look that found it, which may have passed over what was seen just
    /// before the loss.
    pub(super) fn look_for_lost(&mut self, now: Mono) {
        self.looks.lost_at = Some(now);
        self.look_at_all(now, LOST);
    }

    fn look_at_all(&mut self, now: Mono, wait: Duration) {
        self.looks.lost = self.jobs.len();
        if self.looks.began.is_some() {
            self.timers.advance(Timer::Sweep, now.plus(wait));
        }
    }

    fn sweep_interval(&self) -> Duration {
        let has_hints = self.guarantees.as_ref().is_some_and(|g| g.changes);
        let turn = if has_hints { TURN_WITH_HINTS } else { TURN };
        turn.saturating_mul(u32::try_from(self.tens()).unwrap_or(u32::MAX))
    }

    /// How many times as many instances there are as are enough.
    fn tens(&self) -> usize {
        self.deploy.instances.len().div_ceil(ENOUGH).max(1)
    }

    /// From one look at a record to the next, where nothing but the turns leads to it.
    pub(super) fn round(&self) -> Duration {
        let turns = self.jobs.len().div_ceil(BATCH).max(1);
        self.sweep_interval().saturating_mul(u32::try_from(turns).unwrap_or(u32::MAX))
    }

    /// The jobs whose turn it is. Where records are lost, those of so many instances are all of them.
    fn next_turn(&mut self) -> impl Iterator<Item = usize> + use<> {
        let (all, from) = (self.jobs.len(), self.looks.next);
        let turn = match self.looks.lost {
            0 => BATCH.min(all),
            left => all.div_ceil(self.tens()).max(BATCH).min(left),
        };
        self.looks.lost = self.looks.lost.saturating_sub(turn);
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
        if !look && !sweep {
            return;
        }
        // What is under way may have been read before the change.
        let (again, mut jobs): (BTreeSet<_>, BTreeSet<_>) =
            std::mem::take(&mut self.looks.wanted).into_iter().partition(|&job| self.jobs[job].looking);
        let turn = sweep.then(|| self.next_turn());
        let by_the_clock = self.looks.watched.iter().copied().chain(turn.into_iter().flatten());
        jobs.extend(by_the_clock.filter(|&job| now.since(self.jobs[job].seen) >= FRESH));
        let jobs: Vec<usize> =
            jobs.into_iter().filter(|&j| !std::mem::replace(&mut self.jobs[j].looking, true)).collect();
        if sweep {
            let wait = if self.looks.lost > 0 { LOST } else { self.sweep_interval() };
            self.timers.set(Timer::Sweep, now.plus(wait));
        }
        self.timers.clear(Timer::Look);
        if !self.looks.watched.is_empty() {
            self.timers.set(Timer::Look, now.plus(WATCHED));
        }
        if !again.is_empty() {
            self.looks.wanted = again;
            self.timers.advance(Timer::Look, now.plus(HINTED));
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
        let mut failed = false;
        for (&job, answer) in jobs.iter().zip(answers) {
            self.jobs[job].looking = false;
            match answer {
                Ok((Some(snapshot), at)) => self.absorb(job, &snapshot.record, at, now),
                Ok((None, at)) => {
                    if self.is_news(job, Token(0), at) {
                        self.record_lost(job, now);
                    }
                }
                // Somebody has to mend it; the next turn shows whether.
                Err(error) if error.kind == StoreErrorKind::Misconfigured => {}
                Err(_) => {
                    failed = true;
                    // Its turn comes round again as well, which may be long after. A store that is away is not asked for more than that.
                    if self.looks.wanted.len() < BATCH {
                        self.looks.wanted.insert(job);
                    }
                }
            }
        }
        if failed {
            let wait = backoff::store_delay(self.looks.failures, self.random.f64());
            self.looks.failures = self.looks.failures.saturating_add(1);
            self.timers.advance(Timer::Look, now.plus(wait));
            // A store that has just lost its data is hardly up again.
            if self.looks.lost_at.is_some_and(|lost| now.since(lost) < COMES_BACK) {
                self.look_at_all(now, wait.max(LOST));
            }
        } else {
            self.looks.failures = 0;
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
            Some(mut watched) => {
                watched.is_found_late = self.is_found_late(record, at, now);
                self.watch(job, watched, now);
            }
            None => self.unwatch(job),
        }
    }

    /// Whether the lease or the retry was over when it was seen, and this instance there to see it before.
    fn is_found_late(&self, record: &Record, at: At, now: Mono) -> bool {
        let over = at.store.millis().since(record.until);
        !over.is_zero() && self.looks.began.is_some_and(|began| now.since(began) >= over)
    }

    /// How late a takeover may be. What only a turn of looks leads to, as a run that was ordered elsewhere, is not late before one has come
    /// round.
    pub(super) fn takeover_window(&self, job: usize) -> Duration {
        let Job { spec, watch, .. } = &self.jobs[job];
        let window = due::takeover_window(&spec.policy);
        match watch {
            Some(watched) if watched.is_found_late => window.max(self.round().saturating_add(LATE)),
            Some(_) | None => window,
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
