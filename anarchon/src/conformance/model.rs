//! Plays random operations to a store and to the pure protocol in lock step, and compares every answer and record.
//!
//! The `now` that the store stamps on an answer is the `now` that the protocol is given: a store that decides at another
//! instant than it says is found out by its tokens and leases.

use std::{
    collections::{BTreeMap, VecDeque},
    env,
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use super::subject::{OTHER_SCHEDULE, SCHEDULE, Subject, all, fresh_nonce, instance, lag, name, pause};
use crate::{
    clock::{Clock as _, SystemClock},
    protocol::{
        self, Claim, Control, ControlAction, Decision, Fingerprint, Finish, InstanceId, JobName, JobSpec,
        LeaseEnd, Millis, Outcome, Record, Renewal, Replace, Status, StoreNow, Token, What, Write,
    },
    store::{Answer, Snapshot, Store},
};

pub(super) async fn the_store_answers_and_keeps_what_the_protocol_says(subject: Subject) {
    let seed = number("ANARCHON_MODEL_SEED").unwrap_or_else(|| fastrand::u64(..));
    let operations = number("ANARCHON_MODEL_OPS")
        .unwrap_or_else(|| u64::try_from(subject.harness.model_operations).unwrap());
    let handles = [Arc::clone(&subject.store), subject.handle().await, subject.handle().await];
    let mut model = Model {
        rng: fastrand::Rng::with_seed(seed),
        seed,
        operation: 0,
        now: StoreNow(i64::MIN),
        lag: lag(subject.guarantees.clock),
        keep: usize::from(subject.guarantees.history),
        is_shared: subject.is_shared(),
        jobs: BTreeMap::new(),
        holders: BTreeMap::new(),
        sent: VecDeque::new(),
    };
    while model.operation < operations {
        model.operation += 1;
        let place = model.rng.usize(..handles.len());
        model.step(&handles, place).await;
    }
}

/// Where there is one right answer.
fn exactly<I, T>(
    decide: impl Fn(Option<&Record>, &I, StoreNow) -> Decision<T>,
) -> impl Fn(Option<&Record>, &I, StoreNow) -> Vec<Decision<T>> {
    move |record, item, now| vec![decide(record, item, now)]
}

/// Whether a lease may end, or its record come back, before a call that is made now is carried out.
fn ends_about_now(record: &Record) -> bool {
    let now = Millis(SystemClock.wall_micros() / 1000);
    let (soon, before) = (now.plus(Duration::from_secs(2)), now.minus(Duration::from_millis(500)));
    record.status == Status::Running && before <= record.until && record.until <= soon
}

async fn told_of(store: &dyn Store, job: &JobName) -> Option<Snapshot> {
    super::subject::one(store.inspect(std::slice::from_ref(job), u8::MAX).await).value
}

/// A number from the environment.
fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, which is not a number")))
}

struct Model {
    rng: fastrand::Rng,
    seed: u64,
    operation: u64,
    now: StoreNow,
    /// By how much the clocks of handles may differ, and how late they may find a lease over.
    lag: Duration,
    keep: usize,
    is_shared: bool,
    jobs: BTreeMap<JobName, Snapshot>,
    /// Which handle was given the token of a job.
    holders: BTreeMap<JobName, (Token, usize)>,
    /// Claims to repeat later.
    sent: VecDeque<Claim>,
}

impl Model {
    async fn step(&mut self, handles: &[Arc<dyn Store>], place: usize) {
        let store = &*handles[place];
        let mut jobs = self.pick_jobs();
        if !self.is_shared {
            jobs = self.reachable(jobs, handles, place).await;
        }
        match self.rng.u8(..100) {
            0..12 => {
                let items: Vec<_> = jobs.iter().map(|job| self.draw_spec(job)).collect();
                let answers = store.register(&items).await;
                self.judge(&items, |spec| &spec.job, answers, exactly(protocol::register));
            }
            12..55 => {
                let items: Vec<_> = jobs.iter().map(|job| self.draw_claim(job)).collect();
                let answers = store.claim(&items).await;
                let lag = self.lag;
                let decide = move |record: Option<&Record>, claim: &Claim, now: StoreNow| {
                    let late = record.is_some_and(|record| now.millis() <= record.until.plus(lag));
                    let ends = if late && !lag.is_zero() {
                        vec![LeaseEnd::ByClock, LeaseEnd::Live]
                    } else {
                        vec![LeaseEnd::ByClock]
                    };
                    ends.into_iter().map(|end| protocol::claim(record, claim, now, end)).collect()
                };
                self.judge(&items, |claim| &claim.job, answers, decide);
            }
            55..66 => {
                let items: Vec<_> = jobs.iter().map(|job| self.draw_renewal(job)).collect();
                let answers = store.renew(&items).await;
                self.judge(&items, |renewal| &renewal.job, answers, exactly(protocol::renew));
            }
            66..84 => {
                let items: Vec<_> = jobs.iter().map(|job| self.draw_finish(job)).collect();
                let answers = store.finish(&items).await;
                self.judge(&items, |finish| &finish.job, answers, exactly(protocol::finish));
            }
            84..97 => {
                let items: Vec<_> = jobs.iter().map(|job| self.draw_control(job)).collect();
                let answers = store.control(&items).await;
                self.judge(&items, |control| &control.job, answers, exactly(protocol::control));
            }
            _ => pause(Duration::from_millis(5)).await,
        }
        self.compare(store, &jobs).await;
        for job in jobs {
            let token = self.jobs.get(&job).map_or(Token(0), |kept| kept.record.token);
            if self.holders.get(&job).is_none_or(|(known, _)| *known != token) {
                self.holders.insert(job, (token, place));
            }
        }
    }

    /// Of these jobs, those whose record this handle can have. Of the others it is told that they are held, and that handle which
    /// holds one has its record.
    async fn reachable(&self, jobs: Vec<JobName>, handles: &[Arc<dyn Store>], place: usize) -> Vec<JobName> {
        let mut reachable = Vec::new();
        for job in jobs {
            let kept = self.jobs.get(&job);
            let told = told_of(&*handles[place], &job).await;
            if told.as_ref() == kept {
                // Who has only seen it tells it as it was seen until the lease is over, and then that it is somebody's.
                let is_held = |record: &Record| self.holders.get(&job) == Some(&(record.token, place));
                if !kept.is_some_and(|kept| !is_held(&kept.record) && ends_about_now(&kept.record)) {
                    reachable.push(job);
                }
                continue;
            }
            let is_running =
                |snapshot: Option<&Snapshot>| snapshot.is_some_and(|s| s.record.status == Status::Running);
            let place_of = self.place();
            assert!(is_running(kept) && is_running(told.as_ref()), "{told:?} of {kept:?}; {place_of}");
            assert_eq!(told.map(|told| told.history), Some(Vec::new()), "of {kept:?}; {place_of}");
            let mut others = Vec::new();
            for other in handles {
                others.push(told_of(&**other, &job).await);
            }
            assert!(others.iter().any(|told| told.as_ref() == kept), "{others:?} of {kept:?}; {place_of}");
        }
        reachable
    }

    /// Compares the answers to a batch with those of the protocol. Where there are several right ones, the first is the usual.
    fn judge<I: Debug, T: PartialEq + Debug>(
        &mut self,
        items: &[I],
        job: impl Fn(&I) -> &JobName,
        answers: Vec<Answer<T>>,
        decide: impl Fn(Option<&Record>, &I, StoreNow) -> Vec<Decision<T>>,
    ) {
        let mut newest = self.now;
        for (item, answer) in items.iter().zip(all(answers, items.len())) {
            let before = self.jobs.get(job(item)).map(|kept| kept.record.clone());
            let mut right = decide(before.as_ref(), item, answer.now);
            let place = self.place();
            let given = right.iter().position(|one| one.answer == answer.value).unwrap_or(0);
            let Decision { answer: want, write } = right.swap_remove(given);
            assert_eq!(
                answer.value, want,
                "the answer to {item:?} at {:?} on {before:?}; {place}",
                answer.now
            );
            self.see(answer.now);
            newest = newest.max(answer.now);
            self.write(job(item), write);
        }
        // Not item by item: a batch need not be decided in its order.
        self.now = newest;
    }

    fn write(&mut self, job: &JobName, write: Option<Write>) {
        match write {
            None => {}
            Some(Write::Delete) => {
                self.jobs.remove(job);
            }
            Some(Write::Put { record, closed }) => {
                let mut history = self.jobs.remove(job).map_or_else(Vec::new, |kept| kept.history);
                history.splice(..0, closed);
                history.truncate(self.keep);
                self.jobs.insert(job.clone(), Snapshot { record: *record, history });
            }
        }
    }

    async fn compare(&mut self, store: &dyn Store, jobs: &[JobName]) {
        let mut newest = self.now;
        for (job, answer) in jobs.iter().zip(all(store.inspect(jobs, u8::MAX).await, jobs.len())) {
            let place = self.place();
            assert_eq!(answer.value.as_ref(), self.jobs.get(job), "what is kept of \"{job}\"; {place}");
            self.see(answer.now);
            newest = newest.max(answer.now);
        }
        // As in `judge`: several servers answer in any order.
        self.now = newest;
    }

    /// The clock never goes back, but for what handles may differ by.
    fn see(&self, now: StoreNow) {
        assert!(
            now.plus(self.lag) >= self.now.millis(),
            "the clock went back from {:?} to {now:?}; {}",
            self.now,
            self.place()
        );
    }

    fn place(&self) -> String {
        format!("operation {}, rerun with ANARCHON_MODEL_SEED={}", self.operation, self.seed)
    }

    // ---- what to do next ----

    /// One to four of six jobs, each once.
    fn pick_jobs(&mut self) -> Vec<JobName> {
        let mut jobs: Vec<_> = (0..6).map(|n| name(&format!("job-{n}"))).collect();
        self.rng.shuffle(&mut jobs);
        jobs.truncate(if self.rng.bool() { 1 } else { self.rng.usize(2..=4) });
        jobs
    }

    fn one_in(&mut self, of: u8) -> bool {
        self.rng.u8(..of) == 0
    }

    fn short(&mut self, most_ms: u64) -> Duration {
        Duration::from_micros(self.rng.u64(..=most_ms * 1000))
    }

    /// An instant of the last moments, or of the next.
    fn instant(&mut self) -> Millis {
        Millis(self.now.millis().0.saturating_add(self.rng.i64(-80..10)))
    }

    fn schedule(&mut self, job: &JobName) -> Fingerprint {
        let other = self.one_in(10);
        match self.jobs.get(job) {
            Some(kept) if !other => kept.record.schedule,
            Some(_) | None => {
                if self.rng.bool() {
                    SCHEDULE
                } else {
                    OTHER_SCHEDULE
                }
            }
        }
    }

    fn holder(&mut self) -> InstanceId {
        instance(if self.rng.bool() { "a" } else { "b" })
    }

    /// Mostly the record's token.
    fn token(&mut self, job: &JobName) -> Token {
        let token = self.jobs.get(job).map_or(0, |kept| kept.record.token.0);
        Token(match self.rng.u8(..10) {
            0 => token.saturating_sub(1),
            1 => token + 1,
            2 => 0,
            _ => token,
        })
    }

    fn draw_spec(&mut self, job: &JobName) -> JobSpec {
        let schedule = if self.rng.bool() { SCHEDULE } else { OTHER_SCHEDULE };
        let replace = Replace { old: self.schedule(job), since: self.instant() };
        let by = self.holder();
        JobSpec { job: job.clone(), schedule, by, replace: self.rng.bool().then_some(replace), next: None }
    }

    fn draw_claim(&mut self, job: &JobName) -> Claim {
        if self.one_in(6) {
            let earlier: Vec<_> = self.sent.iter().filter(|claim| claim.job == *job).collect();
            if !earlier.is_empty() {
                return earlier[self.rng.usize(..earlier.len())].clone();
            }
        }
        let record = self.jobs.get(job).map(|kept| kept.record.clone());
        let what = match self.rng.u8(..10) {
            0..4 => {
                let decided = record.map_or(Millis(0), |record| record.decided);
                let near = Millis(decided.0 + self.rng.i64(-1..3));
                let instant = self.instant();
                What::Planned(if self.rng.bool() { near } else { instant })
            }
            4..8 => {
                let until = record.map_or(Millis(0), |record| record.until);
                let seen = Millis(until.0 + self.rng.i64(-1..=1));
                What::Takeover { token: self.token(job), observed: self.one_in(4).then_some(seen) }
            }
            _ => {
                let asked = record.map_or(0, |record| record.manual_asked);
                What::Manual((asked + 1).saturating_sub(self.rng.u64(..3)))
            }
        };
        let claim = Claim {
            job: job.clone(),
            what,
            lease: self.short(60),
            window: self.short(200),
            max_attempts: self.rng.u32(..4),
            schedule: self.schedule(job),
            holder: self.holder(),
            nonce: fresh_nonce(),
            next: None,
            expires: if self.one_in(6) { self.instant() } else { Millis::MAX },
        };
        self.sent.push_back(claim.clone());
        if self.sent.len() > 60 {
            self.sent.pop_front();
        }
        claim
    }

    fn draw_renewal(&mut self, job: &JobName) -> Renewal {
        Renewal { job: job.clone(), token: self.token(job), lease: self.short(60) }
    }

    fn draw_finish(&mut self, job: &JobName) -> Finish {
        let outcome = match self.rng.u8(..6) {
            0 => Outcome::Succeeded,
            1 => Outcome::Failed,
            2 => Outcome::Cancelled,
            3 => Outcome::Released,
            _ => Outcome::Retry(self.short(40)),
        };
        let message = match self.rng.u8(..4) {
            0 => Some("€".repeat(self.rng.usize(..=1000))),
            1 => Some("no such host".to_owned()),
            _ => None,
        };
        Finish { job: job.clone(), token: self.token(job), outcome, message }
    }

    fn draw_control(&mut self, job: &JobName) -> Control {
        let action = match self.rng.u8(..20) {
            0..5 => ControlAction::Trigger,
            5..8 => ControlAction::Pause,
            8..14 => ControlAction::Resume,
            14..18 => ControlAction::Cancel(self.token(job)),
            _ => ControlAction::Forget,
        };
        Control { job: job.clone(), action }
    }
}
