//! The store's clock as this instance knows it: its distance from the own monotonic clock, and how wrong that may be.

use std::{collections::VecDeque, time::Duration};

use crate::{clock::Mono, protocol::StoreNow};

/// How long a sample counts.
const KEPT: Duration = Duration::from_secs(600);
/// How far two clocks may drift apart, in parts per 10,000.
const DRIFT: u64 = 2;
/// The least error that is assumed, in microseconds.
const LEAST_ERROR: i128 = 1000;
/// How far a sample may lie outside the errors before it shows a step, in microseconds.
const STEP: i128 = 25_000;

/// One reply: what the store's clock showed between two readings of ours.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Mono,
    /// Store clock minus `at`, in microseconds.
    offset: i64,
    half_trip: u64,
}

impl Sample {
    fn error(&self, at: Mono) -> i128 {
        let age = at.0.saturating_sub(self.at.0);
        (i128::from(self.half_trip) + i128::from(age.saturating_mul(DRIFT) / 10_000)).max(LEAST_ERROR)
    }
}

/// The estimate of the store's clock.
///
/// All errors grow at one rate, so the order of two samples by error never changes: those that are worse than a newer
/// one are dropped when it comes, and the first that is left is the best.
#[derive(Debug, Default)]
pub(super) struct StoreClock {
    samples: VecDeque<Sample>,
}

impl StoreClock {
    /// Takes in a reply. The answer is how far the clock was stepped, in microseconds, if this shows a step.
    pub(super) fn observe(&mut self, sent: Mono, received: Mono, store: StoreNow) -> Option<i64> {
        let half_trip = received.0.saturating_sub(sent.0) / 2;
        let at = Mono(sent.0.saturating_add(half_trip));
        let offset = store.0.saturating_sub(i64::try_from(at.0).unwrap_or(i64::MAX));
        let new = Sample { at, offset, half_trip };
        let step = self.samples.front().and_then(|kept| {
            let by = i128::from(offset) - i128::from(kept.offset);
            (by.abs() > new.error(at) + kept.error(at) + STEP).then(|| offset.saturating_sub(kept.offset))
        });
        if step.is_some() {
            self.samples.clear();
        }
        while self.samples.front().is_some_and(|s| at.since(s.at) > KEPT) {
            self.samples.pop_front();
        }
        while self.samples.back().is_some_and(|s| s.error(at) >= new.error(at)) {
            self.samples.pop_back();
        }
        self.samples.push_back(new);
        step
    }

    /// The kept samples were shown wrong by the newest one: only that counts.
    pub(super) fn distrust(&mut self) {
        if let Some(newest) = self.samples.back().copied() {
            self.samples.clear();
            self.samples.push_back(newest);
        }
    }

    /// What the store's clock shows at `at`, as well as we know.
    pub(super) fn estimate(&self, at: Mono) -> Option<StoreNow> {
        let best = self.samples.front()?;
        Some(StoreNow(best.offset.saturating_add(i64::try_from(at.0).unwrap_or(i64::MAX))))
    }

    /// What the store's clock has surely reached at `at`.
    pub(super) fn reached(&self, at: Mono) -> Option<StoreNow> {
        let error = self.samples.front()?.error(at);
        let estimate = self.estimate(at)?;
        Some(StoreNow(estimate.0.saturating_sub(i64::try_from(error).unwrap_or(i64::MAX))))
    }

    /// What the store's clock surely does not exceed at `at`.
    pub(super) fn at_most(&self, at: Mono) -> Option<StoreNow> {
        let error = self.samples.front()?.error(at);
        let estimate = self.estimate(at)?;
        Some(StoreNow(estimate.0.saturating_add(i64::try_from(error).unwrap_or(i64::MAX))))
    }

    /// The first instant at which the store's clock has surely [`reached`](Self::reached) `store`.
    pub(super) fn when(&self, store: StoreNow) -> Option<Mono> {
        let best = self.samples.front()?;
        let start = i128::from(best.at.0);
        let target = i128::from(store.0) - i128::from(best.offset);
        let ahead = target + i128::from(best.half_trip) - start;
        let by_drift =
            if ahead > 0 { (ahead * 10_000).div_euclid(10_000 - i128::from(DRIFT)) + 1 } else { ahead };
        let when = (start + by_drift).max(target + LEAST_ERROR);
        Some(Mono(u64::try_from(when.max(0)).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn clock(samples: &[(u64, u64, i64)]) -> StoreClock {
        let mut clock = StoreClock::default();
        for &(sent, received, store) in samples {
            clock.observe(Mono(sent), Mono(received), StoreNow(store));
        }
        clock
    }

    #[test]
    fn the_sample_with_the_shortest_round_trip_wins_while_it_is_fresh() {
        let quick_then_slow = clock(&[(0, 2_000, HOUR), (1_000_000, 1_020_000, HOUR + 1_015_000)]);
        assert_eq!(quick_then_slow.estimate(Mono(1_000)), Some(StoreNow(HOUR)));
        let slow_then_quick = clock(&[(0, 20_000, HOUR + 5_000), (1_000_000, 1_002_000, HOUR + 1_000_000)]);
        assert_eq!(slow_then_quick.estimate(Mono(1_001_000)), Some(StoreNow(HOUR + 1_000_000)));
    }

    #[test]
    fn an_old_sample_gives_way_to_a_slower_one_because_clocks_drift() {
        // After 100 s the old one may be wrong by 20 ms, the new one by 10 ms.
        let clock = clock(&[(0, 2_000, HOUR), (100_000_000, 100_020_000, HOUR + 100_017_000)]);
        assert_eq!(clock.estimate(Mono(100_010_000)), Some(StoreNow(HOUR + 100_017_000)));
    }

    #[test]
    fn a_step_shows_and_drops_all_older_samples() {
        let mut clock = clock(&[(0, 2_000, HOUR)]);
        assert_eq!(
            clock.observe(Mono(1_000_000), Mono(1_002_000), StoreNow(2 * HOUR + 1_000_000)),
            Some(HOUR)
        );
        assert_eq!(clock.estimate(Mono(1_001_000)), Some(StoreNow(2 * HOUR + 1_000_000)));
        assert_eq!(clock.observe(Mono(2_000_000), Mono(2_002_000), StoreNow(2_000_000)), Some(-2 * HOUR));
        // A slow reply says too little to show a step.
        assert_eq!(clock.observe(Mono(2_000_000), Mono(4_000_000), StoreNow(3_800_000)), None);
    }

    #[test]
    fn the_wake_up_is_the_first_instant_that_is_surely_late_enough() {
        for (half, due) in [(0u64, 5_000_000i64), (40_000, 5_000_000), (1_000, 86_400_000_000), (500, 3)] {
            let clock = clock(&[(0, 2 * half, HOUR)]);
            let due = StoreNow(HOUR + due);
            let when = clock.when(due).unwrap();
            assert!(clock.reached(when).unwrap() >= due, "{half}");
            assert!(clock.reached(Mono(when.0 - 2)).unwrap() < due, "{half}");
        }
    }

    #[test]
    fn extreme_clocks_are_borne() {
        for store in [i64::MIN, i64::MAX, 0, -1] {
            let clock = clock(&[(0, 0, 5), (u64::MAX - 1, u64::MAX, store), (5, 3, store)]);
            let _ = (clock.estimate(Mono(u64::MAX)), clock.reached(Mono(0)), clock.reached(Mono(u64::MAX)));
            let _ = (clock.when(StoreNow(i64::MAX)), clock.when(StoreNow(i64::MIN)));
        }
    }
}
