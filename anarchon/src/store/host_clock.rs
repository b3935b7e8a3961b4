//! One clock for all processes of a host, although each can only read its own.
//!
//! A file has no clock to ask, and a wall clock can be wrong in one process alone: a container with faked time, a
//! preloaded library, a virtual machine's tool that steps it. What all processes of a host do share is the monotonic
//! clock, which nobody can set. So the store keeps an anchor, the distance between the wall clock and the
//! monotonic clock that the processes agreed on, and its time is
//!
//! ```text
//! now = mono + anchor.skew          skew = wall − mono, in µs
//! ```
//!
//! Each process compares its own skew with the anchor's when it calls:
//!
//! | its own skew | then |
//! | --- | --- |
//! | within 1 s | it agrees. It confirms the anchor every 5 s, and draws it towards its own skew by at most 1 % of the time that passed since the last confirmation, so that the store's time never goes back |
//! | further off | it uses the anchor and does not confirm it. It is reported once as deviating |
//! | further off, and nobody has confirmed for 45 s | the others are gone or see the same: the host's clock was really set. Its own skew is the new anchor: the store's clock jumps |
//! | the machine was booted since (another boot id, or a monotonic clock that is behind the last confirmation) | its own skew is the new anchor |
//!
//! The clock of the only process alive wins after 45 s, right or wrong: with nobody to compare, that cannot be told.

use std::time::Duration;

use crate::{
    clock::{Clock, Mono},
    protocol::StoreNow,
};

/// How far two readings of one host's clocks may be apart and still be the same clock.
const TOLERANCE: i64 = 1_000_000;
/// What two readings differ by anyway, since wall and monotonic clock cannot be read at one instant.
const NOISE: i64 = 2_000;
/// How often the anchor is confirmed. Beats come every 20 s, so that an idle store is confirmed as well.
const CONFIRM_EVERY: Duration = Duration::from_secs(5);
/// After how long without confirmation somebody who disagrees may put a new anchor: two beats, and a standstill of the
/// others for some seconds.
const GIVEN_UP: Duration = Duration::from_secs(45);
/// How much the anchor is drawn at most: one part in this many.
const SLEW: i64 = 100;
/// A pause between the two readings of the monotonic clock that spoils a reading.
const INTERRUPTED: Duration = Duration::from_millis(1);

/// What the processes of a host agreed on; kept by the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// Which boot of the machine its monotonic clock counts from, where the system tells.
    pub(crate) boot: Option<String>,
    /// Wall clock minus monotonic clock, in µs.
    pub(crate) skew: i64,
    /// When somebody last agreed.
    pub(crate) confirmed: Mono,
}

/// Both clocks, as one process reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Wall clock minus monotonic clock, in µs.
    skew: i64,
    mono: Mono,
}

impl Reading {
    /// Reads both clocks; again when the process was interrupted in between, which would look like a step.
    pub(crate) fn of(clock: &dyn Clock) -> Self {
        let mut best: Option<(Duration, Self)> = None;
        for _ in 0..5 {
            let (before, wall, after) = (clock.mono(), clock.wall_micros(), clock.mono());
            let gap = after.since(before);
            let middle = before.plus(gap / 2);
            let reading = Self { skew: wall.saturating_sub(micros(middle)), mono: after };
            if best.is_none_or(|(least, _)| gap < least) {
                best = Some((gap, reading));
            }
            if gap < INTERRUPTED {
                break;
            }
        }
        best.map_or(Self { skew: clock.wall_micros(), mono: Mono(0) }, |(_, reading)| reading)
    }

    fn at(self, skew: i64) -> StoreNow {
        StoreNow(micros(self.mono).saturating_add(skew))
    }
}

/// What a reading means in the light of the anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// The store's time.
    pub(crate) now: StoreNow,
    /// The anchor to keep instead, if this call writes.
    pub(crate) anchor: Option<Anchor>,
    /// How the caller's own clock stands to the others'.
    pub(crate) stance: Stance,
}

/// How one process's wall clock stands to the store's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stance {
    /// It is the same clock.
    Agrees,
    /// It is off by so many µs, ahead where positive, and others confirm the store's.
    Deviates(i64),
    /// It was put in place: nobody else confirms another. The store's time jumps by so many µs.
    Stepped(i64),
    /// It was put in place: there was none, or none of this boot.
    Founded,
}

impl Stance {
    /// Whether the store's time depends on the new anchor, so that nothing may be decided without keeping it.
    pub(crate) fn must_be_kept(self) -> bool {
        match self {
            Self::Stepped(_) | Self::Founded => true,
            Self::Agrees | Self::Deviates(_) => false,
        }
    }
}

/// Judges one process's reading against the anchor.
pub(crate) fn judge(anchor: Option<&Anchor>, boot: Option<&str>, own: Reading) -> Judgement {
    let mine = Anchor { boot: boot.map(str::to_owned), skew: own.skew, confirmed: own.mono };
    let Some(anchor) = anchor.filter(|a| is_of_this_boot(a, boot, own.mono)) else {
        return Judgement { now: own.at(own.skew), anchor: Some(mine), stance: Stance::Founded };
    };
    let off = own.skew.saturating_sub(anchor.skew);
    let unconfirmed = own.mono.since(anchor.confirmed);
    if off.abs() <= TOLERANCE {
        if unconfirmed < CONFIRM_EVERY {
            return Judgement { now: own.at(anchor.skew), anchor: None, stance: Stance::Agrees };
        }
        let skew = anchor.skew.saturating_add(drawn(off, unconfirmed));
        return Judgement {
            now: own.at(skew),
            anchor: Some(Anchor { skew, ..mine }),
            stance: Stance::Agrees,
        };
    }
    if unconfirmed >= GIVEN_UP {
        return Judgement { now: own.at(own.skew), anchor: Some(mine), stance: Stance::Stepped(off) };
    }
    Judgement { now: own.at(anchor.skew), anchor: None, stance: Stance::Deviates(off) }
}

fn is_of_this_boot(anchor: &Anchor, boot: Option<&str>, mono: Mono) -> bool {
    let same_id = match (anchor.boot.as_deref(), boot) {
        (Some(kept), Some(own)) => kept == own,
        // A container may hide the boot id from one of the processes; then only the monotonic clock can tell.
        (None, _) | (_, None) => true,
    };
    same_id && mono.plus(Duration::from_secs(1)) >= anchor.confirmed
}

fn drawn(off: i64, unconfirmed: Duration) -> i64 {
    if off.abs() <= NOISE {
        return 0;
    }
    let most = i64::try_from(unconfirmed.as_micros()).unwrap_or(i64::MAX) / SLEW;
    off.clamp(-most, most)
}

fn micros(mono: Mono) -> i64 {
    i64::try_from(mono.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000_000;
    const HOUR: i64 = 3_600_000_000;

    fn anchor(skew: i64, confirmed_s: u64) -> Anchor {
        Anchor { boot: Some("b1".into()), skew, confirmed: Mono(confirmed_s * 1_000_000) }
    }
    fn reading(skew: i64, mono_s: u64) -> Reading {
        Reading { skew, mono: Mono(mono_s * 1_000_000) }
    }
    fn judged(a: &Anchor, own: Reading) -> Judgement {
        judge(Some(a), Some("b1"), own)
    }

    #[test]
    fn the_first_process_founds_the_anchor_on_its_own_wall_clock() {
        let j = judge(None, Some("b1"), reading(DAY, 100));
        assert_eq!(j.stance, Stance::Founded);
        assert_eq!(j.now, StoreNow(DAY + 100_000_000));
        assert_eq!(j.anchor, Some(anchor(DAY, 100)));
    }

    #[test]
    fn a_process_that_agrees_confirms_at_most_every_five_seconds() {
        let a = anchor(DAY, 100);
        assert_eq!(judged(&a, reading(DAY, 104)).anchor, None);
        assert_eq!(judged(&a, reading(DAY + 500, 105)).anchor, Some(anchor(DAY, 105)));
    }

    #[test]
    fn a_process_that_is_hours_off_uses_the_others_clock_and_confirms_nothing() {
        let a = anchor(DAY, 100);
        for off in [2 * HOUR, -2 * HOUR, 1_000_001] {
            let j = judged(&a, reading(DAY + off, 129));
            assert_eq!(
                j,
                Judgement { now: StoreNow(DAY + 129_000_000), anchor: None, stance: Stance::Deviates(off) }
            );
        }
    }

    #[test]
    fn a_step_that_nobody_contradicts_for_45_seconds_is_followed() {
        let a = anchor(DAY, 100);
        let j = judged(&a, reading(DAY - HOUR, 145));
        assert_eq!(j.stance, Stance::Stepped(-HOUR));
        assert_eq!(j.now, StoreNow(DAY - HOUR + 145_000_000));
        assert_eq!(j.anchor, Some(anchor(DAY - HOUR, 145)));
    }

    #[test]
    fn who_beats_every_twenty_seconds_and_stands_still_in_between_keeps_another_from_setting_the_clock() {
        let mut a = anchor(DAY, 0);
        for second in 0..600 {
            let wrong = judged(&a, reading(DAY + 2 * HOUR, second));
            assert_eq!(wrong.stance, Stance::Deviates(2 * HOUR));
            assert_eq!(wrong.now, StoreNow(DAY + i64::try_from(second).unwrap() * 1_000_000));
            // Every other beat is late by 20 s.
            if matches!(second % 60, 0 | 20)
                && let Some(next) = judged(&a, reading(DAY, second)).anchor
            {
                a = next;
            }
        }
    }

    #[test]
    fn a_small_difference_is_followed_slowly_and_never_backwards() {
        let (mut a, mut last) = (anchor(DAY, 0), StoreNow(0));
        for half in 1..400_u64 {
            let own = Reading { skew: DAY - 800_000, mono: Mono(half * 500_000) };
            let j = judged(&a, own);
            assert_eq!(j.stance, Stance::Agrees);
            assert!(j.now > last, "went back at half second {half}");
            last = j.now;
            a = j.anchor.unwrap_or(a);
        }
        assert_eq!(a.skew, DAY - 800_000);
    }

    #[test]
    fn another_boot_begins_anew_at_once() {
        let a = anchor(DAY, 100);
        assert_eq!(judge(Some(&a), Some("b2"), reading(DAY, 101)).stance, Stance::Founded);
        assert_eq!(judge(Some(&a), Some("b1"), reading(DAY + HOUR, 50)).stance, Stance::Founded);
        assert_eq!(judge(Some(&a), None, reading(DAY + HOUR, 50)).stance, Stance::Founded);
        assert_eq!(judge(Some(&a), None, reading(DAY, 101)).stance, Stance::Agrees);
    }

    #[test]
    fn a_confirmation_by_a_process_that_read_its_clock_a_moment_later_is_no_other_boot() {
        let a = anchor(DAY, 100);
        let own = Reading { skew: DAY, mono: Mono(99_990_000) };
        assert_eq!(judged(&a, own).stance, Stance::Agrees);
    }

    #[derive(Debug)]
    struct Interrupted(std::sync::atomic::AtomicU64);

    impl Clock for Interrupted {
        fn wall_micros(&self) -> i64 {
            DAY + i64::try_from(self.mono().0).unwrap()
        }
        fn mono(&self) -> Mono {
            let reads = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            // The first reading loses the processor for 3 s between its two clocks.
            Mono(reads + if reads >= 2 { 3_000_000 } else { 0 })
        }
    }

    #[test]
    fn an_interrupted_reading_is_taken_again() {
        let reading = Reading::of(&Interrupted(0.into()));
        assert!((reading.skew - DAY).abs() < 10, "{reading:?}");
    }
}
