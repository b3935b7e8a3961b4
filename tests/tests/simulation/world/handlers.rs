//! The handlers: how long they run, what they do when they are cancelled, and that no two run at once.

use std::time::Duration;

use anarchon::{
    clock::Mono,
    engine::{CancelReason, Event, RunEnd, RunId, Start, Trust},
    protocol::{JobName, Token},
};

use super::{Ev, World, instances::LATENESS};
use crate::{
    mutation::Mutation,
    plan::{Kind, SECOND},
};

#[derive(Debug)]
pub(super) struct Handler {
    pub(super) name: JobName,
    pub(super) token: Token,
    /// The sending that the trust counts from, in own and true time.
    pub(super) sent: Mono,
    pub(super) sent_true: u64,
    pub(super) lease: Duration,
    pub(super) ends: u64,
    pub(super) error: bool,
    pub(super) blocks: bool,
    pub(super) ignores: bool,
    pub(super) kills: bool,
    pub(super) cancelled: Option<CancelReason>,
    pub(super) lost: bool,
}

impl Handler {
    fn drop_at(&self) -> Mono {
        self.sent.plus(self.lease.mul_f64(0.85))
    }
}

impl World {
    pub(super) fn start_handler(&mut self, i: usize, start: &Start) {
        let job = &self.plan.versions[self.instances[i].version][start.job];
        let name = job.name.clone();
        let award = start.award;
        self.judge.count("started");
        self.out.starts.push((self.time, i, name.to_string(), award, start.catch_up));
        let Some(&(sent, sent_true, lease)) = self.instances[i].won.get(&(name.clone(), award.token)) else {
            return self.judge.broke("I1", format!("i{i} starts what it never won: {start:?}"));
        };
        // After a loss with the clock set back the same token may be given out again.
        self.instances[i].lost_tokens.remove(&(name.clone(), award.token));
        if self.mono(i) > sent.plus(lease / 2) {
            self.judge.broke("I10", format!("i{i} starts an old award: {start:?}"));
        }
        if self.instances[i].handlers.values().any(|h| h.name == name) {
            self.judge.broke("I1", format!("i{i} starts {name} beside its own handler"));
        }
        self.check_overlap(i, &name, sent_true);
        let odds = self.plan.handlers;
        let rng = &mut self.rng;
        let long = if self.quiet { odds.longest.min(3 * SECOND) } else { odds.longest };
        let handler = Handler {
            name,
            token: award.token,
            sent,
            sent_true,
            lease,
            ends: self.time + rng.u64(0..=long),
            error: rng.f64() < odds.error,
            blocks: rng.f64() < odds.blocks,
            ignores: rng.f64() < odds.ignores_cancel,
            kills: !self.quiet && rng.f64() < odds.kills,
            cancelled: None,
            lost: false,
        };
        let epoch = self.instances[i].epoch;
        self.push(handler.ends, Ev::Ends(i, epoch, start.run));
        self.instances[i].handlers.insert(start.run, handler);
        self.check_trust(i, start.run, start.trust);
    }

    /// No other handler of the job may be executing. One on a frozen instance is not, and one that blocks its thread
    /// cannot be stopped when its lease is over.
    fn check_overlap(&mut self, i: usize, name: &JobName, sent_true: u64) {
        for (other, instance) in self.instances.iter().enumerate() {
            // Without an engine there are only handlers that still block after a shutdown.
            if other == i || instance.frozen {
                continue;
            }
            let mono = self.mono(other);
            for handler in instance.handlers.values().filter(|h| h.name == *name) {
                let unstoppable = handler.blocks && mono > handler.drop_at();
                // Either lease may be the one that was ended early.
                let first = handler.sent_true.min(sent_true);
                // The last 15 % of a lease make up for no more.
                let is_out_of_step = self.skew() >= handler.lease.mul_f64(0.14);
                // For so long a client may go by what it knew of the server's clock.
                let is_set = self.plan.kind == Kind::CompareAndSwap
                    && self.set_ahead.is_some_and(|set| set + 30 * SECOND >= first);
                let is_forgotten = self.judge.last_forgotten.get(name).is_some_and(|at| *at >= first);
                let excused =
                    is_out_of_step || is_set || is_forgotten || self.excuses.iter().any(|at| *at >= first);
                if !unstoppable && !excused {
                    let what = format!("i{i} starts {name} while i{other} runs it: {handler:?}");
                    return self.judge.broke("I1", what);
                }
            }
        }
    }

    pub(super) fn check_trust(&mut self, i: usize, run: RunId, trust: Trust) {
        let Some(handler) = self.instances[i].handlers.get(&run) else { return };
        let (drop_at, lease) = (handler.drop_at(), handler.lease);
        if trust.drop_at > drop_at.plus(Duration::from_micros(2)) || trust.ends_at > handler.sent.plus(lease)
        {
            self.judge.broke("I10", format!("i{i} trusts {trust:?} for {handler:?}"));
            return;
        }
        let epoch = self.instances[i].epoch;
        let at = self.true_time(i, drop_at) + 20 * LATENESS + 1_000;
        self.push(at, Ev::MustBeGone(i, epoch, run, drop_at));
    }

    pub(super) fn must_be_gone(&mut self, i: usize, epoch: u64, run: RunId, limit: Mono) {
        let instance = &self.instances[i];
        if instance.epoch != epoch || instance.frozen {
            return;
        }
        if let Some(handler) = instance.handlers.get(&run)
            && !handler.blocks
            && handler.drop_at() == limit
        {
            let what = format!("i{i} runs on without trust: {handler:?}");
            self.judge.broke("I10", what);
        }
    }

    pub(super) fn cancel(&mut self, i: usize, run: RunId, reason: CancelReason) {
        let at = self.time + self.rng.u64(0..3 * SECOND);
        let Some(handler) = self.instances[i].handlers.get_mut(&run) else { return };
        handler.cancelled = Some(reason);
        self.judge.count(match reason {
            CancelReason::LeaseLost => "lease lost",
            CancelReason::Timeout => "timed out",
            CancelReason::Shutdown => "cancelled at shutdown",
            CancelReason::Operator => "cancelled by operator",
            _ => "cancelled otherwise",
        });
        if reason == CancelReason::LeaseLost {
            handler.lost = true;
            let key = (handler.name.clone(), handler.token);
            self.instances[i].lost_tokens.insert(key);
        }
        let instance = &mut self.instances[i];
        let Some(handler) = instance.handlers.get_mut(&run) else { return };
        if !handler.ignores && at < handler.ends {
            handler.ends = at;
            let epoch = instance.epoch;
            self.push(at, Ev::Ends(i, epoch, run));
        }
    }

    pub(super) fn drop_handler(&mut self, i: usize, run: RunId) {
        if self.store.mutation == Some(Mutation::NoDrop) {
            return;
        }
        let Some(handler) = self.instances[i].handlers.get(&run) else { return };
        if !handler.blocks {
            self.judge.count("dropped");
            self.instances[i].handlers.remove(&run);
            self.handle(i, Event::RunEnded { run, end: RunEnd::Dropped });
        }
    }

    pub(super) fn natural_end(&mut self, i: usize, run: RunId) {
        let mono = self.mono(i);
        let Some(handler) = self.instances[i].handlers.get(&run) else { return };
        if handler.ends > self.time {
            return;
        }
        let Some(handler) = self.instances[i].handlers.remove(&run) else { return };
        if handler.kills {
            self.judge.count("handler killed its process");
            return self.kill(i);
        }
        let saw_cancel = handler.cancelled.is_some() && !handler.ignores;
        let end = if !handler.blocks && mono > handler.drop_at() {
            // The driver looks at the trust itself before it polls.
            RunEnd::Dropped
        } else {
            RunEnd::Returned { error: handler.error.then(|| "no luck".to_owned()), saw_cancel }
        };
        self.handle(i, Event::RunEnded { run, end });
    }
}
