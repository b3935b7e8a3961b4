//! What all fuzz targets share: a seeded generator, mutations of a sequence, and the loop that plays them.
//!
//! Other crates take this file by its path, so that no published crate depends on another for its tests alone.
#![allow(dead_code, reason = "each target uses a part of it")]
#![allow(
    clippy::disallowed_methods,
    reason = "real time is its limit; crates that take it may read no clocks"
)]

use std::{
    fmt::{self, Debug, Formatter},
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

/// Longer than this for one input is a hang; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Checks so many inputs, or as many as `ANARCHON_FUZZ_SECONDS` has time for, each made from a seed of its own. A failure names
/// the seed; `ANARCHON_FUZZ_SEED` begins at it. `check` says whether the input was a good one, and some have to be.
pub(crate) fn play<T: Debug>(rounds: u64, make: impl Fn(&mut Random) -> T, check: impl Fn(&T) -> bool) {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect(name));
    let first = number("ANARCHON_FUZZ_SEED").unwrap_or(1);
    let end = number("ANARCHON_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut accepted = 0_u64;
    for seed in first.. {
        if end.map_or(seed - first >= rounds, |end| seed % 64 == 0 && Instant::now() > end) {
            println!("{} inputs, {accepted} accepted", seed - first);
            break;
        }
        let input = make(&mut Random(seed));
        let started = Instant::now();
        match catch_unwind(AssertUnwindSafe(|| check(&input))) {
            Ok(fine) => accepted += u64::from(fine),
            Err(_) => panic!("seed {seed}: {input:?}"),
        }
        let took = started.elapsed();
        assert!(took < PATIENCE, "seed {seed}: {input:?} took {took:?}");
    }
    assert!(accepted > 0, "no input was a good one");
}

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below the limit, and 0 where that is 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// The sequence after one to four mutations: parts of it cut, doubled or replaced, by a piece or the end of another sequence.
    pub(crate) fn mutate<T: Clone>(
        &mut self,
        mut sequence: Vec<T>,
        other: impl Fn(&mut Self) -> Vec<T>,
        piece: impl Fn(&mut Self) -> Vec<T>,
    ) -> Vec<T> {
        for _ in 0..=self.below(4) {
            let at = self.below(sequence.len() + 1);
            let most = if self.below(8) == 0 { usize::MAX } else { 4 };
            let until = at + self.below(most.min(sequence.len() - at + 1));
            match self.below(6) {
                0 => drop(sequence.drain(at..until)),
                1 => drop(sequence.splice(at..until, piece(self))),
                2 => drop(sequence.splice(at..at, piece(self))),
                3 => {
                    let part = sequence[at..until].to_vec();
                    drop(sequence.splice(at..at, part));
                }
                4 => {
                    let other = other(self);
                    let from = self.below(other.len() + 1);
                    sequence.truncate(at);
                    sequence.extend_from_slice(&other[from..]);
                }
                _ => {
                    if let Some(one) = sequence.get_mut(at)
                        && let Some(other) = piece(self).first()
                    {
                        one.clone_from(other);
                    }
                }
            }
        }
        sequence
    }

    /// A mutation of one of these texts.
    pub(crate) fn text(&mut self, texts: &[&str], pieces: &[&str]) -> String {
        let any = |random: &mut Self| random.pick(texts).chars().collect();
        let text = any(self);
        let mutated = self.mutate(text, any, |random| match random.below(3) {
            0 => vec![char::from(32 + random.below(95) as u8)],
            _ => random.pick(pieces).chars().collect(),
        });
        mutated.into_iter().collect()
    }

    /// A mutation of one of these byte strings.
    pub(crate) fn bytes(&mut self, texts: &[Vec<u8>], pieces: &[&str]) -> Bytes {
        let any = |random: &mut Self| random.pick(texts).clone();
        let text = any(self);
        Bytes(self.mutate(text, any, |random| match random.below(64) {
            0 => vec![b'x'; 100_000],
            1..16 => vec![random.next() as u8],
            _ => random.pick(pieces).as_bytes().to_vec(),
        }))
    }
}

/// Bytes that are mostly text.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Debug for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0[..self.0.len().min(4000)].escape_ascii())
    }
}
