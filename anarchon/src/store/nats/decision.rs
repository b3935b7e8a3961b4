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
            let granted = match before {
                _ if record.status != Status::Running => None,
                Some(before) if is_same_lease(&before.record, &record) => {
                    (end == LeaseEnd::Over).then(|| still_over(before))
                }
                Some(_) | None => (rule.lease)(item).map(|(lease, expires)| {
                    let trusted = lease.mul_f64(TRUSTED);
                    Granted { lease, void_after: now.plus(trusted).min(expires) }
                }),
            };
            let kept = Kept::following(before, *record, closed.as_ref(), granted, id);
            write(id, decision.answer, Some(kept))
        }
    }
}

/// Whether a lease stays as it is: a skip, an order and a change of schedule leave it alone.
fn is_same_lease(before: &Record, after: &Record) -> bool {
    (before.token, before.until) == (after.token, after.until)
}

/// A lease that is over, under an order or a change of schedule: whenever that is stored, the lease is void. When the lease
/// itself was stored, by which its own end is told, nobody can read any more then.
fn still_over(before: &Kept) -> Granted {
    Granted { lease: before.lease, void_after: Millis(0) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::nats::leases::Leases;

    const L: Duration = Duration::from_secs(30);
    const NOW: StoreNow = StoreNow(50_000_000);

    /// What pausing a job comes to, whose run has this lease.
    fn paused(before: Kept, end: LeaseEnd) -> Kept {
        let control = Control { job: JobName::new("job").unwrap(), action: ControlAction::Pause };
        let entry = Entry { revision: 7, value: Value::Some(before) };
        let time = Time { now: NOW, decided: Mono(0) };
        match decide(&control, &CONTROL, &entry, |_| end, time, 1).unwrap() {
            Step::Write(draft) => draft.kept.unwrap(),
            Step::Say(said) => panic!("{said:?}"),
        }
    }

    fn running() -> Kept {
        let record =
            Record { status: Status::Running, until: Millis(60_000), ..crate::store::json::tests::record() };
        let mut kept = Kept::bare(record, L);
        kept.void_after = Some(Millis(25_000));
        kept
    }

    #[test]
    fn an_order_on_top_of_a_lease_that_is_over_does_not_make_it_count_again() {
        let after = paused(running(), LeaseEnd::Over);
        assert!(after.record.paused);
        assert_eq!((after.record.until, after.lease), (running().record.until, L));
        // Whoever sees it for the first time.
        let (mut leases, job) = (Leases::default(), JobName::new("job").unwrap());
        leases.see(&job, &after.record, Mono(0), Some(NOW.0));
        assert_eq!(leases.end(&job, &after, NOW, Mono(1), None), LeaseEnd::Over);
    }

    #[test]
    fn an_order_on_top_of_a_live_lease_says_nothing_of_its_end() {
        assert_eq!(paused(running(), LeaseEnd::Live).void_after, None);
    }
}
