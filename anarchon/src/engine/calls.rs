//! The calls in flight, and the way back of their replies.

use std::time::Duration;

use super::{
    Action, At, Call, CallId, Engine, Phase, Reply, Report, RunId,
    outage::{Access, Proven},
    refusals::{Item, Proof},
};
use crate::{
    clock::Mono,
    protocol::{Fingerprint, Finished, Members, Registered, Renewed, Token, Verdict},
    store::{Answer, Snapshot, Stamped, StoreError, StoreErrorKind},
};

/// How far the store's clock must have been stepped to be told.
const TOLD_STEP: u64 = 500_000;

/// What a call in flight was for, item by item.
#[derive(Debug)]
pub(super) enum Sent {
    Beat { contested: Vec<(usize, Fingerprint)> },
    Withdraw,
    Register(Vec<usize>),
    Claim(Vec<usize>),
    Renew(Vec<RunId>),
    Finish(Vec<(usize, Token)>),
    Inspect(Vec<usize>),
}

impl Engine {
    pub(super) fn call(&mut self, call: Call, sent: Sent, deadline: Duration) {
        self.last_call += 1;
        let id = CallId(self.last_call);
        self.calls.insert(id, sent);
        self.actions.push_back(Action::Call { id, call, deadline });
    }

    pub(super) fn replied(&mut self, call: CallId, sent: Mono, received: Mono, reply: Reply, now: Mono) {
        // Whatever comes a second time, or was never asked, says nothing.
        let Some(asked) = self.calls.remove(&call) else { return };
        let times = (sent, received);
        match asked {
            Sent::Beat { contested } => {
                let answer = if let Reply::Beat(answer) = reply { answer } else { Err(wrong()) };
                let proves = |_, _: &Members| written_if(true);
                let answer = self
                    .take_in(vec![answer], &[Some(Item::Beat)], Access::Write, proves, times, now)
                    .next()
                    .unwrap_or_else(|| Err(wrong()));
                self.beat_answered(answer, &contested, now);
            }
            Sent::Withdraw => self.stop(),
            Sent::Register(jobs) => {
                let answers = if let Reply::Register(answers) = reply { answers } else { Vec::new() };
                let proves = |_, answer: &Registered| written_if(matches!(answer, Registered::Created(_)));
                let answers = self.take_in(answers, &written(&jobs), Access::Write, proves, times, now);
                self.registers_answered(&jobs, answers, now);
            }
            Sent::Claim(jobs) => {
                let answers = if let Reply::Claim(answers) = reply { answers } else { Vec::new() };
                let unknown = |&job: &usize| self.jobs[job].pending.as_ref().is_some_and(|p| p.is_unknown());
                let repeated: Vec<bool> = jobs.iter().map(unknown).collect();
                let proves = |i: usize, answer: &Verdict| {
                    let wrote = match answer {
                        Verdict::Awarded(_)
                        | Verdict::Skipped(_)
                        | Verdict::Paused(_)
                        | Verdict::GaveUp(_) => true,
                        Verdict::AlreadyDone(_)
                        | Verdict::AlreadyDecided(_)
                        | Verdict::Stale { .. }
                        | Verdict::Early
                        | Verdict::Expired
                        | Verdict::Missed
                        | Verdict::Held(_)
                        | Verdict::Unregistered => false,
                    };
                    Proven { wrote, leased: matches!(answer, Verdict::Awarded(_)) || repeated[i] }
                };
                let answers = self.take_in(answers, &written(&jobs), Access::Claim, proves, times, now);
                self.claims_answered(&jobs, answers, sent, now);
            }
            Sent::Renew(runs) => {
                let of_run = |run| self.runs.get(run).map(|run| Item::Write(run.job));
                let of_runs: Vec<_> = runs.iter().map(of_run).collect();
                let answers = if let Reply::Renew(answers) = reply { answers } else { Vec::new() };
                let proves = |_, answer: &Renewed| {
                    let extended = matches!(answer, Renewed::Extended { .. });
                    Proven { wrote: extended, leased: extended }
                };
                let answers = self.take_in(answers, &of_runs, Access::Renew, proves, times, now);
                self.renewals_answered(&runs, answers, now);
            }
            Sent::Finish(ended) => {
                let of_ended: Vec<_> = ended.iter().map(|(job, _)| Some(Item::Write(*job))).collect();
                let answers = if let Reply::Finish(answers) = reply { answers } else { Vec::new() };
                let proves = |_, answer: &Finished| written_if(matches!(answer, Finished::Closed(_)));
                let answers = self.take_in(answers, &of_ended, Access::Write, proves, times, now);
                self.finishes_answered(&ended, answers, now);
            }
            Sent::Inspect(jobs) => {
                let answers = if let Reply::Inspect(answers) = reply { answers } else { Vec::new() };
                let proves = |_, _: &Option<Snapshot>| written_if(false);
                let answers = self.take_in(answers, &read(&jobs), Access::Read, proves, times, now);
                self.inspected(&jobs, answers, now);
            }
        }
    }

    /// Checks the number of answers, learns the store's time from them, and notes whether the store is there and what
    /// it refuses. `items` is what each one is about, unless that is over, `proves` what an answer proves.
    fn take_in<T, P: Fn(usize, &T) -> Proven>(
        &mut self,
        answers: Vec<Answer<T>>,
        items: &[Option<Item>],
        access: Access,
        proves: P,
        (sent, received): (Mono, Mono),
        now: Mono,
    ) -> impl Iterator<Item = Result<(T, At), StoreError>> + use<T, P> {
        let answers: Vec<Answer<T>> =
            if answers.len() == items.len() { answers } else { items.iter().map(|_| Err(wrong())).collect() };
        let all_refused = answers.iter().all(|answer| answer.as_ref().is_err_and(is_refusal));
        let mut failed = None;
        let mut answered = None;
        let mut proven = written_if(false);
        for (i, (answer, &item)) in answers.iter().zip(items).enumerate() {
            match answer {
                Ok(stamped) => {
                    let Proven { wrote, leased } = proves(i, &stamped.value);
                    if let Some(item) = item {
                        self.not_refused(item, wrote, sent, now);
                    }
                    answered = answered.or(Some(stamped.now));
                    proven.wrote |= wrote;
                    proven.leased |= leased;
                }
                Err(error) if is_refusal(error) => {
                    if let Some(item) = item {
                        self.refused(item, error, all_refused, now);
                    }
                }
                Err(error) => failed = failed.or(Some(error.clone())),
            }
        }
        let is_beat = items == [Some(Item::Beat)];
        if is_beat && failed.is_none() {
            // One that is refused tells its own reason.
            self.doubt_is_over(Proof::Beat, sent);
        } else if proven.wrote {
            self.doubt_is_over(Proof::Record, sent);
        }
        if let Some(store) = answered {
            self.learn_time(sent, received, store);
        }
        match failed {
            Some(error) if !proven.wrote && !proven.leased => self.call_failed(access, &error, now),
            _ if answered.is_some() => self.call_answered(access, proven, sent, now),
            Some(_) | None => {}
        }
        let at = move |store| At { sent, received, store };
        answers.into_iter().map(move |a| a.map(|Stamped { value, now }| (value, at(now))))
    }

    fn learn_time(&mut self, sent: Mono, received: Mono, store: crate::protocol::StoreNow) {
        let Some(micros) = self.clock.observe(sent, received, store) else { return };
        if micros.unsigned_abs() >= TOLD_STEP {
            if self.phase == Phase::Up {
                self.report(Report::StoreClockStepped { micros });
            }
            self.clock_stepped();
        }
    }
}

fn written_if(wrote: bool) -> Proven {
    Proven { wrote, leased: false }
}

fn read(jobs: &[usize]) -> Vec<Option<Item>> {
    jobs.iter().map(|&job| Some(Item::Read(job))).collect()
}

fn written(jobs: &[usize]) -> Vec<Option<Item>> {
    jobs.iter().map(|&job| Some(Item::Write(job))).collect()
}

fn is_refusal(error: &StoreError) -> bool {
    error.kind == StoreErrorKind::Misconfigured
}

/// A reply that does not fit its call: the store has a fault, and anything may have happened.
fn wrong() -> StoreError {
    StoreError::unknown("the store's reply does not fit the call")
}
