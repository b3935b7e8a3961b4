//! What an item of a call comes to on a record as it is cached, and which of its writes was stored. Pure.

use std::time::Duration;

use super::{
    cache::{Entry, Value},
    value::{Damage, Granted, Kept},
};
use crate::{
    clock::Mono,
    protocol::{
        self, Claim, Control, ControlAction, Controlled, Decision, Finish, Finished, JobName, JobSpec,
        LeaseEnd, Millis, Record, Registered, Renewal, Renewed, Status, StoreNow, Verdict, Write,
    },
    store::Stamped,
};

/// For how much of a lease its holder trusts it, counted from before it asked for it.
const TRUSTED: f64 = 0.85;

/// How the items of a call are decided.
#[derive(Debug)]
pub struct Rule<I, T> {
    pub job: fn(&I) -> &JobName,
    /// The pure function of the protocol.
    pub decide: fn(Option<&Record>, &I, StoreNow, LeaseEnd) -> Decision<T>,
    /// The length of the lease that it may grant, and until when a grant is of use, where that is known.
    pub lease: fn(&I) -> Option<(Duration, Millis)>,
    /// The answer of an item that deletes the record, damaged or not.
    pub deletes: fn(&I) -> Option<T>,
    /// Whether an item that happened may happen again.
    pub is_repeatable: bool,
}

pub const REGISTER: Rule<JobSpec, Registered> = Rule {
    job: |spec| &spec.job,
    decide: |record, spec, now, _| protocol::register(record, spec, now),
    lease: |_| None,
    deletes: |_| None,
    is_repeatable: true,
};

pub const CLAIM: Rule<Claim, Verdict> = Rule {
    job: |claim| &claim.job,
    decide: protocol::claim,
    lease: |claim| Some((claim.lease, claim.expires)),
    deletes: |_| None,
    is_repeatable: true,
};

pub const RENEW: Rule<Renewal, Renewed> = Rule {
    job: |renewal| &renewal.job,
    decide: |record, renewal, now, _| protocol::renew(record, renewal, now),
    lease: |renewal| Some((renewal.lease, Millis::MAX)),
    deletes: |_| None,
    is_repeatable: true,
};

pub const FINISH: Rule<Finish, Finished> = Rule {
    job: |finish| &finish.job,
    decide: |record, finish, now, _| protocol::finish(record, finish, now),
    lease: |_| None,
    deletes: |_| None,
    is_repeatable: true,
};

pub const CONTROL: Rule<Control, Controlled> = Rule {
    job: |control| &control.job,
    decide: |record, control, now, _| protocol::control(record, control, now),
    lease: |_| None,
    deletes: |control| (control.action == ControlAction::Forget).then_some(Controlled::Done),
    is_repeatable: false,
};

/// A decision that needs a write.
#[derive(Debug)]
pub struct Draft<T> {
    /// Names the write, so that it is known again; 0 for a deletion.
    pub id: u64,
    /// What it is written on top of.
    pub revision: u64,
    pub answer: Stamped<T>,
    pub kept: Option<Kept>,
    pub decided: Mono,
}

/// What a decision on the cached record comes to.
#[derive(Debug)]
pub enum Step<T> {
    Write(Box<Draft<T>>),
    /// Nothing to write; right if the cache is.
    Say(Stamped<T>),
}

/// When an item is decided, by the server's clock as it is known and by our own.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    pub now: StoreNow,
    pub decided: Mono,
}

/// Decides an item on what is cached of its job; `id` names the write that it may come to. A record that cannot be read
/// says why.
pub fn decide<I, T>(
    item: &I,
    rule: &Rule<I, T>,
    entry: &Entry<Kept>,
    lease_end: impl FnOnce(&Kept) -> LeaseEnd,
    Time { now, decided }: Time,
    id: u64,
) -> Result<Step<T>, Damage> {
    let revision = entry.revision;
    let write = |id, value, kept| {
        let answer = Stamped { value, now };
        Ok(Step::Write(Box::new(Draft { id, revision, answer, kept, decided })))
    };
    let before = match &entry.value {
        Value::None => None,
        Value::Some(kept) => Some(kept),
        Value::Damaged(damage) => {
            return (rule.deletes)(item).map_or(Err(damage.clone()), |value| write(0, value, None));
        }
    };
    let end = before.map_or(LeaseEnd::Live, lease_end);
    let decision = (rule.decide)(before.map(|kept| &kept.record), item, now, end);
    match decision.write {
        None => Ok(Step::Say(Stamped { value: decision.answer, now })),
        Some(Write::Delete) => write(0, decision.answer, None),
        Some(Write::Put { record, closed }) => {
            let granted = (rule.lease)(item).filter(|_| is_grant(before, &record)).map(|(lease, expires)| {
                let trusted = lease.mul_f64(TRUSTED);
                Granted { lease, void_after: now.plus(trusted).min(expires) }
            });
            let kept = Kept::following(before, *record, closed.as_ref(), granted, id);
            write(id, decision.answer, Some(kept))
        }
    }
}

/// Whether a lease begins or becomes longer. A skip leaves the one that is there alone.
fn is_grant(before: Option<&Kept>, after: &Record) -> bool {
    let lease = |record: &Record| (record.token, record.until);
    after.status == Status::Running && before.is_none_or(|before| lease(&before.record) != lease(after))
}

/// What became of the writes of an item that were sent without an answer.
#[derive(Debug)]
pub enum Fate<T> {
    /// This one was stored, and nothing since.
    Stored(Box<Draft<T>>),
    /// One may have been there before what is there now.
    Unknown,
    /// None was; each may still be on its way.
    Open,
}

/// Looks for the writes of an item in what the bucket holds now.
pub fn recognise<T>(drafts: &mut Vec<Box<Draft<T>>>, entry: &Entry<Kept>) -> Fate<T> {
    let is_this = |draft: &Draft<T>| match (&draft.kept, entry.value()) {
        (Some(_), Some(kept)) => kept.write == draft.id,
        (None, None) => entry.revision > draft.revision,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if let Some(place) = drafts.iter().position(|draft| is_this(draft)) {
        Fate::Stored(drafts.swap_remove(place))
    } else if drafts.iter().any(|draft| draft.revision != entry.revision) {
        Fate::Unknown
    } else {
        Fate::Open
    }
}
