//! Whether the store answers, told once per change.

use std::time::Duration;

use super::{Action, Engine, Phase, Report};
use crate::{
    clock::Mono,
    store::{StoreError, StoreErrorKind},
};

/// How many time-outs in a row make an outage: one reply may always be lost.
const TIMEOUTS: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Outage {
    failures: u32,
    since: Option<Mono>,
    told: bool,
    misconfigured: Option<StoreError>,
}

impl Outage {
    /// Takes in a call that failed as a whole; says whether that is news.
    fn failed(&mut self, error: &StoreError, now: Mono) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.since.get_or_insert(now);
        let certain = match error.kind {
            StoreErrorKind::Unknown => self.failures >= TIMEOUTS,
            StoreErrorKind::Unavailable => true,
            StoreErrorKind::Misconfigured => false,
        };
        certain && !std::mem::replace(&mut self.told, true)
    }

    /// Takes in a call that was answered; how long the outage was, if it was told of one.
    fn answered(&mut self, now: Mono) -> Option<Duration> {
        self.failures = 0;
        self.misconfigured = None;
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
    /// Takes in how a call went: the error that all of its items have, or that it was answered.
    pub(super) fn call_went(&mut self, error: Option<&StoreError>, now: Mono) {
        match error {
            None => {
                if let Some(after) = self.outage.answered(now) {
                    self.report(Report::StoreBack { after });
                }
            }
            Some(error) => {
                if self.outage.failed(error, now) {
                    self.report(Report::StoreUnavailable(error.clone()));
                }
            }
        }
    }

    /// Takes in the error of one item.
    pub(super) fn item_failed(&mut self, error: &StoreError) {
        match error.kind {
            StoreErrorKind::Unknown | StoreErrorKind::Unavailable => {}
            StoreErrorKind::Misconfigured => {
                if self.outage.misconfigured(error) {
                    self.actions.push_back(match self.phase {
                        Phase::New | Phase::Starting => Action::Failed(error.clone()),
                        Phase::Up | Phase::Draining | Phase::Leaving | Phase::Stopped => {
                            Action::Report(Report::Misconfigured(error.clone()))
                        }
                    });
                }
            }
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
        assert!(!outage.failed(&error, Mono(1_000_000)));
        assert!(outage.failed(&error, Mono(2_000_000)));
        assert!(!outage.failed(&error, Mono(3_000_000)));
        assert_eq!(outage.answered(Mono(4_000_000)), Some(Duration::from_secs(3)));
        assert_eq!(outage.answered(Mono(5_000_000)), None);
    }

    #[test]
    fn a_refused_connection_is_an_outage_at_once() {
        assert!(Outage::default().failed(&StoreError::unavailable("refused"), Mono(0)));
    }

    #[test]
    fn the_same_wrong_set_up_is_told_once() {
        let mut outage = Outage::default();
        assert!(outage.misconfigured(&StoreError::misconfigured("read-only")));
        assert!(!outage.misconfigured(&StoreError::misconfigured("read-only")));
        assert!(outage.misconfigured(&StoreError::misconfigured("no such table")));
    }
}
