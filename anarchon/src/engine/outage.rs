//! Whether the store answers, told once per change.

use std::time::Duration;

use super::{Action, Engine, Phase, Report};
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
    misconfigured: Option<StoreError>,
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
            Access::Write => {
                self.writes = 0;
                self.misconfigured = None;
            }
        }
        if self.reads > 0 || self.writes > 0 {
            return None;
        }
        let since = self.since.take()?;
        std::mem::take(&mut self.told).then(|| now.since(since))
    }

    /// Whether this message is news.
    fn misconfigured(&mut self, error: &StoreError) -> bool {
        let news = self.misconfigured.as_ref() != Some(error);
        self.misconfigured = Some(error.clone());
        news
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

    /// Takes in that the store refused one item: the job of it alone where others of the call were answered, else the
    /// whole set-up is wrong.
    pub(super) fn refused(&mut self, job: Option<usize>, error: &StoreError, all: bool) {
        if let Some(job) = job {
            let known = &mut self.jobs[job];
            if known.refused.as_ref() == Some(error) {
                return;
            }
            if !all {
                known.refused = Some(error.clone());
                let (job, error) = (known.spec.name.clone(), error.clone());
                return self.report(Report::JobRefused { job, error });
            }
        }
        if self.outage.misconfigured(error) {
            self.actions.push_back(match self.phase {
                Phase::New | Phase::Starting => Action::Failed(error.clone()),
                Phase::Up | Phase::Draining | Phase::Leaving | Phase::Stopped => {
                    Action::Report(Report::Misconfigured(error.clone()))
                }
            });
        }
    }

    /// Takes in that a call for the job was answered that the store refuses while its record is damaged.
    pub(super) fn accepted(&mut self, job: Option<usize>) {
        if let Some(job) = job
            && self.jobs[job].refused.take().is_some()
        {
            self.report(Report::JobAccepted { job: self.jobs[job].spec.name.clone() });
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

    #[test]
    fn the_same_wrong_set_up_is_told_once() {
        let mut outage = Outage::default();
        assert!(outage.misconfigured(&StoreError::misconfigured("read-only")));
        assert!(!outage.misconfigured(&StoreError::misconfigured("read-only")));
        assert!(outage.misconfigured(&StoreError::misconfigured("no such table")));
        let _ = outage.answered(Access::Read, Mono(0));
        assert!(
            !outage.misconfigured(&StoreError::misconfigured("no such table")),
            "reads go on while writes are refused"
        );
    }
}
