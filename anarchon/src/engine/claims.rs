//! Asking for attempts: what to ask for, when it may leave, what the answer means.

use std::{collections::BTreeSet, time::Duration};

use super::{
    At, Call, CancelReason, Engine, Job, Phase, Report, Start, Timer, backoff, calls::Sent, deploy::Standing,
    due, jitter, trust,
};
use crate::{
    clock::Mono,
    protocol::{Award, Claim, Millis, Nonce, Occurrence, Outcome, StoreNow, Verdict, What},
    store::{StoreError, StoreErrorKind},
};

/// How many claims one call takes.
const BATCH: usize = 200;
/// How many calls with claims leave together. The others follow as replies come, so that what those won is started first, and one more
/// each [`TOGETHER`] where none comes.
const CALLS: usize = 10;
/// How long claims wait for the call before to come back, so that they leave together.
const TOGETHER: Duration = Duration::from_millis(250);
/// The longest that a claim answered as early waits before the clock is asked anew.
const EARLY: Duration = Duration::from_secs(10);

/// A claim that the store has not answered.
#[derive(Debug)]
pub(super) struct Pending {
    what: What,
    lease: Duration,
    window: Duration,
    next: Option<Millis>,
    nonce: Nonce,
    expires: Millis,
    /// The first sending, once known; the trust in the lease counts from there.
    sent: Option<Mono>,
    in_flight: bool,
    /// Whether a sending may have reached the store: then it is repeated with the same nonce.
    unknown: bool,
}

impl Pending {
    /// Whether an earlier sending had no reply.
    pub(super) fn is_unknown(&self) -> bool {
        self.unknown
    }
}

/// The calls with claims.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    in_flight: usize,
    /// Whether there were more claims than calls for them: the rest waits for a reply, and not for anything to leave with.
    overfull: bool,
    last: Option<Mono>,
    last_takeover: Option<Mono>,
    /// How many claims wait for their answer, and the jobs of those that are to be repeated.
    pub(super) pending: usize,
    repeats: BTreeSet<usize>,
}

impl Job {
    /// Whether there is anything to claim, once nothing stands in the way.
    fn wants_something(&self) -> bool {
        self.pending.is_some() || self.due || self.takeover || self.trigger.is_some()
    }
}

enum Choice {
    Claim(Claim),
    Nothing,
}

impl Engine {
    /// Whether claims are still to be answered.
    pub(super) fn claims_open(&self) -> bool {
        self.claims.in_flight > 0 || !self.claims.repeats.is_empty()
    }

    /// Waits for the next occurrence that is not settled.
    pub(super) fn arm(&mut self, job: usize) {
        let known = &self.jobs[job];
        if known.due {
            return;
        }
        let next = match known.standing {
            Standing::InForce => due::next(&known.spec.schedule, known.settled()),
            Standing::New | Standing::Stale(_) => None,
        };
        let Some(next) = next else { return self.disarm(job) };
        let longest = due::longest_jitter(&known.spec.schedule, &known.spec.policy, next);
        let jitter = jitter::drawn(longest, self.random.f64());
        let micros = i64::try_from(jitter.as_micros()).unwrap_or(i64::MAX);
        let at = StoreNow(next.0.saturating_mul(1000).saturating_add(micros));
        self.dues.set(job, &mut self.jobs[job].due_at, at);
    }

    pub(super) fn disarm(&mut self, job: usize) {
        self.dues.clear(job, &mut self.jobs[job].due_at);
    }

    pub(super) fn occurrence_due(&mut self, job: usize) {
        self.jobs[job].due = true;
        self.want_claim(job);
    }

    pub(super) fn takeover_due(&mut self, job: usize) {
        if self.jobs[job].watch.is_some() {
            self.jobs[job].takeover = true;
            self.want_claim(job);
        }
    }

    /// The store's clock was stepped: what was too late by it may not be any more.
    pub(super) fn clock_stepped(&mut self) {
        for job in 0..self.jobs.len() {
            if std::mem::replace(&mut self.jobs[job].missed, Millis(i64::MIN)) > Millis(i64::MIN) {
                self.arm(job);
            }
        }
    }

    pub(super) fn want_claim(&mut self, job: usize) {
        if self.jobs[job].ready.is_none() && self.jobs[job].wants_something() {
            self.last_ready += 1;
            self.jobs[job].ready = Some(self.last_ready);
            self.ready.insert((self.last_ready, job));
        }
    }

    fn unready(&mut self, job: usize) {
        if let Some(seq) = self.jobs[job].ready.take() {
            self.ready.remove(&(seq, job));
        }
    }

    /// Forgets all that want to claim, but for claims that may have reached the store: an award that nobody hears of
    /// keeps its occurrence from everybody until its lease ends.
    fn keep_repeats(&mut self) {
        let (keep, forget): (BTreeSet<_>, BTreeSet<_>) = std::mem::take(&mut self.ready)
            .into_iter()
            .partition(|(_, job)| self.claims.repeats.contains(job));
        self.ready = keep;
        for (_, job) in forget {
            self.jobs[job].ready = None;
        }
    }

    /// Leaves the claims without an answer to the ends of their leases.
    pub(super) fn drop_repeats(&mut self) {
        for job in std::mem::take(&mut self.claims.repeats) {
            self.drop_pending(job);
        }
    }

    pub(super) fn send_claims(&mut self, now: Mono) {
        match self.phase {
            Phase::Up => {}
            Phase::Draining => self.keep_repeats(),
            Phase::New | Phase::Starting | Phase::Leaving | Phase::Stopped => return,
        }
        if self.ready.is_empty() {
            self.claims.overfull = false;
            return;
        }
        let together = self.claims.last.map(|last| last.plus(TOGETHER)).filter(|at| now < *at);
        if self.claims.in_flight > 0
            && !self.claims.overfull
            && let Some(together) = together
        {
            return self.timers.advance(Timer::Claims, together);
        }
        let (mut sent, mut takes_over) = (0, false);
        // Calls that hang stop nobody for long: once they have been waited for, one more leaves.
        while self.claims.in_flight < CALLS || together.is_none() && sent == 0 {
            let (jobs, claims) = self.next_claims(now);
            if claims.is_empty() {
                break;
            }
            takes_over |= claims.iter().any(|claim| matches!(claim.what, What::Takeover { .. }));
            let lease = claims.iter().map(|claim| claim.lease).min().unwrap_or_default();
            self.claims.in_flight += 1;
            self.claims.last = Some(now);
            sent += 1;
            self.call(Call::Claim(claims), Sent::Claim(jobs), trust::deadline(lease));
        }
        if takes_over {
            self.claims.last_takeover = Some(now);
        }
        self.claims.overfull = self.claims.in_flight >= CALLS && !self.ready.is_empty();
        // Where nothing left although it might have, the end of a run or a reply makes room, and not the time.
        if self.claims.overfull
            && let Some(at) = self.claims.last.map(|last| last.plus(TOGETHER)).filter(|at| now < *at)
        {
            self.timers.advance(Timer::Claims, at);
        }
    }

    /// The claims of the next call: of the jobs that have waited longest, as many as there is room for runs. A job that
    /// runs here needs no room: its next occurrence is claimed only so that it is skipped, by whoever asks first.
    fn next_claims(&mut self, now: Mono) -> (Vec<usize>, Vec<Claim>) {
        let (mut jobs, mut claims) = (Vec::new(), Vec::new());
        while claims.len() < BATCH {
            let candidates = self.candidates(BATCH - claims.len());
            if candidates.is_empty() {
                break;
            }
            for job in candidates {
                self.unready(job);
                if let Choice::Claim(claim) = self.choose(job, now) {
                    jobs.push(job);
                    claims.push(claim);
                }
            }
        }
        (jobs, claims)
    }

    fn candidates(&self, most: usize) -> Vec<usize> {
        let taken = self.runs.len() + self.claims.pending;
        let room = self.settings.concurrency.map_or(usize::MAX, |limit| limit.saturating_sub(taken));
        if room > 0 {
            return self.ready.iter().take(most.min(room)).map(|(_, job)| *job).collect();
        }
        let running: BTreeSet<usize> = self.runs.values().map(|run| run.job).collect();
        // A repeated claim has its room already.
        let both = running.union(&self.claims.repeats).copied();
        both.filter(|&job| self.jobs[job].ready.is_some()).take(most).collect()
    }

    /// What to claim for a job: a due occurrence, then a takeover that is due, then a waiting trigger. Nothing while a
    /// claim is in flight, a run is still to be closed, or a handler that lost its lease has not really ended.
    fn choose(&mut self, job: usize, now: Mono) -> Choice {
        let known = &self.jobs[job];
        if known.standing != Standing::InForce || known.finishing > 0 || now < known.not_before {
            return Choice::Nothing;
        }
        let running = match known.run {
            Some(run) if self.runs.get(&run).is_some_and(|run| run.is_trusted()) => true,
            Some(_) => return Choice::Nothing,
            None => false,
        };
        if known.pending.is_some() {
            return self.repeat(job, now);
        }
        if self.phase != Phase::Up {
            return Choice::Nothing;
        }
        if known.due
            && let Some(at) = self.due_occurrence(job, now)
        {
            return self.new_claim(job, What::Planned(at), now);
        }
        if running {
            return Choice::Nothing;
        }
        if self.jobs[job].takeover {
            // Those that are left of one go have waited already.
            if !self.claims.overfull
                && let Some(next) =
                    self.claims.last_takeover.map(|last| last.plus(TOGETHER)).filter(|at| *at > now)
            {
                self.timers.advance(Timer::Job(job), next);
                return Choice::Nothing;
            }
            let reached = self.clock.reached(now);
            if let Some(what) = self.jobs[job].watch.as_ref().and_then(|w| w.takeover(now, reached)) {
                return self.new_claim(job, what, now);
            }
            self.jobs[job].takeover = false;
            self.arm_watch(job, now);
        }
        let known = &self.jobs[job];
        match known.trigger {
            Some(seq) if !known.watch.as_ref().is_some_and(|w| w.is_running()) => {
                self.new_claim(job, What::Manual(seq), now)
            }
            Some(_) | None => Choice::Nothing,
        }
    }

    fn due_occurrence(&mut self, job: usize, now: Mono) -> Option<Millis> {
        let known = &self.jobs[job];
        let reached = self.clock.reached(now)?;
        let newest = due::newest(&known.spec.schedule, known.settled(), reached);
        if newest.is_none() {
            self.jobs[job].due = false;
            self.arm(job);
        }
        newest
    }

    /// The same claim once more, until it would be too late to start its run; then one with a new name. If it was for a
    /// planned occurrence it now asks for the newest: should the store not have seen it before, an older one is not to
    /// run, and if it has, the name alone decides.
    fn repeat(&mut self, job: usize, now: Mono) -> Choice {
        let Some(pending) = &mut self.jobs[job].pending else { return Choice::Nothing };
        if pending.in_flight {
            return Choice::Nothing;
        }
        if pending.sent.is_some_and(|sent| now >= trust::startable_until(sent, pending.lease)) {
            self.drop_pending(job);
            return self.choose(job, now);
        }
        let newest = match pending.what {
            What::Planned(_) => self.due_occurrence(job, now),
            What::Takeover { .. } | What::Manual(_) => None,
        };
        self.claims.repeats.remove(&job);
        let next = newest.and_then(|at| self.following(job, What::Planned(at)));
        let Job { pending: Some(pending), spec, .. } = &mut self.jobs[job] else { return Choice::Nothing };
        pending.in_flight = true;
        if let Some(at) = newest {
            pending.what = What::Planned(at);
            pending.next = next;
            pending.window = due::window(&spec.schedule, &spec.policy, at);
        }
        self.claim(job)
    }

    /// The claim that is pending, as the store is asked.
    fn claim(&self, job: usize) -> Choice {
        let Job { pending: Some(pending), spec, .. } = &self.jobs[job] else { return Choice::Nothing };
        Choice::Claim(Claim {
            job: spec.name.clone(),
            what: pending.what,
            lease: pending.lease,
            window: pending.window,
            max_attempts: spec.policy.max_attempts,
            schedule: spec.fingerprint,
            next: pending.next,
            holder: self.settings.instance.clone(),
            nonce: pending.nonce,
            expires: pending.expires,
        })
    }

    pub(super) fn drop_pending(&mut self, job: usize) {
        if self.jobs[job].pending.take().is_some() {
            self.claims.pending -= 1;
            self.claims.repeats.remove(&job);
        }
    }

    /// The store's time after which an award could not be started any more.
    fn expires(&self, job: usize, lease: Duration, now: Mono) -> Millis {
        let last = trust::startable_until(now, lease);
        let by_store = self.clock.at_most(last);
        // The servers of one store may differ.
        let by_server = self.jobs[job].expired.map(|at| at.at_most(last));
        by_store.max(by_server).map_or(Millis::MAX, StoreNow::millis)
    }

    /// The occurrence behind a planned one, where the record has to tell whether a schedule still has its instances.
    fn following(&self, job: usize, what: What) -> Option<Millis> {
        match what {
            What::Planned(at) if !self.has_beat() => due::next(&self.jobs[job].spec.schedule, at),
            What::Planned(_) | What::Takeover { .. } | What::Manual(_) => None,
        }
    }

    fn new_claim(&mut self, job: usize, what: What, now: Mono) -> Choice {
        let nonce = self.next_nonce();
        let lease = self.lease(job);
        let spec = &self.jobs[job].spec;
        let window = match what {
            What::Planned(at) => due::window(&spec.schedule, &spec.policy, at),
            What::Takeover { .. } | What::Manual(_) => self.takeover_window(job),
        };
        let pending = Pending {
            what,
            lease,
            window,
            next: self.following(job, what),
            nonce,
            expires: self.expires(job, lease, now),
            sent: None,
            in_flight: true,
            unknown: false,
        };
        self.jobs[job].pending = Some(Box::new(pending));
        self.claims.pending += 1;
        self.claim(job)
    }

    pub(super) fn claims_answered(
        &mut self,
        jobs: &[usize],
        answers: impl Iterator<Item = Result<(Verdict, At), StoreError>>,
        sent: Mono,
        now: Mono,
    ) {
        self.claims.in_flight -= 1;
        for (&job, answer) in jobs.iter().zip(answers) {
            let Some(pending) = &mut self.jobs[job].pending else { continue };
            pending.in_flight = false;
            let first_sent = *pending.sent.get_or_insert(sent);
            match answer {
                Err(error) => self.claim_failed(job, &error, now),
                Ok((verdict, at)) => {
                    let (what, window) = (pending.what, pending.window);
                    self.drop_pending(job);
                    if !matches!(verdict, Verdict::Early | Verdict::Expired) {
                        self.jobs[job].failures = 0;
                    }
                    self.decided(job, what, window, verdict, at, first_sent, now);
                }
            }
        }
    }

    fn claim_failed(&mut self, job: usize, error: &StoreError, now: Mono) {
        let known = &mut self.jobs[job];
        let again = now.plus(backoff::store_delay(known.failures, self.random.f64()));
        known.failures = known.failures.saturating_add(1);
        known.not_before = again;
        let unknown = error.kind == StoreErrorKind::Unknown;
        let keep = known.pending.as_mut().is_some_and(|pending| {
            pending.unknown |= unknown;
            pending.unknown
        });
        if !keep || !self.may_start(now) {
            self.drop_pending(job);
        } else {
            self.claims.repeats.insert(job);
        }
        self.timers.set(Timer::Job(job), again);
    }

    #[expect(clippy::too_many_arguments, reason = "all that is known of one answer")]
    fn decided(
        &mut self,
        job: usize,
        what: What,
        window: Duration,
        verdict: Verdict,
        at: At,
        first_sent: Mono,
        now: Mono,
    ) {
        if let What::Planned(_) = what {
            self.jobs[job].due = false;
        }
        match verdict {
            Verdict::Awarded(award) => self.awarded(job, what, &award, at, first_sent, now),
            Verdict::AlreadyDone(record) | Verdict::AlreadyDecided(record) => {
                self.do_not_ask_again(job, what);
                self.in_force(job, at, |engine| {
                    engine.jobs[job].takeover = false;
                    engine.absorb(job, &record, at, now);
                    engine.arm_watch(job, now);
                });
                self.pace_trigger(job, what, now);
            }
            Verdict::Stale { schedule } => self.became_stale(job, schedule, now),
            Verdict::Early => {
                self.clock.distrust();
                if let What::Planned(planned) = what {
                    self.jobs[job].due = true;
                    self.ask_again(job, at.received.plus(planned.since(at.store.millis()).min(EARLY)));
                }
            }
            Verdict::Expired => {
                self.clock.distrust();
                let known = &mut self.jobs[job];
                known.expired = Some(at);
                if let What::Planned(_) = what {
                    known.due = true;
                }
                self.ask_again(job, at.received);
            }
            Verdict::Paused(record) => {
                self.in_force(job, at, |engine| engine.absorb(job, &record, at, now));
                self.settle(job, what);
            }
            Verdict::Missed => {
                if let What::Planned(planned) = what {
                    self.do_not_ask_again(job, what);
                    let name = self.jobs[job].spec.name.clone();
                    self.report(Report::Missed { job: name, occurrence: planned, window });
                }
            }
            Verdict::Skipped(record) => {
                if let What::Planned(planned) = what {
                    let name = self.jobs[job].spec.name.clone();
                    let holder = record.holder.clone();
                    self.report(Report::Skipped { job: name, occurrence: planned, holder });
                }
                self.in_force(job, at, |engine| engine.absorb(job, &record, at, now));
                self.settle(job, what);
            }
            Verdict::Held(record) => self.in_force(job, at, |engine| {
                engine.absorb(job, &record, at, now);
                match what {
                    What::Takeover { .. } => engine.takeover_held(job, now),
                    What::Planned(_) | What::Manual(_) => engine.pace_trigger(job, what, now),
                }
            }),
            Verdict::GaveUp(record) => {
                self.report(Report::GaveUp {
                    job: self.jobs[job].spec.name.clone(),
                    occurrence: record.occurrence,
                    attempt: record.attempt,
                    status: record.status,
                });
                self.in_force(job, at, |engine| engine.absorb(job, &record, at, now));
            }
            Verdict::Unregistered => self.record_lost(job, now),
        }
        self.arm(job);
        // Something else may have become claimable meanwhile.
        self.want_claim(job);
    }

    /// The store's clock was not what it was taken for: the same again, with a pause that doubles each time, in case the
    /// answers contradict that clock for good.
    fn ask_again(&mut self, job: usize, at: Mono) {
        let known = &mut self.jobs[job];
        known.not_before = at.plus(Duration::from_millis(1 << known.failures.min(10)));
        known.failures = known.failures.saturating_add(1);
        self.timers.set(Timer::Job(job), known.not_before);
    }

    fn in_force(&mut self, job: usize, at: At, then: impl FnOnce(&mut Self)) {
        self.saw_in_force(job, at);
        then(self);
    }

    /// A trigger that was not awarded and still waits is not asked for again at once.
    fn pace_trigger(&mut self, job: usize, what: What, now: Mono) {
        if let (What::Manual(seq), Some(still)) = (what, self.jobs[job].trigger)
            && seq == still
        {
            self.hold_off(job, now);
        }
    }

    /// The answer was final for the occurrence, whatever the store has written.
    fn do_not_ask_again(&mut self, job: usize, what: What) {
        match what {
            What::Planned(at) => self.jobs[job].missed = self.jobs[job].missed.max(at),
            What::Takeover { .. } | What::Manual(_) => {}
        }
    }

    /// The store has decided the occurrence that was asked for.
    fn settle(&mut self, job: usize, what: What) {
        match what {
            What::Planned(at) => self.jobs[job].decided = self.jobs[job].decided.max(at),
            What::Takeover { .. } | What::Manual(_) => {}
        }
    }

    fn awarded(&mut self, job: usize, what: What, award: &Award, at: At, first_sent: Mono, now: Mono) {
        self.saw_in_force(job, at);
        let before = self.jobs[job].settled();
        let previous = self.jobs[job].watch.as_ref().map(|w| w.holder.clone());
        match award.occurrence {
            // Not what was asked for: a repeated claim may have asked for a newer one.
            Occurrence::Planned(at) => self.settle(job, What::Planned(at)),
            Occurrence::Manual(_) => {}
        }
        self.report_overtaken(job, award);
        self.unwatch(job);
        let known = &mut self.jobs[job];
        known.token = award.token;
        known.seen = known.seen.max(at.received);
        match what {
            What::Manual(_) => known.trigger = None,
            What::Planned(_) | What::Takeover { .. } => {}
        }
        let catch_up = self.report_award(job, award, before, previous);
        let lease = self.lease(job);
        let in_time = now <= trust::startable_until(first_sent, lease);
        if let Some(run) = self.jobs[job].run {
            // The store ended the lease of a run of ours early: nobody may start beside its handler.
            self.cancel_run(run, CancelReason::LeaseLost, now);
            return self.give_back(job, award, now);
        }
        if !in_time || !self.may_start(now) {
            return self.give_back(job, award, now);
        }
        self.start(job, award, catch_up, first_sent, lease, now);
    }

    fn report_award(
        &mut self,
        job: usize,
        award: &Award,
        before: Millis,
        previous: Option<crate::protocol::InstanceId>,
    ) -> bool {
        let Job { spec, .. } = &self.jobs[job];
        let name = spec.name.clone();
        let Occurrence::Planned(planned) = award.occurrence else {
            self.report_takeover(name, award, previous);
            return false;
        };
        let catch_up = due::is_catch_up(&spec.schedule, &spec.policy, planned, award.started);
        if award.attempt == 1 && catch_up {
            let window = due::window(&spec.schedule, &spec.policy, planned);
            if let Some(missed) = due::missed(&spec.schedule, before, window, award.started) {
                self.report(Report::Missed { job: name.clone(), occurrence: missed, window });
            }
            let late = award.started.since(planned);
            self.report(Report::CaughtUp { job: name.clone(), occurrence: planned, late });
        }
        self.report_takeover(name, award, previous);
        catch_up
    }

    /// The newest occurrence wins: what was unfinished then is closed as lost, and only the winner can tell.
    fn report_overtaken(&mut self, job: usize, award: &Award) {
        let Job { spec, watch: Some(watched), .. } = &self.jobs[job] else { return };
        let (occurrence, by) = (watched.occurrence, award.occurrence);
        if award.attempt == 1 && occurrence != by && watched.is_unfinished_at(award.started) {
            let (job, holder) = (spec.name.clone(), watched.holder.clone());
            self.report(Report::Overtaken { job, occurrence, by, holder });
        }
    }

    fn report_takeover(
        &mut self,
        job: crate::protocol::JobName,
        award: &Award,
        previous: Option<crate::protocol::InstanceId>,
    ) {
        if award.attempt > 1
            && let Some(previous) = previous
        {
            let (occurrence, attempt) = (award.occurrence, award.attempt);
            self.report(Report::TookOver { job, occurrence, attempt, previous });
        }
    }

    fn give_back(&mut self, job: usize, award: &Award, now: Mono) {
        let name = self.jobs[job].spec.name.clone();
        self.report(Report::Unstarted { job: name, occurrence: award.occurrence, token: award.token });
        self.finish(job, award.token, award.occurrence, award.until, Outcome::Released, None, now);
        self.hold_off(job, now);
    }

    fn start(&mut self, job: usize, award: &Award, catch_up: bool, sent: Mono, lease: Duration, now: Mono) {
        let run = self.add_run(job, award, sent, lease, now);
        let trust = trust::trust(sent, lease);
        self.actions.push_back(super::Action::Start(Start { run, job, award: *award, catch_up, trust }));
    }
}
