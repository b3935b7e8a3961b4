//! The server's clock, told by the times at which it stored messages.

use std::{collections::VecDeque, time::Duration};

use crate::{clock::Mono, protocol::StoreNow};

/// How far two clocks may drift apart, in parts per 10,000.
const DRIFT: u64 = 2;
/// How far a message may contradict the messages before it until it shows that the clock was set, in microseconds.
const STEP: i64 = 25_000;
/// Without a message of our own for this long, what we know of the clock is not to be relied on.
const OLDEST: Duration = Duration::from_secs(30);
/// How many writes wait for their message.
const AWAITED: usize = 64;

/// What is known of the server's clock.
///
/// A message that was stored at `t` and reached us at `m` shows that the clock had reached `t` by `m`: the highest of these
/// bounds is what the clock has surely reached. A message of our own, sent at `s`, shows as well that the clock was not yet
/// past `t` at `s`; where the two contradict each other, the clock was set.
#[derive(Debug, Default)]
pub struct ServerClock {
    reached: Option<Bound>,
    own: Option<Own>,
    last: Option<Heard>,
    awaited: VecDeque<(u64, Mono)>,
    told: Option<StoreNow>,
}

#[derive(Debug, Clone, Copy)]
struct Bound {
    /// Server clock minus our own, in microseconds.
    offset: i64,
    at: Mono,
}

/// A message of our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    pub sent: Mono,
    /// When the server stored it, by its clock, in microseconds.
    pub stored: i64,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    revision: u64,
    stored: i64,
    at: Mono,
}

impl ServerClock {
    /// A message of anybody's came in; revisions grow.
    pub fn heard(&mut self, revision: u64, stored: i64, at: Mono) {
        let heard = Heard { revision, stored, at };
        self.last = Some(heard);
        self.has_reached(stored, at);
        while let Some(&(awaited, sent)) = self.awaited.front()
            && awaited <= revision
        {
            self.awaited.pop_front();
            self.own(sent, heard);
        }
    }

    /// A message of our own was stored as this revision.
    pub fn wrote(&mut self, revision: u64, sent: Mono) {
        match self.last {
            Some(last) if last.revision >= revision => self.own(sent, last),
            Some(_) | None => {
                if self.awaited.len() >= AWAITED {
                    self.awaited.pop_front();
                }
                let place = self.awaited.partition_point(|&(other, _)| other < revision);
                self.awaited.insert(place, (revision, sent));
            }
        }
    }

    /// Revisions begin anew: another connection, maybe to another bucket.
    pub fn reconnected(&mut self) {
        self.last = None;
        self.awaited.clear();
    }

    /// A message that was stored after we sent our own.
    fn own(&mut self, sent: Mono, heard: Heard) {
        // At the time of sending, the clock was at `stored` at most.
        if let Some(reached) = self.at_least(sent)
            && reached > heard.stored.saturating_add(STEP)
        {
            self.reached = None;
            self.told = None;
            self.has_reached(heard.stored, heard.at);
        }
        if self.own.is_none_or(|own| own.sent <= sent) {
            self.own = Some(Own { sent, stored: heard.stored });
        }
    }

    fn has_reached(&mut self, stored: i64, at: Mono) {
        if self.at_least(at).is_none_or(|reached| reached <= stored) {
            self.reached = Some(Bound { offset: stored.saturating_sub(micros(at)), at });
        }
    }

    fn at_least(&self, at: Mono) -> Option<i64> {
        let reached = self.reached?;
        let age = i64::try_from(at.0.saturating_sub(reached.at.0) / 10_000 * DRIFT).unwrap_or(i64::MAX);
        Some(micros(at).saturating_add(reached.offset).saturating_sub(age))
    }

    /// What the clock has surely reached, if a message of our own showed it not long ago; never less than before, unless the
    /// clock was set.
    pub fn now(&mut self, at: Mono) -> Option<StoreNow> {
        if self.own_age(at)? > OLDEST {
            return None;
        }
        let now = self.told.max(Some(StoreNow(self.at_least(at)?)));
        self.told = now;
        now
    }

    /// The newest message of our own.
    pub fn newest_own(&self) -> Option<Own> {
        self.own
    }

    pub fn own_age(&self, at: Mono) -> Option<Duration> {
        self.own.map(|own| at.since(own.sent))
    }
}

fn micros(at: Mono) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn beat(clock: &mut ServerClock, revision: u64, sent: u64, stored: i64, received: u64) {
        clock.wrote(revision, Mono(sent));
        clock.heard(revision, stored, Mono(received));
    }

    #[test]
    fn the_clock_is_never_ahead_of_the_servers_and_as_near_as_the_fastest_message() {
        let mut clock = ServerClock::default();
        assert_eq!(clock.now(Mono(0)), None, "nothing was heard");
        clock.heard(1, HOUR, Mono(5_000));
        assert_eq!(clock.now(Mono(5_000)), None, "nothing of our own was heard");
        beat(&mut clock, 2, 9_000, HOUR + 9_500, 10_000);
        assert_eq!(clock.now(Mono(10_000)), Some(StoreNow(HOUR + 9_500)));
        // A slow one says less than is known.
        beat(&mut clock, 3, 20_000, HOUR + 20_000, 90_000);
        assert_eq!(clock.now(Mono(90_000)), Some(StoreNow(HOUR + 89_484)), "16 µs for the drift of 80 ms");
    }

    #[test]
    fn a_clock_without_a_message_of_our_own_for_30_s_is_not_known() {
        let mut clock = ServerClock::default();
        beat(&mut clock, 1, 0, HOUR, 1_000);
        clock.heard(2, HOUR + 29_000_000, Mono(29_000_000));
        assert!(clock.now(Mono(30_000_000)).is_some());
        assert_eq!(clock.now(Mono(30_000_001)), None);
        beat(&mut clock, 3, 30_000_002, HOUR + 30_000_500, 30_001_000);
        assert!(clock.now(Mono(30_001_000)).is_some());
    }

    #[test]
    fn the_reply_may_come_before_or_after_the_message_and_the_message_may_be_a_later_one() {
        let mut after = ServerClock::default();
        after.heard(5, HOUR, Mono(1_000));
        after.wrote(5, Mono(0));
        assert_eq!(after.newest_own(), Some(Own { sent: Mono(0), stored: HOUR }));
        let mut replaced = ServerClock::default();
        replaced.wrote(5, Mono(0));
        replaced.heard(4, HOUR - 1, Mono(900));
        assert_eq!(replaced.newest_own(), None);
        replaced.heard(6, HOUR, Mono(1_000));
        assert_eq!(replaced.newest_own(), Some(Own { sent: Mono(0), stored: HOUR }));
    }

    #[test]
    fn a_clock_that_was_set_is_followed_in_both_directions() {
        let mut clock = ServerClock::default();
        beat(&mut clock, 1, 0, 2 * HOUR, 1_000);
        beat(&mut clock, 2, 1_000_000, 3 * HOUR, 1_001_000);
        assert_eq!(clock.now(Mono(1_001_000)), Some(StoreNow(3 * HOUR)));
        beat(&mut clock, 3, 2_000_000, HOUR, 2_001_000);
        assert_eq!(clock.now(Mono(2_001_000)), Some(StoreNow(HOUR)));
        // Another leader's clock is a little behind: within what is borne, it stands still and never goes back.
        beat(&mut clock, 4, 2_002_000, HOUR - 10_000, 2_003_000);
        assert_eq!(clock.now(Mono(2_003_000)), Some(StoreNow(HOUR + 2_000)));
    }

    #[test]
    fn extreme_clocks_are_borne() {
        for stored in [i64::MIN, i64::MAX, 0] {
            let mut clock = ServerClock::default();
            beat(&mut clock, 1, 0, 0, 1);
            beat(&mut clock, 2, u64::MAX - 1, stored, u64::MAX);
            let _ = (clock.now(Mono(0)), clock.now(Mono(u64::MAX)));
        }
    }
}
