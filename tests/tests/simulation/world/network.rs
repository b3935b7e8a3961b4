//! Calls on their way to the store and back, and what an instance may ask.

use std::{collections::HashSet, rc::Rc, time::Duration};

use anarchon::{
    clock::Mono,
    engine::{Call, CallId, Event, Reply},
    protocol::{JobName, Millis, Renewed, Verdict, What},
    store::{Answer, Stamped, StoreError},
};
use chrono::DateTime;

use super::{Ev, Message, World, instances::Asked};
use crate::{
    mutation::Mutation,
    plan::{Kind, SECOND},
    store::KEEP,
};

impl World {
    pub(super) fn send(&mut self, i: usize, id: CallId, mut call: Call, deadline: Duration) {
        if self.store.mutation == Some(Mutation::OldestFirst) {
            self.ask_for_the_oldest(i, &mut call);
        }
        let sent = self.mono(i);
        self.check_call(i, &call, sent);
        let kind = kind(&call);
        self.out.calls.push((self.time, i, kind));
        let instance = &mut self.instances[i];
        let asked = Asked { call: call.clone(), sent, sent_true: self.time };
        instance.asked.insert(id, asked);
        let epoch = instance.epoch;
        let until = self.time + u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX / 4);
        self.push(until, Ev::Deadline(i, epoch, id));
        if let Some((_, remote)) = &self.remote {
            return remote.call(i, epoch, id, call);
        }
        let message = Rc::new(Message { instance: i, epoch, id, call });
        let net = self.plan.net;
        if self.quiet {
            let at = self.time + self.rng.u64(50..1_500);
            return self.push(at, Ev::Arrive(message));
        }
        if (self.is_cut_off(i) || self.store_down) && self.rng.bool() {
            // The connection is refused.
            let reply = failed(&message.call, &StoreError::unavailable("refused"));
            let at = self.time + 500;
            return self.push(at, Ev::Reply(i, epoch, id, reply));
        }
        if self.rng.f64() < net.duplicate {
            let at = self.time + self.rng.u64(50..20 * SECOND);
            self.push(at, Ev::Arrive(message.clone()));
        }
        if self.is_cut_off(i) || self.store_down || self.rng.f64() < net.lost_request {
            return;
        }
        let mut delay = self.rng.u64(50..50 + net.latency);
        if self.rng.f64() < net.delayed {
            delay = self.rng.u64(0..40 * SECOND);
        }
        let at = self.time + delay;
        self.push(at, Ev::Arrive(message));
    }

    fn ask_for_the_oldest(&self, i: usize, call: &mut Call) {
        let Call::Claim(claims) = call else { return };
        for claim in claims {
            let job = self.plan.versions[self.instances[i].version].iter().find(|j| j.name == claim.job);
            if let (What::Planned(at), Some(job), Some(record)) =
                (&mut claim.what, job, self.record(&claim.job))
                && let Some(decided) = DateTime::from_timestamp_millis(record.decided.0)
                && let Some(oldest) = job.schedule.next_after(decided)
            {
                *at = Millis(at.0.min(oldest.timestamp_millis()));
            }
        }
    }

    fn is_cut_off(&self, i: usize) -> bool {
        self.instances[i].place.cut_off_until > self.time
    }

    pub(super) fn arrive(&mut self, message: &Message) {
        if self.store_down {
            return;
        }
        // A late double of a beat announces who has left: 30 s more, which the quiet time does not allow for.
        let gone = self.instances[message.instance].epoch != message.epoch;
        if self.quiet && gone && matches!(message.call, Call::Beat(_)) {
            return;
        }
        let chance = if self.quiet { 0.0 } else { self.plan.net.bad_item };
        let (rng, store, judge) = (&mut self.rng, &mut self.store, &mut self.judge);
        let bad = || (chance > 0.0 && rng.f64() < chance).then(|| rng.bool());
        let reply = store.call(&message.call, self.time, judge, bad);
        if self.verbose {
            self.log(|| format!("store: {:?} -> {reply:?}", message.call));
        }
        self.check_store();
        self.check_expiry(&message.call, &reply);
        let net = self.plan.net;
        let i = message.instance;
        let mut delay = self.rng.u64(50..1_500);
        if !self.quiet {
            if self.is_cut_off(i) || self.rng.f64() < net.lost_reply {
                return;
            }
            delay = self.rng.u64(50..50 + net.latency);
            if self.rng.f64() < net.delayed {
                delay = self.rng.u64(0..40 * SECOND);
            }
        }
        let at = self.time + delay;
        self.push(at, Ev::Reply(i, message.epoch, message.id, reply));
    }

    pub(super) fn check_store(&mut self) {
        let jobs: Vec<JobName> = self.plan.versions[0].iter().map(|j| j.name.clone()).collect();
        for job in &jobs {
            let kept = match &self.remote {
                Some((_, remote)) => remote.kept_runs(job),
                None => self.store.history(job).len(),
            };
            if kept > KEEP {
                self.judge.broke("I15", format!("{job} keeps {kept} runs"));
            }
        }
    }

    /// A store awards nothing that could not be started any more, give or take what the asker may know of its clock: half
    /// of the longest call that told it.
    fn check_expiry(&mut self, call: &Call, reply: &Reply) {
        let (Call::Claim(claims), Reply::Claim(answers)) = (call, reply) else { return };
        for (claim, answer) in claims.iter().zip(answers) {
            let Ok(Stamped { value: Verdict::Awarded(award), now }) = answer else { continue };
            let fresh = award.started == now.millis();
            let Some(&sent) = self.asked.get(&claim.nonce).filter(|sent| **sent > self.clock_moved) else {
                continue;
            };
            let age = Duration::from_micros(self.time - sent);
            if fresh && age > claim.lease / 2 + Duration::from_secs(6) {
                self.judge.broke("I21", format!("awarded {age:?} after it was asked for: {claim:?}"));
            }
        }
    }

    pub(super) fn reply(&mut self, i: usize, id: CallId, reply: Reply) {
        // The driver hands in one answer per call; whatever is later than its deadline is dropped.
        let Some(asked) = self.instances[i].asked.remove(&id) else { return };
        self.note_leases(i, &asked, &reply);
        if !refused(&reply) {
            self.instances[i].heard = asked.sent_true;
        }
        let received = self.mono(i);
        self.handle(i, Event::Reply { call: id, sent: asked.sent, received, reply });
    }

    pub(super) fn deadline(&mut self, i: usize, id: CallId) {
        let Some(asked) = self.instances[i].asked.remove(&id) else { return };
        if let Some((_, remote)) = &self.remote {
            remote.given_up(i, id);
        }
        let reply = failed(&asked.call, &StoreError::unknown("no reply"));
        let received = self.mono(i);
        self.handle(i, Event::Reply { call: id, sent: asked.sent, received, reply });
    }

    /// What an instance learns of its leases, noted apart from the engine.
    fn note_leases(&mut self, i: usize, asked: &Asked, reply: &Reply) {
        let instance = &mut self.instances[i];
        match (&asked.call, reply) {
            (Call::Claim(claims), Reply::Claim(answers)) => {
                for (claim, answer) in claims.iter().zip(answers) {
                    if let Ok(stamped) = answer
                        && let Verdict::Awarded(award) = &stamped.value
                    {
                        let (sent, sent_true) = instance.first_sent[&claim.nonce];
                        let key = (claim.job.clone(), award.token);
                        instance.won.insert(key, (sent, sent_true, claim.lease));
                    }
                }
            }
            (Call::Renew(renewals), Reply::Renew(answers)) => {
                for (renewal, answer) in renewals.iter().zip(answers) {
                    let extended = matches!(answer, Ok(s) if matches!(s.value, Renewed::Extended { .. }));
                    if extended {
                        for handler in instance.handlers.values_mut() {
                            if (&handler.name, handler.token) == (&renewal.job, renewal.token)
                                && !handler.lost
                            {
                                handler.sent = handler.sent.max(asked.sent);
                                handler.sent_true = handler.sent_true.max(asked.sent_true);
                            }
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// What an instance may not ask.
    fn check_call(&mut self, i: usize, call: &Call, sent: Mono) {
        let (store_now, skew) = (self.store.now(self.time), self.skew());
        match call {
            Call::Claim(claims) => {
                let mut jobs = HashSet::new();
                for claim in claims {
                    let instance = &mut self.instances[i];
                    if !jobs.insert(&claim.job) {
                        self.judge.broke("claims", format!("i{i} claims {} twice in one call", claim.job));
                    }
                    if instance.handlers.values().any(|h| h.name == claim.job && h.lost) {
                        self.judge.broke("I1", format!("i{i} claims {} beside its own handler", claim.job));
                    }
                    // Only what may have reached the store is asked for again.
                    if instance.shutting_down.is_some() && !instance.first_sent.contains_key(&claim.nonce) {
                        self.judge.broke("shutdown", format!("i{i} claims {claim:?}"));
                    }
                    instance.first_sent.entry(claim.nonce).or_insert((sent, self.time));
                    // A watch tells of a step of the clock when its messages come.
                    let told = if self.plan.kind == Kind::CompareAndSwap { 10 * SECOND } else { 0 };
                    let known_clock = instance.heard > self.clock_moved + told;
                    if known_clock {
                        self.asked.entry(claim.nonce).or_insert(self.time);
                        let record = match &self.remote {
                            Some((_, remote)) => remote.record(&claim.job),
                            None => self.store.record(&claim.job).cloned(),
                        };
                        self.judge.asks(claim, record.as_ref(), store_now, Duration::from_secs(6) + skew);
                    }
                }
            }
            Call::Renew(renewals) => {
                for renewal in renewals {
                    if self.instances[i].lost_tokens.contains(&(renewal.job.clone(), renewal.token)) {
                        self.judge.broke("I10", format!("i{i} renews after it gave up: {renewal:?}"));
                    }
                }
            }
            Call::Beat(_) | Call::Register(_) | Call::Finish(_) | Call::Inspect(_) => {}
        }
    }
}

pub(super) fn kind(call: &Call) -> &'static str {
    match call {
        Call::Beat(_) => "beat",
        Call::Register(_) => "register",
        Call::Claim(_) => "claim",
        Call::Renew(_) => "renew",
        Call::Finish(_) => "finish",
        Call::Inspect(_) => "inspect",
    }
}

/// Whether no item was answered.
fn refused(reply: &Reply) -> bool {
    match reply {
        Reply::Beat(answer) => answer.is_err(),
        Reply::Register(answers) => answers.iter().all(Result::is_err),
        Reply::Claim(answers) => answers.iter().all(Result::is_err),
        Reply::Renew(answers) => answers.iter().all(Result::is_err),
        Reply::Finish(answers) => answers.iter().all(Result::is_err),
        Reply::Inspect(answers) => answers.iter().all(Result::is_err),
    }
}

pub(super) fn failed(call: &Call, error: &StoreError) -> Reply {
    pub(super) fn all<T>(n: usize, error: &StoreError) -> Vec<Answer<T>> {
        (0..n).map(|_| Err(error.clone())).collect()
    }
    match call {
        Call::Beat(_) => Reply::Beat(Err(error.clone())),
        Call::Register(items) => Reply::Register(all(items.len(), error)),
        Call::Claim(items) => Reply::Claim(all(items.len(), error)),
        Call::Renew(items) => Reply::Renew(all(items.len(), error)),
        Call::Finish(items) => Reply::Finish(all(items.len(), error)),
        Call::Inspect(items) => Reply::Inspect(all(items.len(), error)),
    }
}
