//! What is due: the newest occurrence, how late it may still start, what it leaves behind.

use std::time::Duration;

use anarchon_schedule::Schedule;
use chrono::{DateTime, Utc};

use super::jitter;
use crate::{
    policy::{CatchUp, Policy},
    protocol::{Millis, StoreNow},
};

/// What an occurrence may be late beyond its jitter without being a catch-up.
const PROMPT: Duration = Duration::from_secs(1);
/// A watcher looks once a second, so a shorter window would give up each attempt that was released.
const SHORTEST_TAKEOVER: Duration = Duration::from_secs(5);

/// The newest occurrence that was planned up to `now` and after `settled`.
pub(super) fn newest(schedule: &Schedule, settled: Millis, now: StoreNow) -> Option<Millis> {
    let at = millis(schedule.latest_at_or_before(last_of(now.millis())?)?);
    (at > settled).then_some(at)
}

/// The first occurrence after `settled`.
pub(super) fn next(schedule: &Schedule, settled: Millis) -> Option<Millis> {
    schedule.next_after(last_of(settled)?).map(millis)
}

/// The newest occurrence after `settled` that is older than the window at `now`.
pub(super) fn missed(schedule: &Schedule, settled: Millis, window: Duration, now: Millis) -> Option<Millis> {
    let at = millis(schedule.latest_at_or_before(last_of(now.minus(window))?)?);
    (at > settled).then_some(at)
}

/// How far the next occurrence is from this one.
pub(super) fn interval(schedule: &Schedule, at: Millis) -> Option<Duration> {
    schedule.shortest_interval().or_else(|| next(schedule, at).map(|next| next.since(at)))
}

/// The longest jitter of the occurrence.
pub(super) fn longest_jitter(schedule: &Schedule, policy: &Policy, at: Millis) -> Duration {
    jitter::longest(policy.jitter, interval(schedule, at))
}

/// How late the first attempt at the occurrence may be.
pub(super) fn window(schedule: &Schedule, policy: &Policy, at: Millis) -> Duration {
    let least = longest_jitter(schedule, policy, at).saturating_add(PROMPT);
    match policy.catch_up {
        // Else a jitter that is longer would make most occurrences late by itself.
        CatchUp::Window(window) => window.max(least),
        CatchUp::None => least,
    }
}

/// How late a further attempt may be after the end of the one before.
pub(super) fn takeover_window(policy: &Policy) -> Duration {
    match policy.catch_up {
        CatchUp::Window(window) => window.max(SHORTEST_TAKEOVER),
        CatchUp::None => SHORTEST_TAKEOVER,
    }
}

/// Whether an occurrence that starts at `started` is caught up on.
pub(super) fn is_catch_up(schedule: &Schedule, policy: &Policy, at: Millis, started: Millis) -> bool {
    started.since(at) > longest_jitter(schedule, policy, at).saturating_add(PROMPT)
}

/// The end of the millisecond: an instant in the midst of it is the occurrence of that millisecond.
fn last_of(at: Millis) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(at.0)?.checked_add_signed(chrono::TimeDelta::nanoseconds(999_999))
}

fn millis(at: DateTime<Utc>) -> Millis {
    Millis(at.timestamp_millis())
}

#[cfg(test)]
mod tests {
    use anarchon_schedule::{At, Cron, Every, Spec};

    use super::*;
    use crate::policy::Jitter;

    fn every(text: &str) -> Schedule {
        Spec::from(Every::new(text)).check().unwrap()
    }
    fn at(seconds: i64) -> StoreNow {
        StoreNow(seconds * 1_000_000)
    }

    #[test]
    fn after_a_standstill_only_the_newest_is_due() {
        assert_eq!(newest(&every("10s"), Millis(0), at(3_605)), Some(Millis(3_600_000)));
    }

    #[test]
    fn nothing_up_to_the_settled_one_is_due() {
        assert_eq!(newest(&every("10s"), Millis(3_600_000), at(3_605)), None);
        assert_eq!(next(&every("10s"), Millis(3_600_000)), Some(Millis(3_610_000)));
    }

    #[test]
    fn an_occurrence_is_not_due_a_microsecond_early() {
        assert_eq!(newest(&every("10s"), Millis(0), StoreNow(9_999_999)), None);
        assert_eq!(newest(&every("10s"), Millis(0), at(10)), Some(Millis(10_000)));
    }

    #[test]
    fn an_instant_within_a_millisecond_is_due_once() {
        let at = Spec::from(At::new("1970-01-01T00:00:10.0005Z")).check().unwrap();
        assert_eq!(next(&at, Millis(0)), Some(Millis(10_000)));
        assert_eq!(newest(&at, Millis(0), StoreNow(10_000_000)), Some(Millis(10_000)));
        assert_eq!(next(&at, Millis(10_000)), None);
    }

    #[test]
    fn what_is_older_than_the_window_was_missed() {
        let minute = every("1m");
        let window = Duration::from_secs(300);
        assert_eq!(missed(&minute, Millis(0), window, Millis(3_600_000)), Some(Millis(3_300_000)));
        assert_eq!(missed(&minute, Millis(3_300_000), window, Millis(3_600_000)), None);
    }

    #[test]
    fn without_catch_up_the_window_is_the_jitter_and_a_second() {
        let policy = Policy { catch_up: CatchUp::None, ..Policy::default() };
        assert_eq!(window(&every("10s"), &policy, Millis(0)), Duration::from_millis(1500));
        let policy = Policy { jitter: Jitter::UpTo(Duration::ZERO), ..policy };
        assert_eq!(window(&every("10s"), &policy, Millis(0)), Duration::from_secs(1));
        assert_eq!(takeover_window(&policy), Duration::from_secs(5));
    }

    #[test]
    fn the_window_is_never_shorter_than_the_jitter_and_a_second() {
        let catch_up = CatchUp::Window(Duration::from_secs(300));
        let jitter = Jitter::UpTo(Duration::from_secs(3600));
        let policy = Policy { catch_up, jitter, ..Policy::default() };
        assert_eq!(window(&every("1d"), &policy, Millis(0)), Duration::from_secs(3601));
        assert_eq!(window(&every("10m"), &policy, Millis(0)), Duration::from_secs(541));
        assert_eq!(window(&every("1m"), &policy, Millis(0)), Duration::from_secs(300));
    }

    #[test]
    fn a_cron_jobs_interval_is_the_distance_to_the_next_occurrence() {
        let cron = Spec::from(Cron::new("0,1 * * * *")).check().unwrap();
        assert_eq!(interval(&cron, Millis(0)), Some(Duration::from_secs(60)));
        assert_eq!(interval(&cron, Millis(60_000)), Some(Duration::from_secs(3540)));
    }

    #[test]
    fn late_by_more_than_jitter_and_a_second_is_a_catch_up() {
        let policy = Policy::default();
        assert!(!is_catch_up(&every("10s"), &policy, Millis(10_000), Millis(11_500)));
        assert!(is_catch_up(&every("10s"), &policy, Millis(10_000), Millis(11_501)));
    }

    #[test]
    fn instants_that_no_calendar_has_are_borne() {
        for now in [i64::MIN, i64::MAX] {
            let _ = newest(&every("10s"), Millis(i64::MIN), StoreNow(now));
            let _ = newest(&every("10s"), Millis(i64::MAX), StoreNow(now));
            let _ = (next(&every("10s"), Millis(now)), interval(&every("10s"), Millis(now)));
            let _ = missed(&every("10s"), Millis(now), Duration::MAX, Millis(now));
        }
    }
}
