//! What the state of a job's queue means, and what is known of a record that a run of somebody else keeps from us.
//! Pure: no connection, no clock.

use std::time::Duration;

use crate::{
    clock::Mono,
    protocol::{Fingerprint, InstanceId, Millis, Nonce, Occurrence, Record, Status, StoreNow, Token},
};

/// After this long at least a token that nobody has is taken for lost.
const LOST: Duration = Duration::from_secs(30);
/// What a broker may be late with.
const SLACK: Duration = Duration::from_secs(5);

/// Of looks further apart nobody knows what was in between.
const APART: Duration = Duration::from_secs(15);

/// Looks for a token that were all in vain, on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    first: Mono,
    last: Mono,
}

impl Missing {
    /// All that were in vain between two times.
    pub fn between(first: Mono, last: Mono) -> Self {
        Self { first, last }
    }

    /// One more look in vain.
    pub fn again(before: Option<Self>, now: Mono) -> Self {
        let going_on = before.filter(|before| now.since(before.last) <= APART);
        Self { first: going_on.map_or(now, |before| before.first), last: now }
    }

    /// Whether it has gone on for too long: a process that was frozen with the token in its hands gives it back by its
    /// heartbeat, of which three may pass.
    pub fn is_lost(self, heartbeat: Duration) -> bool {
        self.last.since(self.first) >= LOST.max(3 * heartbeat + SLACK)
    }
}

/// A record that cannot be read since a run of another handle has the token.
#[derive(Debug, Clone)]
pub struct Unseen {
    /// As it was last seen.
    pub seen: Option<Record>,
    /// The schedule that this handle registered last.
    pub registered: Option<Fingerprint>,
    /// The newest occurrence that was answered as decided.
    pub skipped: Millis,
    /// Whether this handle had the token and has not given it back: its channel or its connection ended.
    pub torn: bool,
    pub heartbeat: Duration,
}

impl Unseen {
    /// What can be told of it: as long as the lease last seen is not over, that; then, that somebody has a newer one.
    ///
    /// A schedule that was never seen is taken for the one that is asked with, or else was registered: whoever has another one
    /// in force is found out by a claim when the run is over, and to say so earlier would be to guess.
    pub fn record(&self, now: StoreNow, asked: Option<Fingerprint>) -> Record {
        let own = asked.or(self.registered).unwrap_or(Fingerprint(0));
        let seen = self.seen.clone().unwrap_or_else(|| blank(own));
        let decided = seen.decided.max(self.skipped);
        if self.was_seen_running(now) {
            return Record { decided, ..seen };
        }
        Record {
            decided,
            status: Status::Running,
            attempt: 1,
            crashes: 0,
            errors: 0,
            started: now.millis(),
            until: now.plus(2 * self.heartbeat),
            token: Token(seen.token.0.saturating_add(1)),
            holder: unknown(),
            cancel: None,
            ..seen
        }
    }

    /// Whether the run that was last seen may go on: its lease is not over.
    pub fn was_seen_running(&self, now: StoreNow) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.status == Status::Running && seen.until > now.millis())
    }

    /// Whether it may still be the lease with this token that keeps the record: the broker may not have noticed yet that the
    /// connection of before is gone.
    pub fn may_be(&self, token: Token, now: StoreNow) -> bool {
        self.torn
            && self.seen.as_ref().is_some_and(|seen| {
                let end = seen.until.plus(self.heartbeat + SLACK);
                seen.token == token && seen.status == Status::Running && now.millis() <= end
            })
    }
}

fn unknown() -> InstanceId {
    InstanceId::new("unknown").expect("a valid id")
}

fn blank(schedule: Fingerprint) -> Record {
    Record {
        decided: Millis(0),
        occurrence: Occurrence::Planned(Millis(0)),
        status: Status::Running,
        attempt: 1,
        crashes: 0,
        errors: 0,
        started: Millis(0),
        until: Millis(0),
        token: Token(0),
        holder: unknown(),
        nonce: Nonce::default(),
        paused: false,
        cancel: None,
        manual_asked: 0,
        manual_done: 0,
        schedule,
        next: None,
        runs: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H: Duration = Duration::from_secs(15);

    fn unseen(seen: Option<Record>) -> Unseen {
        Unseen { seen, registered: Some(Fingerprint(4)), skipped: Millis(7), torn: true, heartbeat: H }
    }

    fn running(token: u64, until: i64) -> Record {
        Record { token: Token(token), until: Millis(until), ..blank(Fingerprint(3)) }
    }

    #[test]
    fn a_token_is_lost_once_no_frozen_process_can_have_it_any_more() {
        let second = Duration::from_secs(1);
        let missing = |last| Missing { first: Mono(0), last: Mono(last) };
        assert!(!missing(29_999_999).is_lost(second));
        assert!(missing(30_000_000).is_lost(second));
        assert!(!missing(49_999_999).is_lost(H));
        assert!(missing(50_000_000).is_lost(H));
    }

    #[test]
    fn a_token_is_missing_as_long_as_looks_close_to_each_other_find_it_nowhere() {
        let after = |seconds: &[u64]| {
            let looks = seconds.iter().map(|second| Mono(second * 1_000_000));
            looks.fold(None, |before, now| Some(Missing::again(before, now))).unwrap()
        };
        assert!(after(&[0, 10, 20, 30]).is_lost(Duration::from_secs(1)));
        assert!(!after(&[0, 30]).is_lost(Duration::from_secs(1)), "it may have been there in between");
        assert!(!after(&[0, 10, 26, 36]).is_lost(Duration::from_secs(1)));
    }

    #[test]
    fn a_lease_that_goes_on_is_told_as_it_was_seen() {
        let told = unseen(Some(running(5, 100))).record(StoreNow(99_999), Some(Fingerprint(1)));
        assert_eq!(told, Record { decided: Millis(7), ..running(5, 100) });
    }

    #[test]
    fn a_lease_that_must_be_over_has_a_newer_one_behind_it() {
        for seen in [running(5, 100), Record { status: Status::Succeeded, ..running(5, 900) }] {
            let told = unseen(Some(seen)).record(StoreNow(100_000), Some(Fingerprint(1)));
            assert_eq!((told.token, told.status, told.until), (Token(6), Status::Running, Millis(30_100)));
            assert_eq!((told.schedule, told.holder.as_str()), (Fingerprint(3), "unknown"));
        }
    }

    #[test]
    fn of_a_job_never_seen_only_the_run_is_told() {
        let told = unseen(None).record(StoreNow(0), Some(Fingerprint(1)));
        assert_eq!((told.token, told.status, told.schedule), (Token(1), Status::Running, Fingerprint(1)));
        // No other schedule than the own one is made up.
        assert_eq!(unseen(None).record(StoreNow(0), None).schedule, Fingerprint(4));
    }

    #[test]
    fn an_own_lease_may_be_kept_by_the_connection_of_before_for_three_heartbeats() {
        let own = unseen(Some(running(5, 30_000)));
        assert!(own.may_be(Token(5), StoreNow(50_000_000)));
        assert!(!own.may_be(Token(5), StoreNow(50_001_000)));
        assert!(!own.may_be(Token(4), StoreNow(0)));
        assert!(!unseen(None).may_be(Token(5), StoreNow(0)));
        let given_back = Unseen { torn: false, ..own };
        assert!(!given_back.may_be(Token(5), StoreNow(0)));
    }
}
