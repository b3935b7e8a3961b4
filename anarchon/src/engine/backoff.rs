//! The delay after the n-th failure.

use std::time::Duration;

use crate::policy::Backoff;

/// Between calls to a store that does not answer.
const STORE: Backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_secs(5) };

/// The delay after the `n`-th failure, counted from 0: doubled each time, from `first` up to `max`.
pub(super) fn delay(backoff: Backoff, n: u32) -> Duration {
    2u32.checked_pow(n)
        .and_then(|times| backoff.first.checked_mul(times))
        .unwrap_or(backoff.max)
        .min(backoff.max)
}

/// The delay after the `n`-th failed call, from 0: 0.1–5 s, of which `random` (0 … 1) takes away up to a quarter, so
/// that instances do not return in step.
pub(crate) fn store_delay(n: u32, random: f64) -> Duration {
    delay(STORE, n).mul_f64(1.0 - random.clamp(0.0, 1.0) / 4.0).max(STORE.first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_the_longest() {
        let backoff = Backoff { first: Duration::from_secs(5), max: Duration::from_secs(60) };
        let seconds: Vec<u64> = (0..6).map(|n| delay(backoff, n).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 60, 60]);
        assert_eq!(delay(backoff, u32::MAX), backoff.max);
    }

    #[test]
    fn a_first_delay_over_the_longest_is_cut() {
        let backoff = Backoff { first: Duration::from_secs(9), max: Duration::from_secs(2) };
        assert_eq!(delay(backoff, 0), Duration::from_secs(2));
    }

    #[test]
    fn a_store_is_asked_again_after_100_ms_to_5_s() {
        assert_eq!(store_delay(0, 1.0), Duration::from_millis(100));
        assert_eq!(store_delay(60, 0.0), Duration::from_secs(5));
        assert_eq!(store_delay(60, 1.0), Duration::from_millis(3750));
    }
}
