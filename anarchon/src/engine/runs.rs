//! The runs of this instance: from the award over renewals to the outcome that the store has taken.

use std::time::Duration;

use super::{
    Action, At, Call, CancelReason, Engine, Finish, Finished, Mono, Phase, Renewal, Renewed, Report, RunEnd,
    RunId, Timer, backoff, calls::Sent, due, trust, watch,
};
use crate::{
    protocol::{Award, Millis, Occurrence, Outcome, Record, Status, Token},
    store::{StoreError, StoreErrorKind},
};

/// From the cancellation token to the drop.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// How long an instance that gave a run back leaves it to the others.
const HOLD_OFF: Duration = Duration::from_secs(1);
/// How many renewals or finishes one call takes.
const BATCH: usize = 200;
/// How long finishes wait for the call before to come back, so that they leave together.
const TOGETHER: Duration = Duration::from_millis(100);
/// The longest message, in characters.
const MESSAGE: usize = 1000;

/// A handler of this instance that has not ended.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) job: usize,
    pub(super) token: Token,
    pub(super) occurrence: Occurrence,
    /// How many earlier attempts ended by an error.
    errors: u32,
    lease: Duration,
    /// The sending of the last claim or renewal that succeeded.
    sent: Mono,
    /// When its reply was there, and the end of the lease that it told.
    received: Mono,
    until: Millis,
    timeout_at: Option<Mono>,
    renew_at: Mono,
    renewing: bool,
    failures: u32,
    cancelled: Option<CancelReason>,
    drop_at: Option<Mono>,
    lost: bool,
    dropped: bool,
    look_at: Option<Mono>,
}

impl Running {
    /// Whether its lease may be believed, as far as was looked.
    pub(super) fn is_trusted(&self) -> bool {
        !self.lost
    }

    fn drop_at(&self) -> Option<Mono> {
        let by_trust = trust::trust(self.sent, self.lease).drop_at;
        if self.dropped { None } else { self.drop_at.map(|at| at.min(by_trust)) }
    }

    fn next_look(&self) -> Option<Mono> {
        let trusted = (!self.lost).then(|| trust::trust(self.sent, self.lease).cancel_at);
        let renew = (!self.lost && !self.renewing).then_some(self.renew_at);
        let timeout = if self.cancelled.is_none() { self.timeout_at } else { None };
        [trusted, renew, timeout, self.drop_at()].into_iter().flatten().min()
    }
}

/// A run that has ended here and is still to be closed in the store.
#[derive(Debug)]
pub(super) struct Finishing {
    outcome: Outcome,
    message: Option<String>,
    occurrence: Occurrence,
    lease: Duration,
    /// The end of the lease as last told; watched if the store never answers.
    until: Millis,
    since: Mono,
    give_up_at: Mono,
    failures: u32,
    /// Whether a sending may have reached the store.
    unknown: bool,
}

impl Engine {
    pub(super) fn add_run(
        &mut self,
        job: usize,
        award: &Award,
        sent: Mono,
        lease: Duration,
        now: Mono,
    ) -> RunId {
        self.last_run += 1;
        let id = RunId(self.last_run);
        let run = Running {
            job,
            token: award.token,
            occurrence: award.occurrence,
            errors: award.errors,
            lease,
            sent,
            received: now,
            until: award.until,
            timeout_at: self.jobs[job].spec.policy.timeout.map(|timeout| now.plus(timeout)),
            renew_at: trust::renew_at(sent, lease),
            renewing: false,
            failures: 0,
            cancelled: None,
            drop_at: None,
            lost: false,
            dropped: false,
            look_at: None,
        };
        self.jobs[job].run = Some(id);
        self.runs.insert(id, Box::new(run));
        self.arm_run(id);
        id
    }

    fn arm_run(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        match run.next_look() {
            Some(at) => self.run_looks.set(id, &mut run.look_at, at),
            None => self.run_looks.clear(id, &mut run.look_at),
        }
    }

    pub(super) fn look_at_run(&mut self, id: RunId, now: Mono) {
        if let Some(run) = self.runs.get_mut(&id) {
            run.look_at = None;
            self.advance_run(id, now);
        }
    }

    /// Cancels, drops and renews as the time demands.
    fn advance_run(&mut self, id: RunId, now: Mono) {
        let Some(run) = self.runs.get(&id) else { return };
        let trusted = now < trust::trust(run.sent, run.lease).cancel_at;
        let timed_out = run.timeout_at.is_some_and(|at| at <= now);
        if !trusted {
            self.lose(id, None);
        } else if timed_out {
            self.cancel_run(id, CancelReason::Timeout, now);
        }
        let Some(run) = self.runs.get_mut(&id) else { return };
        if run.drop_at().is_some_and(|at| at <= now) {
            run.dropped = true;
            self.actions.push_back(Action::Drop { run: id });
        }
        if !run.lost && !run.renewing && run.renew_at <= now {
            self.leaving.renew_due = true;
            // `send_renewals` follows and sets the timer.
            self.run_looks.clear(id, &mut run.look_at);
        } else {
            self.arm_run(id);
        }
    }

    /// Sets the cancellation token of a run, once; its future is dropped 2 s later or when the trust in its lease ends.
    pub(super) fn cancel_run(&mut self, id: RunId, reason: CancelReason, now: Mono) {
        match reason {
            CancelReason::LeaseLost => self.lose(id, Some(now.plus(GRACE))),
            CancelReason::Timeout | CancelReason::Shutdown | CancelReason::Operator => {
                let Some(run) = self.runs.get_mut(&id) else { return };
                if run.cancelled.is_none() {
                    run.cancelled = Some(reason);
                    run.drop_at = Some(now.plus(GRACE));
                    self.actions.push_back(Action::Cancel { run: id, reason });
                }
            }
        }
        self.arm_run(id);
    }

    /// The lease of a run is over for this instance; its future is dropped at `drop_at` or when the trust ends.
    fn lose(&mut self, id: RunId, drop_at: Option<Mono>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if std::mem::replace(&mut run.lost, true) {
            return;
        }
        let by_trust = trust::trust(run.sent, run.lease).drop_at;
        let drop_at = drop_at.unwrap_or(by_trust).min(by_trust);
        run.drop_at = Some(run.drop_at.map_or(drop_at, |earlier| earlier.min(drop_at)));
        let (job, occurrence, token) = (run.job, run.occurrence, run.token);
        if run.cancelled.is_none() {
            run.cancelled = Some(CancelReason::LeaseLost);
            self.actions.push_back(Action::Cancel { run: id, reason: CancelReason::LeaseLost });
        }
        let job = self.jobs[job].spec.name.clone();
        self.report(Report::LeaseLost { job, occurrence, token });
    }

    /// What a record says about the job's run here; whether that run is the one the record is about.
    pub(super) fn run_seen(&mut self, id: RunId, record: &Record, at: At, now: Mono) -> bool {
        let Some(run) = self.runs.get(&id) else { return false };
        if record.token == run.token {
            if record.status == Status::Running && record.cancel == Some(run.token) {
                self.cancel_run(id, CancelReason::Operator, now);
            }
            return true;
        }
        let overtaken = record.token > run.token && at.sent >= run.received;
        if overtaken {
            self.cancel_run(id, CancelReason::LeaseLost, now);
        }
        !overtaken
    }

    pub(super) fn send_renewals(&mut self, now: Mono) {
        if !std::mem::take(&mut self.leaving.renew_due) {
            return;
        }
        let mut batch = Vec::new();
        for (&id, run) in &mut self.runs {
            // Those that are nearly due go along.
            let soon = now.plus(run.lease / 12);
            if !run.lost && !run.renewing && run.renew_at <= soon {
                run.renewing = true;
                batch.push(id);
            }
        }
        for batch in batch.chunks(BATCH) {
            let runs = || batch.iter().filter_map(|id| self.runs.get(id));
            let lease = runs().map(|run| run.lease).min().unwrap_or_default();
            let renewals = runs()
                .map(|run| Renewal {
                    job: self.jobs[run.job].spec.name.clone(),
                    token: run.token,
                    lease: run.lease,
                })
                .collect();
            self.call(Call::Renew(renewals), Sent::Renew(batch.to_vec()), trust::deadline(lease));
        }
        for id in batch {
            self.arm_run(id);
        }
    }

    pub(super) fn renewals_answered(
        &mut self,
        runs: &[RunId],
        answers: impl Iterator<Item = Result<(Renewed, At), StoreError>>,
        now: Mono,
    ) {
        for (&id, answer) in runs.iter().zip(answers) {
            let Some(run) = self.runs.get_mut(&id) else { continue };
            run.renewing = false;
            match answer {
                Ok((Renewed::Extended { until, cancel }, at)) => self.extended(id, until, cancel, at, now),
                Ok((Renewed::Lost, _)) => self.cancel_run(id, CancelReason::LeaseLost, now),
                Err(_) => {
                    let wait = backoff::store_delay(run.failures, self.random.f64()).min(run.lease / 12);
                    run.failures = run.failures.saturating_add(1);
                    run.renew_at = now.plus(wait);
                }
            }
            self.advance_run(id, now);
        }
    }

    fn extended(&mut self, id: RunId, until: Millis, cancel: bool, at: At, now: Mono) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if run.lost {
            return;
        }
        run.sent = run.sent.max(at.sent);
        run.received = at.received;
        run.until = until;
        run.failures = 0;
        run.renew_at = trust::renew_at(run.sent, run.lease);
        let trust = trust::trust(run.sent, run.lease);
        self.actions.push_back(Action::Trust { run: id, trust });
        if cancel {
            self.cancel_run(id, CancelReason::Operator, now);
        }
    }

    pub(super) fn run_ended(&mut self, id: RunId, end: RunEnd, now: Mono) {
        let is_over = |run: &Running| now >= trust::trust(run.sent, run.lease).cancel_at;
        if matches!(end, RunEnd::Dropped) && self.runs.get(&id).is_some_and(|run| is_over(run)) {
            // Whoever guards its future looks at the clock as well, and may be the first to see it.
            self.lose(id, None);
        }
        let Some(mut run) = self.runs.remove(&id) else { return };
        self.run_looks.clear(id, &mut run.look_at);
        let job = run.job;
        self.jobs[job].run = None;
        match self.outcome(&run, end, now) {
            Some((outcome, message)) => {
                self.finish(job, run.token, run.occurrence, run.until, outcome, message, now);
            }
            None => {
                self.watch_own(job, run.token, run.occurrence, run.until, run.received.plus(run.lease), now);
            }
        }
        self.want_claim(job);
    }

    /// What to tell the store; `None` for a run whose lease was lost and that may have given up because of it.
    fn outcome(&mut self, run: &Running, end: RunEnd, now: Mono) -> Option<(Outcome, Option<String>)> {
        let (error, gave_up) = match end {
            RunEnd::Returned { error, saw_cancel } => (error, saw_cancel),
            RunEnd::Dropped if run.cancelled.is_none() => {
                // Never started.
                self.hold_off(run.job, now);
                return Some((Outcome::Released, None));
            }
            RunEnd::Dropped => (None, true),
        };
        let reason = if gave_up { run.cancelled } else { None };
        match reason {
            None => match error {
                None => Some((Outcome::Succeeded, None)),
                Some(error) => Some(self.failed(run, error)),
            },
            Some(CancelReason::LeaseLost) => None,
            Some(CancelReason::Timeout) => {
                let timeout = self.jobs[run.job].spec.policy.timeout.unwrap_or_default();
                let message = match error {
                    Some(error) => format!("timed out after {timeout:?}: {error}"),
                    None => format!("timed out after {timeout:?}"),
                };
                Some(self.failed(run, message.chars().take(MESSAGE).collect()))
            }
            Some(CancelReason::Shutdown) => Some((Outcome::Released, None)),
            Some(CancelReason::Operator) => Some((Outcome::Cancelled, error)),
        }
    }

    fn failed(&self, run: &Running, message: String) -> (Outcome, Option<String>) {
        let policy = &self.jobs[run.job].spec.policy;
        if run.errors < policy.retries {
            (Outcome::Retry(backoff::delay(policy.backoff, run.errors)), Some(message))
        } else {
            (Outcome::Failed, Some(message))
        }
    }

    /// Waits for the end of a lease that this instance held, like for any other.
    fn watch_own(
        &mut self,
        job: usize,
        token: Token,
        occurrence: Occurrence,
        until: Millis,
        over_at: Mono,
        now: Mono,
    ) {
        if self.jobs[job].token == token && self.jobs[job].standing == super::Standing::InForce {
            let holder = self.settings.instance.clone();
            let courtesy = watch::courtesy(1, self.random.f64());
            let watched = watch::Watched::own(token, until, holder, occurrence, over_at, courtesy);
            self.watch(job, watched, now);
        }
    }

    /// Leaves the job to the others for a moment.
    pub(super) fn hold_off(&mut self, job: usize, now: Mono) {
        self.jobs[job].not_before = self.jobs[job].not_before.max(now.plus(HOLD_OFF));
        self.timers.set(Timer::Job(job), self.jobs[job].not_before);
    }

    #[expect(clippy::too_many_arguments, reason = "all that is told of one run")]
    pub(super) fn finish(
        &mut self,
        job: usize,
        token: Token,
        occurrence: Occurrence,
        until: Millis,
        outcome: Outcome,
        message: Option<String>,
        now: Mono,
    ) {
        let lease = self.lease(job);
        let window = due::takeover_window(&self.jobs[job].spec.policy).max(lease);
        let finishing = Finishing {
            outcome,
            message,
            occurrence,
            lease,
            until,
            since: now,
            give_up_at: now.plus(window),
            failures: 0,
            unknown: false,
        };
        if self.finishes.insert((job, token), Box::new(finishing)).is_none() {
            self.jobs[job].finishing += 1;
        }
        self.leaving.finish_due.push((job, token));
    }

    pub(super) fn advance_finish(&mut self, job: usize, token: Token, now: Mono) {
        let Some(finishing) = self.finishes.get(&(job, token)) else { return };
        if now < finishing.give_up_at {
            self.leaving.finish_due.push((job, token));
            return;
        }
        let (occurrence, until, since, lease) =
            (finishing.occurrence, finishing.until, finishing.since, finishing.lease);
        let name = self.jobs[job].spec.name.clone();
        self.report(Report::FinishAbandoned { job: name, occurrence, token });
        self.finish_over(job, token);
        self.watch_own(job, token, occurrence, until, since.plus(lease), now);
    }

    fn finish_over(&mut self, job: usize, token: Token) {
        if self.finishes.remove(&(job, token)).is_some() {
            self.jobs[job].finishing -= 1;
            self.want_claim(job);
        }
    }

    pub(super) fn send_finishes(&mut self, now: Mono) {
        match self.phase {
            Phase::Up | Phase::Draining => {}
            Phase::New | Phase::Starting | Phase::Leaving | Phase::Stopped => return,
        }
        if self.leaving.finish_due.is_empty() {
            return;
        }
        if self.leaving.finishes_in_flight > 0
            && let Some(together) = self.leaving.last_finish.map(|last| last.plus(TOGETHER))
            && now < together
        {
            return self.timers.advance(Timer::Finishes, together);
        }
        self.leaving.last_finish = Some(now);
        let mut ended = std::mem::take(&mut self.leaving.finish_due);
        ended.sort_unstable();
        ended.dedup();
        ended.retain(|key| self.finishes.contains_key(key));
        for batch in ended.chunks(BATCH) {
            let mut lease = Duration::MAX;
            let mut finishes = Vec::with_capacity(batch.len());
            for key in batch {
                let Some(finishing) = self.finishes.get(key) else { continue };
                lease = lease.min(finishing.lease);
                finishes.push(Finish {
                    job: self.jobs[key.0].spec.name.clone(),
                    token: key.1,
                    outcome: finishing.outcome,
                    message: finishing.message.clone(),
                });
            }
            self.leaving.finishes_in_flight += 1;
            self.call(Call::Finish(finishes), Sent::Finish(batch.to_vec()), trust::deadline(lease));
        }
    }

    pub(super) fn finishes_answered(
        &mut self,
        ended: &[(usize, Token)],
        answers: impl Iterator<Item = Result<(Finished, At), StoreError>>,
        now: Mono,
    ) {
        self.leaving.finishes_in_flight -= 1;
        for (&(job, token), answer) in ended.iter().zip(answers) {
            let Some(finishing) = self.finishes.get_mut(&(job, token)) else { continue };
            match answer {
                Ok((Finished::Closed(record), at)) => {
                    self.finish_over(job, token);
                    self.absorb(job, &record, at, now);
                }
                Ok((Finished::Refused, _)) => {
                    // An earlier sending whose reply was lost may have closed it before the next attempt.
                    if !finishing.unknown {
                        let occurrence = finishing.occurrence;
                        let name = self.jobs[job].spec.name.clone();
                        self.report(Report::FinishRefused { job: name, occurrence, token });
                    }
                    self.finish_over(job, token);
                    self.want_look(job, now);
                }
                Err(error) => {
                    finishing.unknown |= error.kind == StoreErrorKind::Unknown;
                    let wait = backoff::store_delay(finishing.failures, self.random.f64());
                    finishing.failures = finishing.failures.saturating_add(1);
                    self.timers.set(Timer::Finish(job, token), now.plus(wait));
                }
            }
        }
    }
}
