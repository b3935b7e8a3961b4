//! The random delay before a claim.

use std::time::Duration;

use crate::policy::Jitter;

/// The longest default.
const DEFAULT: Duration = Duration::from_millis(500);

/// The longest delay of an occurrence whose successor is planned `interval` later, `None` for the last one.
///
/// At most nine tenths of the interval: a claim that leaves after the next occurrence would be for that one.
pub(super) fn longest(jitter: Jitter, interval: Option<Duration>) -> Duration {
    let (wanted, room) = match jitter {
        Jitter::Default => (DEFAULT, interval.map(|i| i / 10)),
        Jitter::UpTo(longest) => (longest, interval.map(|i| i / 10 * 9)),
    };
    room.map_or(wanted, |room| wanted.min(room))
}

/// The delay itself: `random` (0 … 1) of the longest.
pub(super) fn drawn(longest: Duration, random: f64) -> Duration {
    let seconds = longest.as_secs_f64() * random.clamp(0.0, 1.0);
    Duration::try_from_secs_f64(seconds).map_or(longest, |drawn| drawn.min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_default_is_half_a_second_or_a_tenth_of_the_interval() {
        assert_eq!(longest(Jitter::Default, Some(S(60))), Duration::from_millis(500));
        assert_eq!(longest(Jitter::Default, Some(S(1))), Duration::from_millis(100));
        assert_eq!(longest(Jitter::Default, None), Duration::from_millis(500));
    }

    #[test]
    fn no_delay_reaches_the_next_occurrence() {
        assert_eq!(longest(Jitter::UpTo(S(30)), Some(S(10))), S(9));
        assert_eq!(longest(Jitter::UpTo(S(3)), Some(S(10))), S(3));
        assert!(drawn(longest(Jitter::UpTo(S(30)), Some(S(10))), 7.0) < S(10));
    }

    #[test]
    fn a_delay_is_never_negative() {
        assert_eq!(drawn(S(1), -1.0), Duration::ZERO);
        assert_eq!(drawn(S(1), 0.5), Duration::from_millis(500));
        assert_eq!(drawn(Duration::MAX, 1.0), Duration::MAX);
    }
}
