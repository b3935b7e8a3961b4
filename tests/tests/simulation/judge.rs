//! The invariants of the protocol page, judged at the store after each step and at the handlers.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::Duration,
};

use anarchon::{
    engine::EngineJob,
    policy::{CatchUp, Jitter},
    protocol::{
        Claim, Control, ControlAction, Controlled, Fingerprint, Finish, Finished, InstanceId, JobName,
        JobSpec, Millis, Nonce, Occurrence, Record, Registered, Renewal, Renewed, Status, StoreNow, Token,
        Verdict, What,
    },
};
use chrono::DateTime;

use crate::plan::{Kind, Plan, SECOND};

/// One item of a call, with its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op<'a> {
    Register(&'a JobSpec, &'a Registered),
    Claim(&'a Claim, &'a Verdict),
    Renew(&'a Renewal, &'a Renewed),
    Finish(&'a Finish, &'a Finished),
    Control(&'a Control, &'a Controlled),
}

/// When an item was done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    /// The store's time by which it was decided, as whoever decided knew it.
    pub(crate) now: StoreNow,
    /// True time at which the record was changed.
    pub(crate) time: u64,
    /// True time from which a lease that it grants counts: that of the decision.
    pub(crate) from: u64,
    /// The lease that it grants, where the record may be changed long after the decision.
    pub(crate) stored_after: Option<Duration>,
}

impl At {
    /// All at one instant.
    pub(crate) fn once(now: StoreNow, time: u64) -> Self {
        Self { now, time, from: time, stored_after: None }
    }
}

/// What is remembered of a job since its data was lost last.
#[derive(Debug, Default)]
struct Seen {
    finished: HashSet<Occurrence>,
    skipped: HashSet<Millis>,
    releases: HashMap<Occurrence, u32>,
    last_planned: Option<Millis>,
    resumed: Option<Millis>,
    triggers: u64,
    manual_runs: u64,
    cancelled: HashSet<Occurrence>,
    schedule_of_award: Option<Fingerprint>,
    nonces: HashSet<Nonce>,
    closed: HashSet<Token>,
    /// Answered as skipped although nobody had a lease.
    unfounded: HashSet<Millis>,
    /// Who was told that an occurrence is skipped which no record says so of.
    told: HashMap<Millis, HashSet<InstanceId>>,
}

/// What outlives a loss.
#[derive(Debug, Default)]
struct Kept {
    newest_token: Token,
    /// Whether the record was ever lost.
    lost: bool,
    /// True time of the last claim or renewal that the store took for the newest token, and the lease it gave.
    extended: u64,
    lease: Duration,
    /// How long after its decision that was stored.
    stored_after: Duration,
    /// Whether it is an award that was stored when its claim had expired.
    is_expired: bool,
    /// The newest grants, in case that the newest writes are lost.
    grants: VecDeque<(Token, Millis, At, Duration)>,
    /// The record that is overdue, and since when.
    overdue: Option<(Token, Millis, u64)>,
    overdue_trigger: Option<(u64, u64)>,
    quiet_from: Option<Millis>,
}

impl Kept {
    fn extend(&mut self, after: &Record, lease: Duration, at: At) {
        self.grants.push_back((after.token, after.until, at, lease));
        if self.grants.len() > 16 {
            self.grants.pop_front();
        }
        self.count_from(lease, at);
    }

    /// The newest writes are lost: an older grant is the newest again.
    fn go_back(&mut self, record: &Record) {
        let is_that = |(token, until, ..): &&(Token, Millis, At, Duration)| {
            (*token, *until) == (record.token, record.until)
        };
        if let Some(&(_, _, at, lease)) = self.grants.iter().rev().find(is_that) {
            self.count_from(lease, at);
        }
    }

    fn count_from(&mut self, lease: Duration, at: At) {
        (self.extended, self.lease, self.is_expired) = (at.from, lease, false);
        self.stored_after =
            at.stored_after.map_or(Duration::ZERO, |_| Duration::from_micros(at.time - at.from));
    }

    /// Stored when whoever had asked for it could not start a run any more.
    fn is_void(&self) -> bool {
        self.is_expired || !self.stored_after.is_zero() && self.stored_after >= self.lease / 2
    }
}

#[derive(Debug, Default)]
pub(crate) struct Judge {
    kind: Kind,
    /// From one look at a record to the next, at most.
    round: Duration,
    jobs: BTreeMap<JobName, HashMap<Fingerprint, EngineJob>>,
    seen: HashMap<JobName, Seen>,
    kept: HashMap<JobName, Kept>,
    set_back: bool,
    /// True time at which the store's clock was set ahead last, and at which it was set at all.
    set_ahead: Option<u64>,
    set: Option<u64>,
    /// True time at which the record of a job was deleted last.
    pub(crate) last_forgotten: HashMap<JobName, u64>,
    /// The first broken invariant.
    pub(crate) broken: Option<String>,
    /// How often things happened, to see that a simulation tests anything.
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Judge {
    pub(crate) fn new(plan: &Plan) -> Self {
        // With their announcements of before a restart there may be twice as many.
        let tens = u32::try_from((2 * plan.instances).div_ceil(10)).unwrap_or(u32::MAX);
        let mut judge = Self {
            kind: plan.kind,
            round: Duration::from_secs(if plan.kind == Kind::CompareAndSwap { 30 } else { 5 }) * tens,
            // Where tokens come from the clocks of instances, one may be behind another.
            set_back: plan.kind == Kind::TokenQueue,
            ..Self::default()
        };
        for job in plan.versions.iter().flatten() {
            judge.jobs.entry(job.name.clone()).or_default().insert(job.fingerprint, job.clone());
        }
        judge
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn broke(&mut self, invariant: &str, what: impl std::fmt::Display) {
        if self.broken.is_none() {
            self.broken = Some(format!("{invariant}: {what}"));
        }
    }

    fn check(&mut self, holds: bool, invariant: &str, what: impl FnOnce() -> String) {
        if !holds {
            self.broke(invariant, what());
        }
    }

    /// The store has lost the data of one job, or of all.
    pub(crate) fn lost(&mut self, job: Option<&JobName>) {
        match job {
            Some(job) => {
                self.seen.remove(job);
            }
            None => self.seen.clear(),
        }
        for name in self.jobs.keys().filter(|name| job.is_none_or(|job| job == *name)) {
            self.kept.entry(name.clone()).or_default().lost = true;
        }
    }

    /// The record of a job is deleted, with whatever holds its lease.
    pub(crate) fn forgotten(&mut self, job: &JobName, time: u64) {
        self.lost(Some(job));
        self.last_forgotten.insert(job.clone(), time);
    }

    /// The newest writes are gone; `record` says what is left of a job.
    pub(crate) fn failed_over<'a>(&mut self, record: impl Fn(&JobName) -> Option<&'a Record>) {
        for job in self.jobs.keys() {
            let seen = self.seen.entry(job.clone()).or_default();
            // What was asked for once stays asked for, and how many attempts a run was granted is known.
            let (nonces, releases) = (std::mem::take(&mut seen.nonces), std::mem::take(&mut seen.releases));
            let triggers = record(job).map_or(0, |record| record.manual_asked - record.manual_done);
            *seen = Seen { nonces, releases, triggers, ..Seen::default() };
        }
        for job in self.jobs.keys() {
            let kept = self.kept.entry(job.clone()).or_default();
            kept.lost = true;
            if let (Kind::CompareAndSwap, Some(record)) = (self.kind, record(job)) {
                kept.go_back(record);
            }
        }
    }

    pub(crate) fn clock_set(&mut self, by: i64, time: u64) {
        self.set_back |= by < 0;
        self.set = Some(time);
        if by > 0 {
            self.set_ahead = Some(time);
        }
    }

    /// A claim was answered as skipped by an instance that cannot read the record; `is_run`: whether somebody has a lease,
    /// `is_known`: whether it has not missed that the job began anew.
    pub(crate) fn skipped_elsewhere(&mut self, claim: &Claim, is_run: bool, is_known: bool) {
        self.count("skipped elsewhere");
        let What::Planned(at) = claim.what else { return };
        let seen = self.seen.entry(claim.job.clone()).or_default();
        if is_known {
            seen.told.entry(at).or_default().insert(claim.holder.clone());
        }
        if !is_run {
            seen.unfounded.insert(at);
            self.count("skipped elsewhere for nobody");
        }
    }

    /// A claim on a record that says `decided`, by an instance that remembers skips up to `remembered`.
    pub(crate) fn remembers_skips(&mut self, claim: &Claim, decided: Millis, remembered: Millis) {
        let What::Planned(at) = claim.what else { return };
        let seen = self.seen.entry(claim.job.clone()).or_default();
        let is_lost = decided < at && at <= remembered && seen.unfounded.contains(&at);
        self.check(!is_lost, "I7", || format!("{claim:?}: refused as skipped, and nobody had a lease then"));
    }

    pub(crate) fn batch_answered(&mut self, errors: usize, bad: usize) {
        self.check(errors == bad, "I14", || format!("{bad} bad items made {errors} errors"));
    }

    /// Takes in one item that the store has done.
    pub(crate) fn saw(
        &mut self,
        op: Op<'_>,
        job: &JobName,
        before: Option<&Record>,
        after: Option<&Record>,
        at: At,
    ) {
        if let (Some(before), Some(after)) = (before, after) {
            self.check(after.decided >= before.decided, "I4", || format!("{job}: {before:?} -> {after:?}"));
            self.check(after.runs >= before.runs && after.runs <= before.runs + 1, "I15", || {
                format!("{after:?}")
            });
        }
        match op {
            Op::Register(spec, answer) => self.registered(spec, answer, before, after),
            Op::Claim(claim, verdict) => self.claimed(claim, verdict, before, after, at),
            Op::Renew(renewal, answer) => {
                let stale = before.is_none_or(|b| b.token != renewal.token || b.status != Status::Running);
                self.check(!stale || before == after, "I11", || {
                    format!("{renewal:?} {before:?} -> {after:?}")
                });
                let lost = matches!(answer, Renewed::Lost);
                self.check(stale == lost, "I11", || format!("{renewal:?} {answer:?} of {before:?}"));
                if !stale {
                    let kept = self.kept.entry(job.clone()).or_default();
                    if let Some(after) = after {
                        kept.extend(after, renewal.lease, at);
                    }
                }
            }
            Op::Finish(finish, answer) => self.finished(finish, answer, before, after),
            Op::Control(control, answer) => self.controlled(control, answer, before, at),
        }
    }

    fn registered(
        &mut self,
        spec: &JobSpec,
        answer: &Registered,
        before: Option<&Record>,
        after: Option<&Record>,
    ) {
        let replaced = before.is_some_and(|b| Some(b.schedule) != after.map(|a| a.schedule));
        if replaced {
            self.count("schedule taken over");
            self.seen.entry(spec.job.clone()).or_default().schedule_of_award = None;
        }
        if let Registered::Created(_) = answer {
            self.count("created");
        }
    }

    fn claimed(
        &mut self,
        claim: &Claim,
        verdict: &Verdict,
        before: Option<&Record>,
        after: Option<&Record>,
        at: At,
    ) {
        let (Some(before), Some(after)) = (before, after) else { return };
        let job = &claim.job;
        let seen = self.seen.entry(job.clone()).or_default();
        let again = !seen.nonces.insert(claim.nonce) && before.nonce == claim.nonce;
        if again {
            self.count("claim repeated");
            self.check(before == after, "I12", || format!("{claim:?}: {before:?} -> {after:?}"));
            return;
        }
        match verdict {
            Verdict::Awarded(award) => {
                self.count("awarded");
                self.awarded(claim, award.token, before, after, at);
            }
            Verdict::Skipped(_) => {
                self.count("skipped");
                if let What::Planned(at) = claim.what {
                    self.seen.entry(job.clone()).or_default().skipped.insert(at);
                }
                self.is_skipped_for_somebody(claim, before);
            }
            Verdict::GaveUp(_) => {
                self.count("gave up");
                self.seen.entry(job.clone()).or_default().finished.insert(before.occurrence);
            }
            Verdict::Paused(_) => self.count("paused"),
            Verdict::Missed => self.count("missed"),
            Verdict::Early => self.count("early"),
            Verdict::Expired => self.count("expired"),
            Verdict::Held(_) => self.count("held"),
            Verdict::Stale { .. } => self.count("stale"),
            Verdict::AlreadyDone(_) | Verdict::AlreadyDecided(_) | Verdict::Unregistered => {}
        }
    }

    /// What was stored when its asker had given up long before keeps nobody from running.
    fn is_skipped_for_somebody(&mut self, claim: &Claim, before: &Record) {
        let kept = self.kept.entry(claim.job.clone()).or_default();
        let clock_stands =
            self.set.is_none_or(|set| set + kept.stored_after.as_micros() as u64 <= kept.extended);
        let is_void = kept.newest_token == before.token
            && clock_stands
            && kept.stored_after >= kept.lease.mul_f64(0.85) + Duration::from_secs(1);
        self.check(!is_void, "I21", || {
            format!("{claim:?} is skipped for an award that was void: {before:?}")
        });
    }

    fn awarded(&mut self, claim: &Claim, token: Token, before: &Record, after: &Record, at: At) {
        let (job, At { now, time, .. }) = (&claim.job, at);
        let what = || format!("{claim:?} at {now:?}: {before:?} -> {after:?}");
        let known = self.jobs.get(job).and_then(|v| v.get(&claim.schedule)).cloned();
        let Some(known) = known else { return self.broke("I13", "unknown schedule") };
        let kept = self.kept.entry(job.clone()).or_default();

        // Tokens grow across a loss, but not when the clock was set back as well.
        let may_return = kept.lost && self.set_back;
        let floor = if may_return { before.token } else { kept.newest_token };
        let grows = token > floor;
        kept.newest_token = kept.newest_token.max(token);
        let over = match self.kind {
            Kind::OneMap | Kind::TokenQueue => before.until <= now.millis(),
            // By the server's clock only as far as that says how long ago the lease was stored, and how long after its
            // decision, for which its clock was known by a message of the last 30 s.
            Kind::CompareAndSwap => self.set_ahead.is_some_and(|set| set + 30 * SECOND >= kept.extended),
        };
        // Clock rates differ by up to 200 ppm.
        let truly_over =
            time - kept.extended >= kept.lease.mul_f64(0.999).as_micros() as u64 || kept.is_void();
        let live = before.status == Status::Running && !over && !truly_over;
        kept.extend(after, claim.lease, at);
        // By when its asker had to have it, counted from when it asked first.
        let stored = Millis(now.millis().0 + (time - at.from) as i64 / 1000);
        kept.is_expired =
            !kept.stored_after.is_zero() && stored >= claim.expires.minus(Duration::from_millis(100));
        self.check(grows, "I3", what);
        self.check(!live, "I1", what);

        let seen = self.seen.entry(job.clone()).or_default();
        if may_return {
            seen.closed.remove(&token);
        }
        let asker = &claim.holder;
        let same = before.occurrence == after.occurrence && before.status != Status::Idle;
        let ended = !before.status.is_unfinished();
        let two_schedules =
            seen.schedule_of_award.replace(claim.schedule).is_some_and(|old| old != claim.schedule);
        let finished = seen.finished.contains(&after.occurrence);
        let cancelled = seen.cancelled.contains(&after.occurrence);
        let releases = seen.releases.get(&after.occurrence).copied().unwrap_or(0);
        let most = known.policy.max_attempts + known.policy.retries + releases;
        let resumed = seen.resumed;
        let mut planned_again = false;
        let mut skipped = false;
        let mut manual = None;
        match after.occurrence {
            Occurrence::Planned(at) => {
                skipped = seen.skipped.contains(&at);
                if after.attempt == 1 {
                    // Only who has not asked for it may run what is nowhere written as skipped.
                    skipped |= seen.told.get(&at).is_some_and(|told| told.contains(asker));
                    planned_again = seen.last_planned.is_some_and(|last| at <= last);
                    seen.last_planned = Some(at);
                }
            }
            Occurrence::Manual(_) => {
                if after.attempt == 1 {
                    seen.manual_runs += 1;
                    manual = Some((seen.manual_runs, seen.triggers));
                }
            }
        }
        if before.status.is_unfinished() && !same {
            seen.finished.insert(before.occurrence);
        }

        self.check(!two_schedules && before.schedule == claim.schedule, "I13", what);
        self.check(!(finished || same && ended), "I5", what);
        self.check(!cancelled, "I19", what);
        self.check(!skipped, "I8", what);
        self.check(!planned_again, "I9", what);
        self.check(after.attempt == if same { before.attempt + 1 } else { 1 }, "I2", what);
        self.check(!same || before.status == Status::Waiting || over || truly_over, "I2", what);
        self.check(after.attempt <= most, "I16", || {
            format!("attempt {} of {most}: {}", after.attempt, what())
        });
        if let Some((runs, triggers)) = manual {
            self.count("manual run");
            self.check(runs <= triggers, "I18", || {
                format!("run {runs} after {triggers} triggers: {}", what())
            });
        }
        match (after.occurrence, after.attempt) {
            (Occurrence::Planned(at), 1) => {
                let late = at.0
                    + window_of(&known, at).as_millis() as i64
                    + longest_jitter(&known, at).as_millis() as i64;
                self.check(at <= now.millis() && now.millis().0 <= late, "I6", what);
                self.check(!before.paused && resumed.is_none_or(|resumed| at > resumed), "I17", what);
            }
            (Occurrence::Manual(_), 1) => {}
            (Occurrence::Planned(_) | Occurrence::Manual(_), _) => {
                self.count(if before.status == Status::Waiting { "retried" } else { "taken over" });
                if before.status == Status::Running && !over {
                    self.count("taken over as observed");
                }
                let window = match known.policy.catch_up {
                    CatchUp::Window(window) => window.max(Duration::from_secs(5)),
                    CatchUp::None => Duration::from_secs(5),
                };
                // A run that nobody had heard of is found by a look in turn.
                let window = window.max(self.round + Duration::from_secs(2));
                let limit = before.until.0 + window.as_millis() as i64;
                self.check(now.millis().0 <= limit, "I6", what);
            }
        }
    }

    fn finished(
        &mut self,
        finish: &Finish,
        answer: &Finished,
        before: Option<&Record>,
        after: Option<&Record>,
    ) {
        let what = || format!("{finish:?} -> {answer:?}: {before:?} -> {after:?}");
        let Some(before) = before else { return };
        let own = before.token == finish.token && before.status == Status::Running;
        let stale = before.token != finish.token;
        self.check(!stale || Some(before) == after, "I11", what);
        self.check(stale || own || Some(before) == after, "I12", what);
        let seen = self.seen.entry(finish.job.clone()).or_default();
        let first = seen.closed.insert(finish.token);
        let unchanged = Some(before) == after;
        self.check(first || unchanged, "I12", what);
        if !own {
            return;
        }
        let Some(after) = after else { return };
        let seen = self.seen.entry(finish.job.clone()).or_default();
        match after.status {
            Status::Waiting => {
                if after.errors == before.errors {
                    *seen.releases.entry(before.occurrence).or_default() += 1;
                    self.count("released");
                } else {
                    self.count("failed for now");
                }
            }
            Status::Succeeded | Status::Failed | Status::Cancelled | Status::Lost => {
                seen.finished.insert(before.occurrence);
                self.count("closed");
            }
            Status::Idle | Status::Running => self.broke("I5", "a finish that leaves the run open"),
        }
    }

    fn controlled(&mut self, control: &Control, answer: &Controlled, before: Option<&Record>, at: At) {
        let Some(before) = before else { return };
        let seen = self.seen.entry(control.job.clone()).or_default();
        match control.action {
            ControlAction::Trigger => {
                seen.triggers += 1;
                self.count("triggered");
            }
            ControlAction::Pause => {}
            ControlAction::Resume => {
                if before.paused {
                    seen.resumed = Some(at.now.millis());
                }
            }
            ControlAction::Cancel(_) => {
                if *answer == Controlled::Done {
                    seen.cancelled.insert(before.occurrence);
                    self.count("cancelled");
                }
            }
            ControlAction::Forget => self.forgotten(&control.job, at.time),
        }
    }

    /// A claim as it leaves an instance; `now` is what the store's clock shows in truth.
    pub(crate) fn asks(&mut self, claim: &Claim, record: Option<&Record>, now: StoreNow, slack: Duration) {
        let Some(known) = self.jobs.get(&claim.job).and_then(|v| v.get(&claim.schedule)) else { return };
        let What::Planned(at) = claim.what else { return };
        let newest = newest(known, Millis(now.millis().minus(slack).0));
        // A repeated claim for what is decided only asks who has won it, and without a record nothing is won.
        let right = newest.is_none_or(|newest| newest <= at) || record.is_none_or(|r| at <= r.decided);
        self.check(right, "I9", || format!("{claim:?} at {now:?} although {newest:?} is due"));
    }

    /// In quiet times, with an instance of the schedule in force that has room: nothing waits.
    pub(crate) fn quiet(
        &mut self,
        job: &JobName,
        record: Option<&Record>,
        now: StoreNow,
        time: u64,
        ranks: u64,
        skew: Duration,
    ) {
        let Some(record) = record else { return self.broke("I7", format!("{job} is not registered")) };
        let known = self.jobs.get(job).and_then(|v| v.get(&record.schedule)).cloned();
        let Some(known) = known else { return self.broke("I7", format!("{job}: unknown schedule")) };
        let patience = known_jitter(&known).saturating_add(Duration::from_millis(1300) + skew);
        // Only what fell due in quiet times: of earlier ones some are out of the window.
        let from = *self.kept.entry(job.clone()).or_default().quiet_from.get_or_insert(now.millis());
        let due = newest(&known, now.millis().minus(patience)).filter(|due| *due > from);
        self.check(due.is_none_or(|due| due <= record.decided), "I7", || {
            format!("{job}: {due:?} is not decided at {now:?}: {record:?}")
        });
        let overdue = record.status.is_unfinished() && record.until <= now.millis();
        let kept = self.kept.entry(job.clone()).or_default();
        let since = match kept.overdue {
            Some((token, until, since)) if overdue && (token, until) == (record.token, record.until) => since,
            _ => time,
        };
        kept.overdue = overdue.then_some((record.token, record.until, since));
        let leases = match self.kind {
            Kind::OneMap | Kind::TokenQueue => Duration::ZERO,
            // Each observer times them from when it saw them.
            Kind::CompareAndSwap => kept.lease,
        };
        let patience = 2 * SECOND + ranks * 50_000 + (leases + 2 * skew).as_micros() as u64;
        self.check(time - since <= patience, "I20", || {
            format!("{job} since {since}, now {time}: {record:?}")
        });
        let waits =
            record.has_trigger() && !(record.status == Status::Running && record.until > now.millis());
        let kept = self.kept.entry(job.clone()).or_default();
        let since = match kept.overdue_trigger {
            Some((done, since)) if waits && done == record.manual_done => since,
            _ => time,
        };
        kept.overdue_trigger = waits.then_some((record.manual_done, since));
        let patience = 7 * SECOND + (2 * skew).as_micros() as u64;
        self.check(time - since <= patience, "I18", || {
            format!("{job} since {since}, now {time}: {record:?}")
        });
    }

    /// The times are not counted on, as nobody could do it.
    pub(crate) fn not_quiet(&mut self, job: &JobName) {
        let kept = self.kept.entry(job.clone()).or_default();
        kept.overdue = None;
        kept.quiet_from = None;
        kept.overdue_trigger = None;
    }
}

fn newest(job: &EngineJob, at: Millis) -> Option<Millis> {
    let at = DateTime::from_timestamp_millis(at.0)?;
    job.schedule.latest_at_or_before(at).map(|t| Millis(t.timestamp_millis()))
}

fn interval(job: &EngineJob, at: Millis) -> Duration {
    let next = DateTime::from_timestamp_millis(at.0).and_then(|at| job.schedule.next_after(at));
    next.map_or(Duration::MAX, |next| Millis(next.timestamp_millis()).since(at))
}

/// Written anew, not taken from the engine.
fn longest_jitter(job: &EngineJob, at: Millis) -> Duration {
    match job.policy.jitter {
        Jitter::Default => Duration::from_millis(500).min(interval(job, at) / 10),
        Jitter::UpTo(longest) => longest.min(interval(job, at)),
    }
}

fn known_jitter(job: &EngineJob) -> Duration {
    match job.policy.jitter {
        Jitter::Default => Duration::from_millis(500),
        Jitter::UpTo(longest) => longest,
    }
}

fn window_of(job: &EngineJob, at: Millis) -> Duration {
    match job.policy.catch_up {
        CatchUp::Window(window) => window,
        CatchUp::None => longest_jitter(job, at) + Duration::from_secs(1),
    }
}
