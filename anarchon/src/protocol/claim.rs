use std::time::Duration;

use super::{
    Decision, Fingerprint, InstanceId, JobName, Millis, Nonce, Occurrence, Record, RunOutcome, Status,
    StoreNow, Token,
};

/// How a store knows whether the lease of a running record is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseEnd {
    /// By its clock: over from `until` on.
    ByClock,
    /// It knows that the holder is there, whatever `until` says.
    Live,
    /// It knows that the holder is gone, whatever `until` says.
    Over,
}

/// What a claim asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The first attempt at the occurrence planned for this instant.
    Planned(Millis),
    /// The next attempt after the lease with this token.
    Takeover {
        /// The lease it ends.
        token: Token,
        /// The `until` that the asker has seen unchanged for a whole lease on its own monotonic clock.
        observed: Option<Millis>,
    },
    /// The run that an operator asked for, by the number of its trigger.
    Manual(u64),
}

/// A request for an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The job.
    pub job: JobName,
    /// Which attempt is asked for.
    pub what: What,
    /// How long the lease is to be.
    pub lease: Duration,
    /// How late an occurrence may still start.
    pub window: Duration,
    /// After how many attempts that ended by expiry an occurrence is given up.
    pub max_attempts: u32,
    /// The schedule that the asker has.
    pub schedule: Fingerprint,
    /// The occurrence that follows a planned one on that schedule, on a store without announcements.
    pub next: Option<Millis>,
    /// Who asks.
    pub holder: InstanceId,
    /// Names this claim; the same when it is repeated after a lost reply.
    pub nonce: Nonce,
    /// The last instant, by the store's clock, at which an award is still of use to the asker.
    ///
    /// A claim may lie in the socket of a frozen server, or of a frozen instance, for any time. Carried out then, it would
    /// hold the job for a lease that nobody renews.
    pub expires: Millis,
}

/// An attempt that was won.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Award {
    /// What to run for.
    pub occurrence: Occurrence,
    /// Which attempt at it, from 1.
    pub attempt: u32,
    /// How many earlier attempts at it ended by expiry.
    pub crashes: u32,
    /// How many earlier attempts at it ended by an error or a time-out.
    pub errors: u32,
    /// When it was awarded, by the store's clock.
    pub started: Millis,
    /// When the lease ends, by the store's clock.
    pub until: Millis,
    /// The fencing token.
    pub token: Token,
}

impl From<&Record> for Award {
    /// What the record says of the attempt that it is about.
    fn from(record: &Record) -> Self {
        Self {
            occurrence: record.occurrence,
            attempt: record.attempt,
            crashes: record.crashes,
            errors: record.errors,
            started: record.started,
            until: record.until,
            token: record.token,
        }
    }
}

/// The answer to a claim; the rule that gives it is named by its number in `claim`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Won (rules 1, 8, 13, 16).
    Awarded(Award),
    /// There is nothing to win any more (rules 1, 9, 14).
    AlreadyDone(Record),
    /// It came too late: nobody waits for its award any more (rule 1b).
    Expired,
    /// Another schedule is in force (rule 2).
    Stale {
        /// The one in force.
        schedule: Fingerprint,
    },
    /// Planned for later, by the store's clock (rule 3).
    Early,
    /// This occurrence or a newer one was decided already (rule 4).
    AlreadyDecided(Record),
    /// The job is paused; the occurrence is decided with it (rule 5).
    Paused(Record),
    /// Older than the catch-up window (rule 6).
    Missed,
    /// The run before it holds a live lease; the occurrence is skipped for good (rule 7).
    Skipped(Record),
    /// Somebody holds a live lease, or the retry is not due yet: look again at the record's `until` (rules 10, 15).
    Held(Record),
    /// No further attempt is allowed; the occurrence is finished (rules 11, 12).
    GaveUp(Record),
    /// The store has no record of the job: register it.
    Unregistered,
}

/// Decides a claim. `None` is a job that the store has no record of.
///
/// The rules are checked in order, all against one `now`, and the first match wins. ✎ marks those that write.
///
/// | # | if | answer |
/// | --- | --- | --- |
/// | 1 | the nonce is the record's | `Awarded` as before while `running`, else `AlreadyDone` |
/// | 1b | now > expires | `Expired` |
/// | 2 | the schedule is not the record's | `Stale` |
/// | | *planned(d)* | |
/// | 3 | d > now | `Early` |
/// | 4 | d ≤ decided | `AlreadyDecided` |
/// | 5 | paused | `Paused` ✎ decided = d |
/// | 6 | d < now − window | `Missed` |
/// | 7 | live | `Skipped` ✎ decided = d |
/// | 8 | else | `Awarded` ✎ decided = d, attempt 1; an unfinished run before it is closed as lost |
/// | | *takeover(token, observed)* | |
/// | 9 | not the record's token, or finished | `AlreadyDone` |
/// | 10 | waiting until later; or live, unless `observed` is the record's `until` | `Held` |
/// | 11 | an operator cancelled it | `GaveUp` ✎ cancelled |
/// | 12 | its last allowed crash, or over for longer than the window | `GaveUp` ✎ lost |
/// | 13 | else | `Awarded` ✎ attempt + 1, crashes + 1 if it was running |
/// | | *manual(seq)* | |
/// | 14 | seq ≤ manual_done, or seq > manual_asked | `AlreadyDone` |
/// | 15 | live | `Held` |
/// | 16 | else | `Awarded` ✎ manual_done = manual_asked, attempt 1; an unfinished run before it is closed as lost |
#[must_use]
pub fn claim(record: Option<&Record>, claim: &Claim, now: StoreNow, end: LeaseEnd) -> Decision<Verdict> {
    let Some(record) = record else { return Decision::keep(Verdict::Unregistered) };
    if record.nonce == claim.nonce {
        return Decision::keep(match record.status {
            Status::Running => Verdict::Awarded(Award::from(record)),
            Status::Idle
            | Status::Waiting
            | Status::Succeeded
            | Status::Failed
            | Status::Cancelled
            | Status::Lost => Verdict::AlreadyDone(record.clone()),
        });
    }
    if now.millis() > claim.expires {
        return Decision::keep(Verdict::Expired);
    }
    if record.schedule != claim.schedule {
        return Decision::keep(Verdict::Stale { schedule: record.schedule });
    }
    match claim.what {
        What::Planned(at) => planned(record, claim, at, now, end),
        What::Takeover { token, observed } => takeover(record, claim, token, observed, now, end),
        What::Manual(seq) => manual(record, claim, seq, now, end),
    }
}

fn planned(record: &Record, claim: &Claim, at: Millis, now: StoreNow, end: LeaseEnd) -> Decision<Verdict> {
    if at > now.millis() {
        return Decision::keep(Verdict::Early);
    }
    if at <= record.decided {
        return Decision::keep(Verdict::AlreadyDecided(record.clone()));
    }
    if record.paused {
        let passed = Record { decided: at, next: claim.next, ..record.clone() };
        return Decision::put(Verdict::Paused(passed.clone()), passed, None);
    }
    if at < now.millis().minus(claim.window) {
        return Decision::keep(Verdict::Missed);
    }
    if record.is_live(now, end) {
        let skipped = Record { decided: at, next: claim.next, ..record.clone() };
        return Decision::put(Verdict::Skipped(skipped.clone()), skipped, None);
    }
    let fresh = Record { decided: at, next: claim.next, ..record.clone() };
    first_attempt(fresh, Occurrence::Planned(at), claim, now)
}

fn takeover(
    record: &Record,
    claim: &Claim,
    token: Token,
    observed: Option<Millis>,
    now: StoreNow,
    end: LeaseEnd,
) -> Decision<Verdict> {
    if record.token != token || !record.status.is_unfinished() {
        return Decision::keep(Verdict::AlreadyDone(record.clone()));
    }
    let seen_over = record.status == Status::Running && observed == Some(record.until);
    let not_due = record.status == Status::Waiting && record.until > now.millis();
    if not_due || (record.is_live(now, end) && !seen_over) {
        return Decision::keep(Verdict::Held(record.clone()));
    }
    let was_running = record.status == Status::Running;
    let mut next = record.clone();
    if record.cancel == Some(token) {
        return give_up(next, Status::Cancelled, RunOutcome::Cancelled, now);
    }
    let crashed_out = was_running && record.crashes.saturating_add(1) >= claim.max_attempts;
    let too_late = now.millis().since(record.until) > claim.window;
    if crashed_out || too_late {
        return give_up(next, Status::Lost, RunOutcome::Lost, now);
    }
    let closed = was_running.then(|| next.close(RunOutcome::Lost, now, None));
    next.attempt = next.attempt.saturating_add(1);
    next.crashes = next.crashes.saturating_add(u32::from(was_running));
    let answer = start_attempt(&mut next, claim, now);
    Decision::put(answer, next, closed)
}

fn manual(record: &Record, claim: &Claim, seq: u64, now: StoreNow, end: LeaseEnd) -> Decision<Verdict> {
    if seq <= record.manual_done || seq > record.manual_asked {
        return Decision::keep(Verdict::AlreadyDone(record.clone()));
    }
    if record.is_live(now, end) {
        return Decision::keep(Verdict::Held(record.clone()));
    }
    let fresh = Record { manual_done: record.manual_asked, ..record.clone() };
    first_attempt(fresh, Occurrence::Manual(record.manual_asked), claim, now)
}

/// Newest wins: an unfinished run that is no longer live is closed as lost.
fn first_attempt(
    mut next: Record,
    occurrence: Occurrence,
    claim: &Claim,
    now: StoreNow,
) -> Decision<Verdict> {
    let closed = next.status.is_unfinished().then(|| next.close(RunOutcome::Lost, now, None));
    next.occurrence = occurrence;
    next.attempt = 1;
    next.crashes = 0;
    next.errors = 0;
    let answer = start_attempt(&mut next, claim, now);
    Decision::put(answer, next, closed)
}

fn start_attempt(next: &mut Record, claim: &Claim, now: StoreNow) -> Verdict {
    next.status = Status::Running;
    next.started = now.millis();
    next.until = now.plus(claim.lease);
    next.token = Token(next.token.0.saturating_add(1).max(u64::try_from(now.0).unwrap_or(0)));
    next.holder = claim.holder.clone();
    next.nonce = claim.nonce;
    next.cancel = None;
    Verdict::Awarded(Award::from(&*next))
}

fn give_up(mut next: Record, status: Status, outcome: RunOutcome, now: StoreNow) -> Decision<Verdict> {
    let closed = next.close(outcome, now, None);
    next.status = status;
    Decision::put(Verdict::GaveUp(next.clone()), next, Some(closed))
}
