//! What the operator reads: facts of the engine as `tracing` events with fixed field names.
//!
//! `info` for what one wants to know in a quiet hour, `debug` for each claim that was lost, `warn` with the mend.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use tracing::{debug, error, info, warn};

use crate::{
    clock::Clock,
    context::{Facts, Home},
    engine::{CancelReason, Report, RunEnd},
    protocol::{InstanceId, StoreNow},
};

/// A wake-up or an answer that is later than this is worth a word.
const STALL: Duration = Duration::from_millis(250);

/// A clock that is off by more than this is worth a word.
const CLOCK_TOLERANCE_MICROS: i64 = 1_000_000;

/// Says something, come what may: a subscriber that writes into a pipe that nobody reads panics, and neither a run, nor a
/// lease, nor the obedience to a signal is to end with that.
pub(crate) fn say(line: impl FnOnce()) {
    // The panic's own message is all that can be told of it.
    let _ = catch_unwind(AssertUnwindSafe(line));
}

/// Turns reports into events, and says once what would be said often.
#[derive(Debug)]
pub(crate) struct Reporter {
    store: Arc<str>,
    instance: InstanceId,
    clock_is_off: bool,
}

impl Reporter {
    pub(crate) fn new(store: Arc<str>, instance: &InstanceId) -> Self {
        Self { store, instance: instance.clone(), clock_is_off: false }
    }

    /// Warns once when the local clock and the store's part, and tells when they agree again.
    pub(crate) fn compare_clocks(&mut self, store_now: Option<StoreNow>, clock: &dyn Clock) {
        let Some(store_now) = store_now else { return };
        let off_by = clock.wall_micros().saturating_sub(store_now.0);
        let is_off = off_by.saturating_abs() > CLOCK_TOLERANCE_MICROS;
        if is_off == self.clock_is_off {
            return;
        }
        self.clock_is_off = is_off;
        let (store, instance, seconds) = (&self.store, &self.instance, off_by.unsigned_abs() / 1_000_000);
        say(|| {
            if !is_off {
                return info!(%store, %instance, "the local clock agrees with the store's again");
            }
            let side = if off_by > 0 { "ahead of" } else { "behind" };
            warn!(
                %store,
                %instance,
                "the local clock is {seconds} s {side} the store's; the store's decides: set one of them right"
            );
        });
    }

    /// Tells that the scheduler's thread came to its turn so long after it was due.
    pub(crate) fn woken(&self, late: Duration) {
        if late >= STALL {
            let Self { store, instance, clock_is_off: _ } = self;
            say(
                || debug!(%store, %instance, stalled_ms = late.as_millis(), "woken late: the process or the machine stood still, or has no CPU to spare"),
            );
        }
    }

    /// Tells that the store took so long to answer.
    pub(crate) fn answered(&self, after: Duration) {
        if after >= STALL {
            let Self { store, instance, clock_is_off: _ } = self;
            say(|| debug!(%store, %instance, stalled_ms = after.as_millis(), "the store was slow to answer"));
        }
    }

    pub(crate) fn report(&self, report: &Report) {
        say(|| self.event(report));
    }

    fn event(&self, report: &Report) {
        let Self { store, instance, clock_is_off: _ } = self;
        match report {
            Report::Skipped { job, occurrence, holder } => {
                info!(%job, %occurrence, %holder, %instance, %store, "skipped: the run before it goes on");
            }
            Report::Missed { job, occurrence, window } => {
                info!(%job, %occurrence, %instance, %store, ?window, "skipped: missed by more than its catch-up window");
            }
            Report::CaughtUp { job, occurrence, late } => {
                info!(%job, %occurrence, %instance, %store, ?late, "catching up on a missed occurrence");
            }
            Report::TookOver { job, occurrence, attempt, previous } => {
                info!(%job, %occurrence, attempt, %previous, %instance, %store, "took over");
            }
            Report::Overtaken { job, occurrence, by, holder } => {
                warn!(%job, %occurrence, %by, %holder, %instance, %store, "closed as lost: its holder vanished or its retry waited, and a newer occurrence came first; if each one counts, give the job a shorter lease or backoff, or a longer interval");
            }
            Report::LeaseLost { job, occurrence, token } => {
                warn!(%job, %occurrence, %token, %instance, %store, "lease lost: the run is cancelled, another instance may run it again; if this recurs, look for a slow store or a process without CPU, or set a longer lease");
            }
            Report::Unstarted { job, occurrence, token } => {
                warn!(%job, %occurrence, %token, %instance, %store, "given back unstarted: the award came too late or after the drain, or the handler before it has not returned");
            }
            Report::GaveUp { job, occurrence, attempt, status } => {
                warn!(%job, %occurrence, attempt, status = status.as_str(), %instance, %store, "given up: no further attempt; look at what its handler did last, or raise max_attempts");
            }
            Report::FinishRefused { job, occurrence, token } => {
                warn!(%job, %occurrence, %token, %instance, %store, "outcome not recorded: the store does not know this run any more, because another instance had taken over or the record was lost; pass the fencing token to what the job writes");
            }
            Report::FinishAbandoned { job, occurrence, token } => {
                warn!(%job, %occurrence, %token, %instance, %store, "outcome not recorded: the store did not answer in time; the occurrence may run again");
            }
            Report::StillBlocking { job, occurrence, token } => {
                warn!(%job, %occurrence, %token, %instance, %store, "the handler still blocks its thread: not waited for any longer, and its lease is not renewed; another instance runs it again when the lease is over. Let the handler look at is_cancelled(), and pass the fencing token to what the job writes");
            }
            Report::StoreUnavailable(error) => {
                warn!(%store, %instance, %error, "the store does not answer; runs are cancelled when their leases cannot be renewed, and start again once it is back");
            }
            Report::StoreBack { after } => info!(%store, %instance, ?after, "the store answers again"),
            Report::Misconfigured(error) => {
                error!(%store, %instance, %error, "the store refuses; set it up as it says");
            }
            Report::StoreAccepts { error, after } => {
                info!(%store, %instance, ?after, refused = %error, "the store accepts again what it refused");
            }
            Report::JobRefused { job, error } => {
                error!(%job, %store, %instance, %error, "the store refuses this job alone: nothing of it runs until that is mended; the other jobs go on");
            }
            Report::JobAccepted { job } => {
                info!(%job, %store, %instance, "the store accepts this job again");
            }
            Report::StoreClockStepped { micros } => {
                warn!(%store, %instance, micros, "the store's clock was stepped; keep it in time with NTP");
            }
            Report::RecordsLost { jobs, first } => {
                let first = first.iter().map(|job| job.as_str()).collect::<Vec<_>>().join(", ");
                warn!(%store, %instance, jobs, first, "the store had no record of these jobs any more, lost or forgotten: registered anew; check the store's persistence");
            }
            Report::StaleSchedule { job, in_force, is_announced: true } => {
                info!(%job, %store, %instance, %in_force, "another schedule is in force: nothing is claimed until no instance has it any more");
            }
            Report::StaleSchedule { job, in_force, is_announced: false } => {
                warn!(%job, %store, %instance, %in_force, "another schedule is in force, and nobody can tell here whether an instance has it: \
                    nothing is claimed until one of its occurrences was missed by the catch-up window; when no instance has it any more, forget \
                    the job, and this one is in force");
            }
            Report::ScheduleInForce { job, old } => {
                info!(%job, %store, %instance, %old, "this instance's schedule is in force now");
            }
            Report::ZonesDiffer { own, others } => {
                warn!(
                    %store,
                    %instance,
                    own,
                    ?others,
                    "instances have different time zone rules; update the tz database on all of them"
                );
            }
        }
    }
}

pub(crate) fn started(facts: &Facts) {
    let Facts { home, job, occurrence, attempt, token, catch_up, .. } = facts;
    let Home { instance, store, .. } = &**home;
    say(|| debug!(%job, %occurrence, attempt, token = token.0, %instance, %store, catch_up, "run started"));
}

/// The one line that a failed handler causes; an end that is nobody's fault is told at `debug`.
pub(crate) fn ended(facts: &Facts, end: &RunEnd, reason: Option<CancelReason>) {
    let Facts { home, job, occurrence, attempt, token, .. } = facts;
    let Home { instance, store, .. } = &**home;
    let timed_out = reason == Some(CancelReason::Timeout);
    say(|| match end {
        RunEnd::Returned { error: Some(message), .. } => {
            error!(%job, %occurrence, attempt, token = token.0, %instance, %store, error = message, "run failed");
        }
        RunEnd::Returned { saw_cancel: true, .. } | RunEnd::Dropped if timed_out => {
            error!(%job, %occurrence, attempt, token = token.0, %instance, %store, error = "timed out", "run failed");
        }
        RunEnd::Returned { error: None, saw_cancel } => {
            debug!(%job, %occurrence, attempt, token = token.0, %instance, %store, saw_cancel, "run ended");
        }
        RunEnd::Dropped => {
            debug!(%job, %occurrence, attempt, token = token.0, %instance, %store, "run dropped");
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use chrono::DateTime;
    use tracing::{Event, Metadata, Subscriber, field, span};

    use super::*;
    use crate::{
        Context,
        protocol::{JobName, Millis, Occurrence, Token},
    };

    /// Keeps the level and the text of the last event.
    #[derive(Default)]
    struct Last(Arc<Mutex<String>>);

    impl field::Visit for Last {
        fn record_debug(&mut self, field: &field::Field, value: &dyn std::fmt::Debug) {
            let mut text = self.0.lock().unwrap();
            *text += &format!("{}={value:?} ", field.name());
        }
    }

    impl Subscriber for Last {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            *self.0.lock().unwrap() = format!("{} ", event.metadata().level());
            event.record(&mut Self(Arc::clone(&self.0)));
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    fn heard(says: impl FnOnce()) -> String {
        let text = Arc::new(Mutex::new(String::new()));
        tracing::subscriber::with_default(Last(Arc::clone(&text)), says);
        let text = text.lock().unwrap();
        text.clone()
    }

    fn told(report: &Report) -> String {
        let reporter = Reporter::new("test".into(), &InstanceId::new("me").unwrap());
        heard(|| reporter.report(report))
    }

    #[test]
    fn a_run_that_gave_up_at_its_timeout_is_an_error_and_one_that_was_told_otherwise_is_not() {
        let run = Context::for_test("sync", DateTime::UNIX_EPOCH);
        let gave_up = || [RunEnd::Dropped, RunEnd::Returned { error: None, saw_cancel: true }];
        for end in gave_up() {
            let line = heard(|| ended(run.facts(), &end, Some(CancelReason::Timeout)));
            assert!(line.starts_with("ERROR ") && line.contains("timed out"), "{end:?}: {line}");
        }
        let in_time = RunEnd::Returned { error: None, saw_cancel: false };
        let line = heard(|| ended(run.facts(), &in_time, Some(CancelReason::Timeout)));
        assert!(line.starts_with("DEBUG "), "{line}");
        for reason in [None, Some(CancelReason::Shutdown), Some(CancelReason::Operator)] {
            for end in gave_up() {
                let line = heard(|| ended(run.facts(), &end, reason));
                assert!(line.starts_with("DEBUG "), "{end:?} {reason:?}: {line}");
            }
        }
    }

    #[test]
    fn an_outcome_that_was_refused_is_not_put_down_to_a_takeover_alone() {
        let job = JobName::new("sync").unwrap();
        let (occurrence, token) = (Occurrence::Planned(Millis(0)), Token(7));
        let told = told(&Report::FinishRefused { job, occurrence, token });
        assert!(told.contains("taken over") && told.contains("the record was lost"), "{told}");
    }

    #[test]
    fn a_loss_names_the_first_jobs_and_says_how_many_there_are() {
        let first = ["a", "b"].map(|name| JobName::new(name).unwrap()).to_vec();
        let told = told(&Report::RecordsLost { jobs: 1000, first });
        assert!(told.contains("jobs=1000 ") && told.contains("first=\"a, b\" "), "{told}");
    }
}
