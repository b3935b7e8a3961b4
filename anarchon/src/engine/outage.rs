//! Whether the store answers, told once per change.

use std::time::Duration;

use super::{Engine, Report};
use crate::{
    clock::Mono,
    store::{StoreError, StoreErrorKind},
};

/// How many time-outs in a row make an outage: one reply may always be lost.
const TIMEOUTS: u32 = 2;

/// What a call needs of the store, or what its answers prove: on some stores reads go on while writes are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// An outage begins when calls of either kind fail, and is over when both go well again.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// How many failed in a row.
    reads: u32,
    writes: u32,
    since: Option<Mono>,
    told: bool,
}

impl Outage {
    /// Takes in a call that failed; says whether that is news.
    fn failed(&mut self, access: Access, error: &StoreError, now: Mono) -> bool {
        let in_a_row = match access {
            Access::Read => &mut self.reads,
            Access::Write => &mut self.writes,
        };
        *in_a_row = in_a_row.saturating_add(1);
        self.since.get_or_insert(now);
        let certain = match error.kind {
            StoreErrorKind::Unknown => *in_a_row >= TIMEOUTS,
            StoreErrorKind::Unavailable => true,
            StoreErrorKind::Misconfigured => false,
        };
        certain && !std::mem::replace(&mut self.told, true)
    }

    /// Takes in a call that was answered; how long the outage was, if it was told of one and this is its end.
    fn answered(&mut self, access: Access, now: Mono) -> Option<Duration> {
        match access {
            Access::Read => self.reads = 0,
            Access::Write => self.writes = 0,
        }
        if self.reads > 0 || self.writes > 0 {
            return None;
        }
        let since = self.since.take()?;
        std::mem::take(&mut self.told).then(|| now.since(since))
    }
}

impl Engine {
    /// Takes in that a call was answered, with what its answers prove.
    pub(super) fn call_answered(&mut self, access: Access, now: Mono) {
        if let Some(after) = self.outage.answered(access, now) {
            self.report(Report::StoreBack { after });
        } else if self.outage.told && access == Access::Read {
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

    #[test]
    fn one_time_out_is_no_outage_two_are_and_it_is_told_once() {
        let mut outage = Outage::default();
        let error = StoreError::unknown("no reply");
        assert!(!outage.failed(Access::Write, &error, Mono(1_000_000)));
        assert!(outage.failed(Access::Write, &error, Mono(2_000_000)));
        assert!(!outage.failed(Access::Write, &error, Mono(3_000_000)));
        assert_eq!(outage.answered(Access::Write, Mono(4_000_000)), Some(Duration::from_secs(3)));
        assert_eq!(outage.answered(Access::Write, Mono(5_000_000)), None);
    }

    #[test]
    fn an_outage_ends_when_reads_and_writes_go_well_again() {
        let mut outage = Outage::default();
        let error = StoreError::unavailable("locked");
        assert!(outage.failed(Access::Write, &error, Mono(1_000_000)));
        assert_eq!(outage.answered(Access::Read, Mono(2_000_000)), None);
        assert!(!outage.failed(Access::Write, &error, Mono(3_000_000)));
        assert!(!outage.failed(Access::Read, &error, Mono(4_000_000)));
        assert_eq!(outage.answered(Access::Write, Mono(5_000_000)), None);
        assert_eq!(outage.answered(Access::Read, Mono(6_000_000)), Some(Duration::from_secs(5)));
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
