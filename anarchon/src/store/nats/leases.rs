//! Whether a lease is over, by our own clock: seen unchanged for as long as it lasts.

use std::{collections::HashMap, time::Duration};

use super::{clock::Own, value::Kept};
use crate::{
    clock::Mono,
    protocol::{JobName, LeaseEnd, Millis, Record, Status, StoreNow, Token},
};

/// What is added where the server's clock may have been set, or where two servers' clocks are compared.
const SLACK: Duration = Duration::from_secs(2);

/// By how much an estimate of the server's clock may be wrong where it is compared with what the server stored.
const DOUBT: Duration = Duration::from_millis(250);

/// The leases of all jobs, each timed since it was first seen as it is.
///
/// Needs no common clock: the holder began to trust its lease before the server stored it, and so before anybody saw it. That
/// holds across connections, as no two renewals of a lease have the same end.
#[derive(Debug, Default)]
pub struct Leases(HashMap<JobName, Seen>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    token: Token,
    until: Millis,
    since: Mono,
    /// When the server stored it, in microseconds of its clock, as far as it was told.
    stored: Option<i64>,
}

impl Leases {
    /// Takes in what a record was at `at`. Our own writes count from before they were sent.
    pub fn see(&mut self, job: &JobName, record: &Record, at: Mono, stored: Option<i64>) {
        if record.status != Status::Running {
            self.0.remove(job);
            return;
        }
        let new = Seen { token: record.token, until: record.until, since: at, stored };
        match self.0.get_mut(job) {
            Some(seen) if (seen.token, seen.until) == (new.token, new.until) => {
                seen.since = seen.since.min(at);
                seen.stored = seen.stored.or(stored);
            }
            Some(seen) => *seen = new,
            None => {
                self.0.insert(job.clone(), new);
            }
        }
    }

    pub fn forget(&mut self, job: &JobName) {
        self.0.remove(job);
    }

    /// Whether the lease of a running record is over.
    pub fn end(&self, job: &JobName, kept: &Kept, now: StoreNow, at: Mono, own: Option<Own>) -> LeaseEnd {
        let (record, length) = (&kept.record, kept.lease);
        let same = |seen: &&Seen| (seen.token, seen.until) == (record.token, record.until);
        let Some(seen) = self.0.get(job).filter(same) else { return LeaseEnd::Live };
        let watched = at.since(seen.since);
        // Its end by the server's clock counts as well, so that all clocks agree on the order of things; unless that clock
        // was set back.
        let observed =
            watched >= length && (now.millis() >= record.until || watched >= length.saturating_add(SLACK));
        // Who has just started has not watched it yet. Our message, sent after we saw it, was stored so much later.
        let stored_long_ago = match (own, seen.stored) {
            (Some(own), Some(stored)) if own.sent > seen.since => {
                let age = u64::try_from(own.stored.saturating_sub(stored)).unwrap_or(0);
                Duration::from_micros(age) > length.saturating_add(SLACK)
            }
            (Some(_) | None, _) => false,
        };
        // What lay in the socket of a frozen server is stored when it wakes: whoever sent it has given up long before.
        let is_void = match (kept.void_after, seen.stored) {
            (Some(after), Some(stored)) => StoreNow(stored).millis() > after.plus(DOUBT),
            (Some(_) | None, _) => false,
        };
        if observed || stored_long_ago || is_void { LeaseEnd::Over } else { LeaseEnd::Live }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const L: Duration = Duration::from_secs(30);

    fn job() -> JobName {
        JobName::new("job").unwrap()
    }

    fn running(token: u64, until_s: i64) -> Record {
        Record {
            status: Status::Running,
            token: Token(token),
            until: Millis(until_s * 1000),
            ..crate::store::json::tests::record()
        }
    }

    fn kept(record: &Record) -> Kept {
        Kept::bare(record.clone(), L)
    }

    fn store(seconds: i64) -> StoreNow {
        StoreNow(seconds * 1_000_000)
    }

    #[test]
    fn a_lease_seen_unchanged_for_its_length_is_over_and_not_before() {
        let mut leases = Leases::default();
        let record = running(1, 30);
        leases.see(&job(), &record, Mono(5 * SECOND), None);
        let end = |at| leases.end(&job(), &kept(&record), store(40), Mono(at), None);
        assert_eq!(end(35 * SECOND - 1), LeaseEnd::Live);
        assert_eq!(end(35 * SECOND), LeaseEnd::Over);
    }

    #[test]
    fn a_renewal_begins_the_wait_anew_and_a_skip_does_not() {
        let mut leases = Leases::default();
        leases.see(&job(), &running(1, 30), Mono(0), None);
        let skipped = Record { decided: Millis(20_000), ..running(1, 30) };
        leases.see(&job(), &skipped, Mono(20 * SECOND), None);
        assert_eq!(leases.end(&job(), &kept(&skipped), store(30), Mono(30 * SECOND), None), LeaseEnd::Over);
        let renewed = running(1, 50);
        assert_eq!(
            leases.end(&job(), &kept(&renewed), store(99), Mono(99 * SECOND), None),
            LeaseEnd::Live,
            "not the lease that was seen"
        );
        leases.see(&job(), &renewed, Mono(20 * SECOND), None);
        assert_eq!(leases.end(&job(), &kept(&renewed), store(99), Mono(49 * SECOND), None), LeaseEnd::Live);
        assert_eq!(leases.end(&job(), &kept(&renewed), store(99), Mono(50 * SECOND), None), LeaseEnd::Over);
    }

    #[test]
    fn a_server_clock_that_was_set_back_delays_the_end_by_two_seconds_and_no_more() {
        let mut leases = Leases::default();
        let record = running(1, 3630);
        leases.see(&job(), &record, Mono(0), None);
        let end = |at| leases.end(&job(), &kept(&record), store(0), Mono(at), None);
        assert_eq!(end(32 * SECOND - 1), LeaseEnd::Live);
        assert_eq!(end(32 * SECOND), LeaseEnd::Over);
    }

    #[test]
    fn after_a_start_an_old_lease_is_over_by_a_message_of_our_own_sent_after_it_was_read() {
        let mut leases = Leases::default();
        let record = running(1, 30);
        leases.see(&job(), &record, Mono(10), Some(0));
        let end = |sent, stored| {
            leases.end(&job(), &kept(&record), store(40), Mono(20), Some(Own { sent: Mono(sent), stored }))
        };
        assert_eq!(end(11, 32_000_001), LeaseEnd::Over);
        assert_eq!(end(11, 32_000_000), LeaseEnd::Live);
        assert_eq!(end(10, 99_000_000), LeaseEnd::Live, "it was sent before");
        assert_eq!(end(11, -99_000_000), LeaseEnd::Live);
    }

    #[test]
    fn an_award_or_renewal_that_was_stored_when_nobody_trusted_it_any_more_is_void() {
        let mut leases = Leases::default();
        let record = running(1, 30);
        let mut late = kept(&record);
        late.void_after = Some(Millis(15_000));
        let end = |leases: &Leases, kept| leases.end(&job(), kept, store(16), Mono(1), None);
        leases.see(&job(), &record, Mono(0), None);
        assert_eq!(end(&leases, &late), LeaseEnd::Live, "nobody knows when it was stored");
        leases.see(&job(), &record, Mono(0), Some(15_250_999));
        assert_eq!(end(&leases, &late), LeaseEnd::Live, "within what a clock may be wrong by");
        let mut leases = Leases::default();
        leases.see(&job(), &record, Mono(0), Some(15_251_000));
        assert_eq!(end(&leases, &late), LeaseEnd::Over);
        assert_eq!(end(&leases, &kept(&record)), LeaseEnd::Live, "something else was written on top");
    }

    #[test]
    fn what_does_not_run_has_no_lease() {
        let mut leases = Leases::default();
        leases.see(&job(), &running(1, 30), Mono(0), None);
        leases.see(&job(), &Record { status: Status::Waiting, ..running(1, 30) }, Mono(1), None);
        leases.see(&job(), &running(1, 30), Mono(40 * SECOND), None);
        let end = |leases: &Leases, at| leases.end(&job(), &kept(&running(1, 30)), store(99), Mono(at), None);
        assert_eq!(end(&leases, 69 * SECOND), LeaseEnd::Live);
        assert_eq!(end(&leases, 70 * SECOND), LeaseEnd::Over);
        leases.forget(&job());
        assert_eq!(end(&leases, 99 * SECOND), LeaseEnd::Live);
    }
}
