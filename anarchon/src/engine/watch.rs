//! A lease or a retry of somebody that this instance waits for.

use std::time::Duration;

use crate::{
    clock::Mono,
    policy::SHORTEST_LEASE,
    protocol::{InstanceId, Millis, Occurrence, Record, Status, StoreNow, Token, What},
};

/// What each place in the order of instances adds to the wait.
const PER_RANK: Duration = Duration::from_millis(50);
/// What chance adds at most.
const SPREAD: Duration = Duration::from_millis(30);
/// The longest lease that a watcher allows for when it knows only what is left of it.
const LONGEST_OBSERVED: Duration = Duration::from_secs(900);

/// The wait before a takeover, so that not all ask at once.
pub(super) fn courtesy(rank: u32, random: f64) -> Duration {
    (PER_RANK * rank.min(200)) + SPREAD.mul_f64(random.clamp(0.0, 1.0))
}

/// One watched record.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    pub(super) token: Token,
    pub(super) until: Millis,
    pub(super) holder: InstanceId,
    pub(super) occurrence: Occurrence,
    /// Set when the store refused a takeover that seemed due.
    pub(super) not_before: Mono,
    /// It was over before this instance heard of it.
    pub(super) is_found_late: bool,
    kind: Kind,
    courtesy: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A lease; `over_at` is when it is over by our monotonic clock, if `until` has not changed by then.
    Running { over_at: Mono },
    /// A retry or release.
    Waiting,
}

impl Watched {
    /// Watches an unfinished record that a reply showed; `None` for a finished one.
    ///
    /// `lease` is what this instance asks for. The holder may have asked for more (another version of the program), and
    /// then renews more seldom than `lease`.
    pub(super) fn new(
        record: &Record,
        received: Mono,
        store: StoreNow,
        lease: Duration,
        courtesy: Duration,
    ) -> Option<Self> {
        let kind = match record.status {
            Status::Running => Kind::Running { over_at: received.plus(longest_lease(record, store, lease)) },
            Status::Waiting => Kind::Waiting,
            Status::Idle | Status::Succeeded | Status::Failed | Status::Cancelled | Status::Lost => {
                return None;
            }
        };
        Some(Self {
            token: record.token,
            until: record.until,
            holder: record.holder.clone(),
            occurrence: record.occurrence,
            not_before: Mono(0),
            is_found_late: false,
            kind,
            courtesy,
        })
    }

    /// Watches an own lease that ended without a word from the store.
    pub(super) fn own(
        token: Token,
        until: Millis,
        holder: InstanceId,
        occurrence: Occurrence,
        over_at: Mono,
        courtesy: Duration,
    ) -> Self {
        Self {
            token,
            until,
            holder,
            occurrence,
            not_before: Mono(0),
            is_found_late: false,
            kind: Kind::Running { over_at },
            courtesy,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.kind != Kind::Waiting
    }

    /// Whether it is of the same lease or retry: nothing happened in between.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.token, self.until, self.is_running()) == (other.token, other.until, other.is_running())
    }

    /// Whether it was surely unfinished at an instant of the store's: nobody can have ended it since it was looked at.
    ///
    /// A lease that goes on is renewed long before it ends, and read once a second; a retry that waits cannot have begun.
    pub(super) fn is_unfinished_at(&self, store: Millis) -> bool {
        match self.kind {
            Kind::Running { .. } => self.until <= store,
            Kind::Waiting => self.until > store,
        }
    }

    /// When to claim by the store's clock.
    pub(super) fn by_store(&self) -> StoreNow {
        let micros = i64::try_from(self.courtesy.as_micros()).unwrap_or(i64::MAX);
        StoreNow(self.until.0.saturating_mul(1000).saturating_add(micros))
    }

    /// When to claim whatever the clocks say.
    pub(super) fn by_own_clock(&self) -> Option<Mono> {
        match self.kind {
            Kind::Running { over_at } => Some(over_at.plus(self.courtesy)),
            Kind::Waiting => None,
        }
    }

    /// The claim that is due by either clock; `reached` is what the store's clock has surely reached.
    pub(super) fn takeover(&self, now: Mono, reached: Option<StoreNow>) -> Option<What> {
        let observed = self.by_own_clock().is_some_and(|at| at <= now).then_some(self.until);
        let by_store = reached.is_some_and(|reached| reached >= self.by_store());
        let due = now >= self.not_before && (by_store || observed.is_some());
        due.then_some(What::Takeover { token: self.token, observed })
    }
}

/// How long the lease of a running record can be, seen from outside: at least ours, at most what is left of it, and at
/// most what its end is after its start. A store clock that was set back makes the former too long, and after a
/// renewal the latter too short, which shows.
fn longest_lease(record: &Record, store: StoreNow, ours: Duration) -> Duration {
    let left = record.until.since(store.millis());
    let whole = record.until.since(record.started);
    let longest = if whole >= SHORTEST_LEASE { left.min(whole) } else { left };
    longest.min(LONGEST_OBSERVED).max(ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Fingerprint, JobSpec, Registered, register};

    const L: Duration = Duration::from_secs(30);

    fn record(status: Status, until: i64) -> Record {
        let spec = crate::protocol::JobName::new("job").unwrap();
        let by = InstanceId::new("other").unwrap();
        let spec = JobSpec { job: spec, schedule: Fingerprint(1), by, replace: None, next: None };
        match register(None, &spec, StoreNow(0)).answer {
            Registered::Created(r) => {
                Record { status, until: Millis(until), started: Millis(until), token: Token(7), ..r }
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn watch(record: &Record, received: u64, store: i64) -> Option<Watched> {
        Watched::new(record, Mono(received), StoreNow(store), L, Duration::from_millis(50))
    }

    #[test]
    fn a_finished_record_is_not_watched() {
        for status in [Status::Idle, Status::Succeeded, Status::Failed, Status::Cancelled, Status::Lost] {
            assert!(watch(&record(status, 0), 0, 0).is_none());
        }
    }

    #[test]
    fn a_lease_is_claimed_when_the_store_has_reached_its_end() {
        let watched = watch(&record(Status::Running, 30_000), 0, 0).unwrap();
        assert_eq!(watched.takeover(Mono(5), Some(StoreNow(30_049_999))), None);
        let claim = What::Takeover { token: Token(7), observed: None };
        assert_eq!(watched.takeover(Mono(5), Some(StoreNow(30_050_000))), Some(claim));
    }

    #[test]
    fn a_lease_unchanged_for_its_length_is_over_whatever_the_store_says() {
        // The store's clock was set back by an hour after the lease was seen.
        let watched = watch(&record(Status::Running, 30_000), 1_000_000, 0).unwrap();
        assert_eq!(watched.takeover(Mono(31_049_999), Some(StoreNow(-3_600_000_000))), None);
        let claim = What::Takeover { token: Token(7), observed: Some(Millis(30_000)) };
        assert_eq!(watched.takeover(Mono(31_050_000), Some(StoreNow(-3_600_000_000))), Some(claim));
    }

    #[test]
    fn a_longer_lease_of_another_version_is_not_over_after_ours() {
        let watched = watch(&record(Status::Running, 300_000), 0, 0).unwrap();
        assert_eq!(watched.takeover(Mono(299_000_000), None), None);
        assert!(watched.takeover(Mono(300_050_000), None).is_some());
    }

    #[test]
    fn a_dead_lease_seen_only_after_the_clock_was_set_back_is_over_after_a_quarter_of_an_hour() {
        let watched = watch(&record(Status::Running, 3_600_000), 0, 0).unwrap();
        assert!(watched.takeover(Mono(900_050_000), None).is_some());
    }

    #[test]
    fn a_dead_lease_that_was_never_renewed_is_over_after_its_own_length() {
        let record = Record { started: Millis(3_555_000), ..record(Status::Running, 3_600_000) };
        let watched = watch(&record, 0, 0).unwrap();
        assert_eq!(watched.takeover(Mono(45_049_999), None), None);
        assert!(watched.takeover(Mono(45_050_000), None).is_some());
    }

    #[test]
    fn a_retry_is_never_observed() {
        let watched = watch(&record(Status::Waiting, 30_000), 0, 0).unwrap();
        assert_eq!(watched.takeover(Mono(u64::MAX), Some(StoreNow(0))), None);
    }
}
