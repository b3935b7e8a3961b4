use super::{
    Decision, Fingerprint, InstanceId, JobName, Millis, Nonce, Occurrence, Record, Status, StoreNow, Token,
};

/// A job that an instance brings along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// The job.
    pub job: JobName,
    /// Its schedule.
    pub schedule: Fingerprint,
    /// Who registers it.
    pub by: InstanceId,
    /// Put this schedule in force in place of another that no live instance announces.
    pub replace: Option<Replace>,
    /// The next occurrence on its schedule, on a store without announcements.
    pub next: Option<Millis>,
}

/// The change of a schedule in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replace {
    /// The schedule that it replaces; the change happens only while that one is in force.
    pub old: Fingerprint,
    /// Since when its schedule is waited for: the last store time at which the asker saw it in force, else its first `register`; or the
    /// earlier such time that another waiting instance told of.
    pub since: Millis,
}

/// The answer to a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// The job was new; nothing from before now will run.
    Created(Record),
    /// The schedule is in force.
    InForce(Record),
    /// Another schedule is in force, the record's.
    Stale(Record),
}

/// Decides a registration.
#[must_use]
pub fn register(record: Option<&Record>, spec: &JobSpec, now: StoreNow) -> Decision<Registered> {
    let Some(record) = record else {
        let new = new_record(spec, now);
        return Decision::put(Registered::Created(new.clone()), new, None);
    };
    if record.schedule == spec.schedule {
        return Decision::keep(Registered::InForce(record.clone()));
    }
    match spec.replace {
        Some(replace) if replace.old == record.schedule => {
            let decided = record.decided.max(replace.since.min(now.millis()));
            let next = Record { schedule: spec.schedule, decided, next: spec.next, ..record.clone() };
            Decision::put(Registered::InForce(next.clone()), next, None)
        }
        Some(_) | None => Decision::keep(Registered::Stale(record.clone())),
    }
}

fn new_record(spec: &JobSpec, now: StoreNow) -> Record {
    Record {
        decided: now.millis(),
        occurrence: Occurrence::Planned(now.millis()),
        status: Status::Idle,
        attempt: 0,
        crashes: 0,
        errors: 0,
        started: now.millis(),
        until: now.millis(),
        token: Token(0),
        holder: spec.by.clone(),
        nonce: Nonce::default(),
        paused: false,
        cancel: None,
        manual_asked: 0,
        manual_done: 0,
        schedule: spec.schedule,
        next: spec.next,
        runs: 0,
    }
}

/// What an instance tells the others of itself, every 20 s, and every 10 s while a schedule of its own is not in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announcement {
    /// It is there.
    Present {
        /// Its id.
        instance: InstanceId,
        /// The jobs it has, with their schedules; sorted by job.
        schedules: Vec<(JobName, Fingerprint)>,
        /// The version of its time zone rules.
        zones: String,
        /// Its jobs that another schedule is in force for.
        contested: Vec<Contested>,
    },
    /// It leaves.
    Withdrawn {
        /// Its id.
        instance: InstanceId,
    },
}

/// A job whose schedule in force is another than that of the instance that tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contested {
    /// The schedule in force: does a live instance still announce it?
    pub in_force: Fingerprint,
    /// The instance's own.
    pub own: Waiting,
}

/// A schedule that is to come in force.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// The job.
    pub job: JobName,
    /// Its schedule.
    pub schedule: Fingerprint,
    /// Since when an instance waits for it; another one that waits as well goes on from there.
    pub since: Millis,
}

/// Each schedule once, with the earliest time since when it is waited for; sorted.
#[must_use]
pub fn earliest(waiting: impl IntoIterator<Item = Waiting>) -> Vec<Waiting> {
    let mut waiting: Vec<_> = waiting.into_iter().collect();
    waiting.sort_unstable();
    waiting.dedup_by(|later, first| (&later.job, later.schedule) == (&first.job, first.schedule));
    waiting
}

/// Who else is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// Whether the store already had the caller's own announcement, not older than the age limit, before this call.
    pub known: bool,
    /// The live instances, the caller's own included; sorted.
    pub instances: Vec<InstanceId>,
    /// Those of the contested schedules in force that a live instance other than the caller announces.
    pub announced: Vec<(JobName, Fingerprint)>,
    /// What live instances other than the caller wait for, as [`earliest`] gives it; told to a caller alone whose own jobs are
    /// contested.
    pub waiting: Vec<Waiting>,
    /// The versions of time zone rules that live instances have; sorted, each once.
    pub zones: Vec<String>,
}
