//! Whether the store answers, told once per change.

use std::time::Duration;

use super::{Engine, Report};
use crate::{
    clock::Mono,
    store::{StoreError, StoreErrorKind},
};

/// How many time-outs in a row make an outage: one reply may always be lost.
const TIMEOUTS: u32 = 2;

/// After a claim or renewal without a reply, how much longer than the longest lease nothing of the kind must fail.
const QUIET: Duration = Duration::from_secs(30);

/// What a call needs of the store. On some stores reads go on while writes are locked; on some a lease needs more than
/// other writes, such as replicas that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    Claim,
    Renew,
}

/// What the answers to a call prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proven {
    /// Something was written.
    pub(super) wrote: bool,
    /// A lease was granted or made longer, or it was said what became of one that had no reply.
    pub(super) leased: bool,
}

/// An outage begins when calls of a kind fail, and is over when all kinds go well again.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// How many failed in a row.
    reads: u32,
    writes: u32,
    /// Those without a reply; one that surely did not happen counts as any write.
    claims: u32,
    renewals: u32,
    last_without_reply: Mono,
    /// How long no lease must be asked for in vain before other writes speak for leases as well.
    quiet: Duration,
    since: Option<Mono>,
    told: bool,
    /// Not of leases alone.
    is_general: bool,
}

impl Outage {
    pub(super) fn new(longest_lease: Duration) -> Self {
        Self { quiet: longest_lease.saturating_add(QUIET), ..Self::default() }
    }

    /// Takes in a call that failed; says whether that is news.
    fn failed(&mut self, access: Access, error: &StoreError, now: Mono) -> bool {
        let is_unknown = error.kind == StoreErrorKind::Unknown;
        let (in_a_row, of_leases) = match access {
            Access::Claim if is_unknown => (&mut self.claims, true),
            Access::Renew if is_unknown => (&mut self.renewals, true),
            Access::Read => (&mut self.reads, false),
            Access::Write | Access::Claim | Access::Renew => (&mut self.writes, false),
        };
        *in_a_row = in_a_row.saturating_add(1);
        let certain = match error.kind {
            StoreErrorKind::Unknown => *in_a_row >= TIMEOUTS,
            StoreErrorKind::Unavailable => true,
            StoreErrorKind::Misconfigured => false,
        };
        if of_leases {
            self.last_without_reply = now;
        } else {
            self.is_general |= certain;
        }
        self.since.get_or_insert(now);
        certain && !std::mem::replace(&mut self.told, true)
    }

    /// Takes in a call that was answered; how long the outage was, if it was told of one and this is its end.
    fn answered(&mut self, access: Access, proven: Proven, sent: Mono, now: Mono) -> Option<Duration> {
        if proven.wrote {
            self.writes = 0;
            // What failed with all the rest is well with it; what failed by itself may go on failing.
            if self.is_general || sent >= self.last_without_reply.plus(self.quiet) {
                (self.claims, self.renewals) = (0, 0);
            }
        } else {
            self.reads = 0;
        }
        match access {
            Access::Claim if proven.leased => self.claims = 0,
            Access::Renew if proven.leased => self.renewals = 0,
            Access::Read | Access::Write | Access::Claim | Access::Renew => {}
        }
        if self.reads > 0 || self.writes > 0 || self.claims > 0 || self.renewals > 0 {
            return None;
        }
        self.is_general = false;
        let since = self.since.take()?;
        std::mem::take(&mut self.told).then(|| now.since(since))
    }

    /// Whether a write that goes well would be its end, as far as it is known.
    fn ends_with_a_write(&self) -> bool {
        self.told && (self.writes > 0 || self.is_general)
    }
}

impl Engine {
    /// Takes in that a call sent at `sent` was answered, with what its answers prove.
    pub(super) fn call_answered(&mut self, access: Access, proven: Proven, sent: Mono, now: Mono) {
        if let Some(after) = self.outage.answered(access, proven, sent, now) {
            self.report(Report::StoreBack { after });
        } else if self.outage.ends_with_a_write() && !proven.wrote {
            self.try_to_write(now);
        }
    }

    /// Takes in that a call failed.
    pub(super) fn call_failed(&mut self, access: Access, error: &StoreError, now: Mono) {
        if self.outage.failed(access, error, now) {
            self.report(Report::StoreUnavailable(error.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(outage: &mut Outage, access: Access, now: u64) -> Option<Duration> {
        let proven = Proven { wrote: access != Access::Read, leased: access != Access::Read };
        outage.answered(access, proven, Mono(now), Mono(now))
    }

    #[test]
    fn one_time_out_is_no_outage_two_are_and_it_is_told_once() {
        let mut outage = Outage::default();
        let error = StoreError::unknown("no reply");
        assert!(!outage.failed(Access::Write, &error, Mono(1_000_000)));
        assert!(outage.failed(Access::Write, &error, Mono(2_000_000)));
        assert!(!outage.failed(Access::Write, &error, Mono(3_000_000)));
        assert_eq!(answered(&mut outage, Access::Write, 4_000_000), Some(Duration::from_secs(3)));
        assert_eq!(answered(&mut outage, Access::Write, 5_000_000), None);
    }

    #[test]
    fn an_outage_ends_when_reads_and_writes_go_well_again() {
        let mut outage = Outage::default();
        let error = StoreError::unavailable("locked");
        assert!(outage.failed(Access::Write, &error, Mono(1_000_000)));
        assert_eq!(answered(&mut outage, Access::Read, 2_000_000), None);
        assert!(!outage.failed(Access::Write, &error, Mono(3_000_000)));
        assert!(!outage.failed(Access::Read, &error, Mono(4_000_000)));
        assert_eq!(answered(&mut outage, Access::Write, 5_000_000), None);
        assert_eq!(answered(&mut outage, Access::Read, 6_000_000), Some(Duration::from_secs(5)));
    }

    #[test]
    fn claims_that_fail_alone_are_well_when_a_claim_is_or_none_failed_for_long() {
        let error = StoreError::unknown("no replica has it");
        for (access, at, over) in [
            (Access::Read, 39_999_999, false),
            (Access::Write, 39_999_999, false),
            (Access::Renew, 39_999_999, false),
            (Access::Claim, 2_000_001, true),
            (Access::Write, 42_000_000, true),
        ] {
            let mut outage = Outage::new(Duration::from_secs(10));
            assert!(!outage.failed(Access::Claim, &error, Mono(1_000_000)));
            assert_eq!(answered(&mut outage, Access::Write, 1_500_000), None);
            assert!(outage.failed(Access::Claim, &error, Mono(2_000_000)));
            assert_eq!(answered(&mut outage, access, at).is_some(), over, "{access:?} at {at}");
        }
    }

    #[test]
    fn claims_that_failed_with_all_the_rest_are_well_with_it() {
        let error = StoreError::unknown("no reply");
        let mut outage = Outage::new(Duration::from_secs(10));
        for access in [Access::Claim, Access::Write, Access::Claim, Access::Write] {
            outage.failed(access, &error, Mono(1_000_000));
        }
        assert_eq!(answered(&mut outage, Access::Write, 2_000_000), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_lost_reply_to_a_write_and_one_to_a_read_are_no_outage() {
        let mut outage = Outage::default();
        let error = StoreError::unknown("no reply");
        assert!(!outage.failed(Access::Write, &error, Mono(1_000_000)));
        assert!(!outage.failed(Access::Read, &error, Mono(2_000_000)));
    }

    #[test]
    fn a_refused_connection_is_an_outage_at_once() {
        assert!(Outage::default().failed(Access::Read, &StoreError::unavailable("refused"), Mono(0)));
    }
}
