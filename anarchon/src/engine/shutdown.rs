//! The end: drain, cancel, release, withdraw.

use std::{collections::BTreeSet, time::Duration};

use super::{Action, Announcement, Call, CancelReason, Engine, Phase, RunId, Timer, calls::Sent};
use crate::{clock::Mono, protocol::Token};

/// How long the end may take once no handler runs any more, on a store that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the withdrawal may take.
const WITHDRAWAL: Duration = Duration::from_secs(2);

/// What is still to be sent for runs, and how far the shutdown is.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    pub(super) renew_due: bool,
    pub(super) finish_due: BTreeSet<(usize, Token)>,
    give_up_at: Option<Mono>,
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
                self.stop_claiming();
                self.timers.set(Timer::Drain, now.plus(self.settings.drain));
            }
            Phase::Draining | Phase::Leaving | Phase::Stopped => {}
        }
    }

    /// The time for draining is over: what still runs is told to end.
    pub(super) fn drained(&mut self, now: Mono) {
        let runs: Vec<RunId> = self.runs.keys().copied().collect();
        for run in runs {
            self.cancel_run(run, CancelReason::Shutdown, now);
        }
    }

    /// Goes on to the next step of the end, when the one before is done.
    pub(super) fn leave(&mut self, now: Mono) {
        if self.phase != Phase::Draining || !self.runs.is_empty() {
            return;
        }
        let patience = now.plus(PATIENCE);
        let give_up_at = *self.leaving.give_up_at.get_or_insert(patience);
        let open = !self.finishes.is_empty() || self.claims_in_flight() || self.deploy.is_beat_in_flight();
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

    pub(super) fn stop(&mut self) {
        self.phase = Phase::Stopped;
        self.timers = super::Timers::default();
        self.wakes = super::Timers::default();
        self.actions.push_back(Action::Stopped);
    }
}
