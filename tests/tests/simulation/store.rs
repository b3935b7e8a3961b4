//! The store of the simulation: the pure protocol over a map, on a clock of its own, with the faults that it is told to have.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use anarchon::{
    engine::{Call, Reply},
    protocol::{
        Announcement, Claim, Contested, Control, Controlled, Decision, Finish, Finished, InstanceId, JobName,
        JobSpec, LeaseEnd, Members, Millis, Record, Registered, Renewal, Renewed, Run, Status, StoreNow,
        Token, Verdict, Waiting, What, Write, claim, control, earliest, finish, register, renew,
    },
    store::{ANNOUNCEMENT_AGE, Answer, Snapshot, Stamped, StoreError},
};

use crate::{
    judge::{At, Judge, Op},
    mutation::Mutation,
    plan::SECOND,
};

/// By how much a replica may lag behind; microseconds.
const LAG: u64 = 3 * SECOND;

/// How many runs of a job are kept.
pub(crate) const KEEP: usize = 20;

#[derive(Debug)]
struct Member {
    at: i64,
    schedules: HashMap<JobName, anarchon::protocol::Fingerprint>,
    waiting: Vec<Waiting>,
    zones: String,
}

/// A record with its newest runs.
type Kept = (Record, Vec<Run>);

#[derive(Debug, Default)]
pub(crate) struct Store {
    records: HashMap<JobName, Kept>,
    /// What there was before each write of the last [`LAG`], and when it was written.
    replaced: Option<VecDeque<(u64, JobName, Option<Kept>)>>,
    members: HashMap<InstanceId, Member>,
    /// The store's clock minus true time.
    pub(crate) offset: i64,
    pub(crate) mutation: Option<Mutation>,
}

impl Store {
    /// With a replica that lags behind, or without one.
    pub(crate) fn new(offset: i64, mutation: Option<Mutation>, has_replica: bool) -> Self {
        Self { offset, mutation, replaced: has_replica.then(VecDeque::new), ..Self::default() }
    }

    pub(crate) fn now(&self, time: u64) -> StoreNow {
        StoreNow(time as i64 + self.offset)
    }

    pub(crate) fn record(&self, job: &JobName) -> Option<&Record> {
        self.records.get(job).map(|(record, _)| record)
    }

    pub(crate) fn history(&self, job: &JobName) -> &[Run] {
        self.records.get(job).map_or(&[], |(_, runs)| runs)
    }

    pub(crate) fn lose_data(&mut self) {
        self.records.clear();
        self.members.clear();
        if let Some(replaced) = &mut self.replaced {
            replaced.clear();
        }
    }

    /// Undoes all writes since `time`.
    pub(crate) fn fail_over(&mut self, time: u64) {
        let Some(replaced) = &mut self.replaced else { return };
        while let Some((_, job, before)) = replaced.pop_back_if(|(at, ..)| *at >= time) {
            match before {
                Some(before) => self.records.insert(job, before),
                None => self.records.remove(&job),
            };
        }
    }

    /// Does a call; `bad(item)` says which items fail, and whether after they were done.
    pub(crate) fn call(
        &mut self,
        call: &Call,
        time: u64,
        judge: &mut Judge,
        mut bad: impl FnMut() -> Option<bool>,
    ) -> Reply {
        let now = self.now(time);
        let mut answer = Answers { now, bad: &mut bad, bad_items: 0 };
        match call {
            Call::Beat(announcement) => Reply::Beat(Ok(Stamped { value: self.beat(announcement, now), now })),
            Call::Register(specs) => Reply::Register(
                specs.iter().map(|s| answer.item(|| self.register(s, now, time, judge))).collect(),
            ),
            Call::Claim(claims) => {
                let mut answers: Vec<Answer<Verdict>> =
                    claims.iter().map(|c| answer.item(|| self.claim(c, now, time, judge))).collect();
                if self.is(Mutation::BadItemFailsAll) && answer.bad_items > 0 {
                    answers = answers.iter().map(|_| Err(StoreError::unavailable("bad batch"))).collect();
                }
                judge.batch_answered(answers.iter().filter(|a| a.is_err()).count(), answer.bad_items);
                Reply::Claim(answers)
            }
            Call::Renew(renewals) => Reply::Renew(
                renewals.iter().map(|r| answer.item(|| self.renew(r, now, time, judge))).collect(),
            ),
            Call::Finish(finishes) => Reply::Finish(
                finishes.iter().map(|f| answer.item(|| self.finish(f, now, time, judge))).collect(),
            ),
            Call::Inspect(jobs) => {
                let read =
                    |job| self.record(job).map(|r| Snapshot { record: r.clone(), history: Vec::new() });
                Reply::Inspect(jobs.iter().map(|job| answer.item(|| read(job))).collect())
            }
        }
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn write<T>(&mut self, job: &JobName, decision: Decision<T>, time: u64) -> T {
        if let Some(replaced) = &mut self.replaced
            && decision.write.is_some()
        {
            while replaced.pop_front_if(|(at, ..)| *at + LAG < time).is_some() {}
            replaced.push_back((time, job.clone(), self.records.get(job).cloned()));
        }
        match decision.write {
            None => {}
            Some(Write::Put { record, closed }) => {
                let slot = self.records.entry(job.clone()).or_insert_with(|| ((*record).clone(), Vec::new()));
                slot.0 = *record;
                if let Some(run) = closed {
                    let at = (slot.0.runs.saturating_sub(1) % KEEP as u64) as usize;
                    if at < slot.1.len() && self.mutation != Some(Mutation::HistoryGrows) {
                        slot.1[at] = run;
                    } else {
                        slot.1.push(run);
                    }
                }
            }
            Some(Write::Delete) => {
                self.records.remove(job);
            }
        }
        decision.answer
    }

    fn register(&mut self, spec: &JobSpec, now: StoreNow, time: u64, judge: &mut Judge) -> Registered {
        let before = self.record(&spec.job).cloned();
        let decision = register(before.as_ref(), spec, now);
        let answer = self.write(&spec.job, decision, time);
        judge.saw(
            Op::Register(spec, &answer),
            &spec.job,
            before.as_ref(),
            self.record(&spec.job),
            At::once(now, time),
        );
        answer
    }

    fn claim(&mut self, asked: &Claim, now: StoreNow, time: u64, judge: &mut Judge) -> Verdict {
        let before = self.record(&asked.job).cloned();
        let mut changed = asked.clone();
        let mut base = before.clone();
        let mut end = LeaseEnd::ByClock;
        if let Some(record) = &mut base {
            self.mislead(record, &mut changed, &mut end);
        }
        if self.is(Mutation::NothingExpires) {
            changed.expires = Millis::MAX;
        }
        let judged = match changed.what {
            What::Planned(at) if self.is(Mutation::EarlyWins) => now.max(StoreNow(at.0 * 1000)),
            What::Planned(_) | What::Takeover { .. } | What::Manual(_) => now,
        };
        let mut decision = claim(base.as_ref(), &changed, judged, end);
        if let Some(before) = &before {
            self.misjudge(before, asked, &mut decision);
        }
        let answer = self.write(&asked.job, decision, time);
        judge.saw(
            Op::Claim(asked, &answer),
            &asked.job,
            before.as_ref(),
            self.record(&asked.job),
            At::once(now, time),
        );
        answer
    }

    /// Mutations of what the rules see.
    fn mislead(&self, record: &mut Record, claim: &mut Claim, end: &mut LeaseEnd) {
        match self.mutation {
            Some(Mutation::LeaseProtectsNobody) => *end = LeaseEnd::Over,
            Some(Mutation::FinishedIsTakenOver) => {
                if let What::Takeover { .. } = claim.what
                    && !record.status.is_unfinished()
                    && record.status != Status::Idle
                {
                    record.status = Status::Running;
                    *end = LeaseEnd::Over;
                }
                if let What::Planned(at) = claim.what
                    && at == record.decided
                    && !record.status.is_unfinished()
                {
                    record.decided = Millis(at.0 - 1);
                }
            }
            Some(Mutation::NoWindow) => claim.window = Duration::MAX,
            Some(Mutation::EveryScheduleClaims) => claim.schedule = record.schedule,
            Some(Mutation::PauseIsIgnored) => record.paused = false,
            Some(Mutation::CancelIsForgotten) => record.cancel = None,
            Some(Mutation::CrashesDoNotCount) => record.crashes = 0,
            Some(Mutation::NonceIsIgnored) if record.nonce == claim.nonce => {
                record.nonce.seq = 0;
                record.decided = Millis(record.decided.0 - 1);
                *end = LeaseEnd::Over;
            }
            Some(_) | None => {}
        }
    }

    /// Mutations of what the rules said.
    fn misjudge(&self, before: &Record, asked: &Claim, decision: &mut Decision<Verdict>) {
        let Some(mutation) = self.mutation else { return };
        match (mutation, &mut decision.write) {
            (Mutation::AttemptStands, Some(Write::Put { record, .. })) if before.attempt > 0 => {
                record.attempt = record.attempt.min(before.attempt);
            }
            (Mutation::TokenStands, Some(Write::Put { record, .. })) if before.token > Token(0) => {
                record.token = before.token;
                if let Verdict::Awarded(award) = &mut decision.answer {
                    award.token = before.token;
                }
            }
            (Mutation::DecidedFollows, Some(Write::Put { record, .. })) => {
                record.decided = Millis(before.decided.0 - 1);
            }
            (Mutation::SkipIsForgotten, write) => {
                if let Verdict::Skipped(_) = decision.answer {
                    *write = None;
                }
            }
            (Mutation::TriggerComesBack, Some(Write::Put { record, .. }))
                if record.manual_done > before.manual_done =>
            {
                record.manual_asked += 1;
            }
            (Mutation::NoTakeover, write) => {
                if let (What::Takeover { .. }, Verdict::Awarded(_) | Verdict::GaveUp(_)) =
                    (asked.what, &decision.answer)
                {
                    *write = None;
                    decision.answer = Verdict::Held(before.clone());
                }
            }
            (Mutation::NothingIsDecided, write) => {
                if let What::Planned(_) = asked.what {
                    *write = None;
                    decision.answer = Verdict::AlreadyDecided(before.clone());
                }
            }
            _ => {}
        }
    }

    fn renew(&mut self, asked: &Renewal, now: StoreNow, time: u64, judge: &mut Judge) -> Renewed {
        let before = self.record(&asked.job).cloned();
        let mut asked = asked.clone();
        if self.is(Mutation::StaleHolderWrites)
            && let Some(record) = &before
        {
            asked.token = record.token;
        }
        let decision = renew(before.as_ref(), &asked, now);
        let answer = self.write(&asked.job, decision, time);
        judge.saw(
            Op::Renew(&asked, &answer),
            &asked.job,
            before.as_ref(),
            self.record(&asked.job),
            At::once(now, time),
        );
        answer
    }

    fn finish(&mut self, asked: &Finish, now: StoreNow, time: u64, judge: &mut Judge) -> Finished {
        let before = self.record(&asked.job).cloned();
        let mut changed = asked.clone();
        let mut base = before.clone();
        if let Some(record) = &mut base {
            if self.is(Mutation::StaleHolderWrites) {
                changed.token = record.token;
            }
            if self.is(Mutation::FinishCountsTwice) && record.status == Status::Succeeded {
                record.status = Status::Running;
            }
        }
        let decision = finish(base.as_ref(), &changed, now);
        let answer = self.write(&asked.job, decision, time);
        judge.saw(
            Op::Finish(asked, &answer),
            &asked.job,
            before.as_ref(),
            self.record(&asked.job),
            At::once(now, time),
        );
        answer
    }

    pub(crate) fn control(&mut self, asked: &Control, time: u64, judge: &mut Judge) -> Controlled {
        let now = self.now(time);
        let before = self.record(&asked.job).cloned();
        let decision = control(before.as_ref(), asked, now);
        let answer = self.write(&asked.job, decision, time);
        judge.saw(
            Op::Control(asked, &answer),
            &asked.job,
            before.as_ref(),
            self.record(&asked.job),
            At::once(now, time),
        );
        answer
    }

    fn beat(&mut self, announcement: &Announcement, now: StoreNow) -> Members {
        let limit = now.0 - ANNOUNCEMENT_AGE.as_micros() as i64;
        let (instance, schedules, zones, contested) = match announcement {
            Announcement::Withdrawn { instance } => {
                self.members.remove(instance);
                return Members::default();
            }
            Announcement::Present { instance, schedules, zones, contested } => {
                (instance, schedules, zones, contested)
            }
        };
        // One from the future is of before the clock was set back; kept, it would live again when that time comes.
        self.members.retain(|_, m| m.at <= now.0);
        let live = |m: &Member| m.at >= limit;
        let known = self.members.get(instance).is_some_and(live);
        let waiting = contested.iter().map(|one| one.own.clone()).collect();
        let me = Member {
            at: now.0,
            schedules: schedules.iter().cloned().collect(),
            waiting,
            zones: zones.clone(),
        };
        self.members.insert(instance.clone(), me);
        let mut instances: Vec<InstanceId> =
            self.members.iter().filter(|(_, m)| live(m)).map(|(id, _)| id.clone()).collect();
        instances.sort();
        let others = || self.members.iter().filter(|(id, m)| live(m) && *id != instance);
        let is_announced =
            |one: &&Contested| others().any(|(_, m)| m.schedules.get(&one.own.job) == Some(&one.in_force));
        let announced =
            contested.iter().filter(is_announced).map(|one| (one.own.job.clone(), one.in_force)).collect();
        let waiting = earliest(others().flat_map(|(_, m)| m.waiting.iter().cloned()));
        let mut zones: Vec<String> =
            self.members.values().filter(|m| live(m)).map(|m| m.zones.clone()).collect();
        zones.sort();
        zones.dedup();
        Members { known, instances, announced, waiting, zones }
    }
}

struct Answers<'a> {
    now: StoreNow,
    bad: &'a mut dyn FnMut() -> Option<bool>,
    bad_items: usize,
}

impl Answers<'_> {
    fn item<T>(&mut self, item: impl FnOnce() -> T) -> Answer<T> {
        match (self.bad)() {
            None => Ok(Stamped { value: item(), now: self.now }),
            Some(done) => {
                self.bad_items += 1;
                if done {
                    item();
                    Err(StoreError::unknown("the reply to this item was lost"))
                } else {
                    Err(StoreError::unavailable("this item failed"))
                }
            }
        }
    }
}
