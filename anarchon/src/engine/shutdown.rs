//! The end: drain, cancel, release, withdraw.

use std::time::Duration;

use super::{
    Action, Announcement, Call, CancelReason, Engine, Phase, Report, RunId, Timer, calls::Sent, runs::GRACE,
};
use crate::{clock::Mono, protocol::Token};

/// How long the end may take once no handler runs any more, on a store that does not answer; and how long a handler
/// that was dropped may go on.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the withdrawal may take.
const WITHDRAWAL: Duration = Duration::from_secs(2);

/// What is still to be sent for runs, and how far the shutdown is.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    pub(super) renew_due: bool,
    pub(super) finish_due: Vec<(usize, Token)>,
    pub(super) finishes_in_flight: usize,
    pub(super) last_finish: Option<Mono>,
    drained_at: Option<Mono>,
    give_up_at: Option<Mono>,
    /// When handlers that block their threads are not waited for any longer.
    leave_runs_at: Option<Mono>,
}

impl Engine {
    pub(super) fn shutdown(&mut self, now: Mono) {
        match self.phase {
            Phase::New => {
                self.phase = Phase::Stopped;
                self.actions.push_back(Action::Stopped);
            }
            Phase::Starting | Phase::Up => {
                self.phase = Phase::Draining;
                let drained_at = now.plus(self.settings.drain);
                self.leaving.drained_at = Some(drained_at);
                self.timers.set(Timer::Drain, drained_at);
            }
            Phase::Draining | Phase::Leaving | Phase::Stopped => {}
        }
    }

    /// Whether an award may be started: what was asked for before the shutdown may use the drain as well. Given back,
    /// it would have to be found and started by another instance before the next occurrence closes it as lost.
    pub(super) fn may_start(&self, now: Mono) -> bool {
        match self.phase {
            Phase::Up => true,
            Phase::Draining => self.leaving.drained_at.is_some_and(|at| now < at),
            Phase::New | Phase::Starting | Phase::Leaving | Phase::Stopped => false,
        }
    }

    /// The time for draining is over: what still runs is told to end.
    pub(super) fn drained(&mut self, now: Mono) {
        self.drop_repeats();
        let runs: Vec<RunId> = self.runs.keys().copied().collect();
        for run in runs {
            self.cancel_run(run, CancelReason::Shutdown, now);
        }
        let leave_runs_at = now.plus(GRACE).plus(PATIENCE);
        self.leaving.leave_runs_at = Some(leave_runs_at);
        self.timers.set(Timer::GiveUp, leave_runs_at);
    }

    /// Goes on to the next step of the end, when the one before is done.
    pub(super) fn leave(&mut self, now: Mono) {
        if self.phase != Phase::Draining {
            return;
        }
        if self.leaving.leave_runs_at.is_some_and(|at| at <= now) {
            self.leave_runs();
        }
        if !self.runs.is_empty() {
            return;
        }
        let patience = now.plus(PATIENCE);
        let give_up_at = *self.leaving.give_up_at.get_or_insert(patience);
        // The withdrawal must not overtake an announcement.
        let announces = self.has_beat() && self.deploy.is_beat_in_flight();
        let open = !self.finishes.is_empty() || self.claims_open() || announces;
        if open && now < give_up_at {
            return self.timers.advance(Timer::GiveUp, give_up_at);
        }
        self.phase = Phase::Leaving;
        if !self.has_beat() {
            return self.stop();
        }
        let instance = self.settings.instance.clone();
        self.call(Call::Beat(Announcement::Withdrawn { instance }), Sent::Withdraw, WITHDRAWAL);
    }

    /// Renews what still blocks no longer. It is not released either, since it has not ended: its lease runs out.
    fn leave_runs(&mut self) {
        for run in std::mem::take(&mut self.runs).into_values() {
            self.report(Report::StillBlocking {
                job: self.jobs[run.job].spec.name.clone(),
                occurrence: run.occurrence,
                token: run.token,
            });
        }
    }

    pub(super) fn stop(&mut self) {
        self.tell_lost();
        self.phase = Phase::Stopped;
        self.timers = super::Timers::default();
        self.watches = super::Timers::default();
        self.run_looks = super::Queue::default();
        self.dues = super::Queue::default();
        self.actions.push_back(Action::Stopped);
    }
}
