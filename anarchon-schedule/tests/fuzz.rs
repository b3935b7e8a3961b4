//! Arbitrary text never panics or hangs, and what it yields keeps the promises of a schedule.
//!
//! Replays each line of `corpus/`, then mutates them: 20,000 times, or for as many seconds as
//! `ANARCHON_FUZZ_SECONDS` says. A failure prints the seed of the mutation; `ANARCHON_FUZZ_SEED` begins at it.

use std::time::{Duration, Instant};

use anarchon_schedule::{At, Cron, Every, Spec, parse_duration};
use chrono::{DateTime, TimeDelta, Utc};

const CORPUS: [(&str, &str); 5] = [
    ("cron", include_str!("corpus/cron.txt")),
    ("quartz", include_str!("corpus/quartz.txt")),
    ("every", include_str!("corpus/every.txt")),
    ("at", include_str!("corpus/at.txt")),
    ("zone", include_str!("corpus/zone.txt")),
];

#[test]
fn the_corpus_is_handled() {
    for (kind, text) in CORPUS {
        assert!(text.lines().count() > 5);
        for line in text.lines() {
            check(kind, line, DateTime::UNIX_EPOCH);
        }
    }
}

#[test]
fn mutations_of_the_corpus_are_handled() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect(name));
    let first = number("ANARCHON_FUZZ_SEED").unwrap_or(1);
    let end = number("ANARCHON_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut accepted = 0_u64;
    for seed in first.. {
        if end.map_or(seed - first >= 20_000, |end| seed % 64 == 0 && Instant::now() > end) {
            println!("{} texts, {accepted} accepted", seed - first);
            break;
        }
        let mut random = Random(seed);
        let (kind, text) = CORPUS[random.below(CORPUS.len())];
        let lines: Vec<_> = text.lines().collect();
        let line = random.mutate(&lines);
        let instant = random.instant();
        let started = Instant::now();
        let outcome = std::panic::catch_unwind(|| check(kind, &line, instant));
        match outcome {
            Ok(fine) => accepted += u64::from(fine),
            Err(_) => panic!("seed {seed}: {kind} {line:?} at {instant:?}"),
        }
        let took = started.elapsed();
        assert!(took < Duration::from_secs(2), "seed {seed}: {kind} {line:?} at {instant:?} took {took:?}");
    }
    assert!(accepted > 0);
}

fn check(kind: &str, line: &str, t: DateTime<Utc>) -> bool {
    let _ = parse_duration(line);
    let (first, second) = line.split_once('|').unwrap_or((line, ""));
    let spec: Spec = match kind {
        "cron" => Cron::new(first).tz(if second.is_empty() { "America/New_York" } else { second }).into(),
        "quartz" => Cron::new(first).dialect("quartz").tz("Europe/Athens").into(),
        "every" if second.is_empty() => Every::new(first).into(),
        "every" => Every::new(first).offset(second).into(),
        "at" if second.is_empty() => At::new(first).tz("Europe/Athens").into(),
        "at" => At::new(first).and(second).into(),
        _ => Cron::new("30 2 * * *").tz(first).into(),
    };
    let schedule = match spec.check() {
        Ok(schedule) => schedule,
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                let texts = [first, second, "America/New_York"];
                assert!(texts.iter().any(|text| text.get(error.range()).is_some()), "{error:?}");
                assert!(!error.to_string().contains('\n'));
            }
            return false;
        }
    };
    assert!(!schedule.to_string().is_empty());
    assert!(!schedule.canonical().is_empty());
    let _ = schedule.local(t);
    let latest = schedule.latest_at_or_before(t);
    assert!(latest.is_none_or(|latest| latest <= t));
    let next = schedule.next_after(t);
    if let Some(next) = next {
        assert!(next > t);
        assert_eq!(schedule.latest_at_or_before(next), Some(next));
        assert_eq!(schedule.latest_at_or_before(next - TimeDelta::nanoseconds(1)), latest);
    }
    if let Some(latest) = latest {
        assert_eq!(schedule.next_after(latest), next);
    }
    true
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn mutate(&mut self, lines: &[&str]) -> String {
        const PIECES: [&str; 40] = [
            "*",
            "/",
            "-",
            ",",
            "?",
            "L",
            "W",
            "LW",
            "#",
            " ",
            "\t",
            "0",
            "1",
            "7",
            "29",
            "30",
            "31",
            "59",
            "60",
            "4294967296",
            "99999999999999999999",
            "MON",
            "feb",
            "@",
            "=",
            "T",
            "Z",
            "+",
            ":",
            ".",
            "ms",
            "h",
            "w",
            "|",
            "é",
            "\u{a0}",
            "\0",
            "\"",
            "2099",
            "*/2",
        ];
        let mut text: Vec<char> = lines[self.below(lines.len())].chars().collect();
        for _ in 0..=self.below(4) {
            let at = self.below(text.len() + 1);
            let until = at + self.below(4).min(text.len() - at);
            match self.below(5) {
                0 => drop(text.drain(at..until)),
                1 => {
                    drop(text.splice(at..until, PIECES[self.below(PIECES.len())].chars()).collect::<Vec<_>>())
                }
                2 => drop(text.splice(at..at, PIECES[self.below(PIECES.len())].chars()).collect::<Vec<_>>()),
                3 => {
                    let other: Vec<char> = lines[self.below(lines.len())].chars().collect();
                    let from = self.below(other.len() + 1);
                    text.truncate(at);
                    text.extend(&other[from..]);
                }
                _ => {
                    if let Some(c) = text.get_mut(at) {
                        *c = char::from(32 + self.below(95) as u8);
                    }
                }
            }
        }
        text.into_iter().collect()
    }

    fn instant(&mut self) -> DateTime<Utc> {
        match self.below(8) {
            0 => DateTime::<Utc>::MIN_UTC + TimeDelta::seconds(self.below(200_000_000) as i64),
            1 => DateTime::<Utc>::MAX_UTC - TimeDelta::seconds(self.below(200_000_000) as i64),
            2 => DateTime::from_timestamp(self.next() as i64 / 2_000_000, 0).unwrap_or_default(),
            _ => {
                DateTime::from_timestamp_millis((self.next() % 4_200_000_000_000) as i64).unwrap_or_default()
            }
        }
    }
}
