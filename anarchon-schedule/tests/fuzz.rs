//! Arbitrary text never panics or hangs, and what it yields keeps the promises of a schedule.
//!
//! Replays each line of `corpus/`, then mutates them.

mod fuzzing;

use anarchon_schedule::{At, Cron, Every, Spec, parse_duration};
use chrono::{DateTime, TimeDelta, Utc};

use crate::fuzzing::{Random, play};

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
    let make = |random: &mut Random| {
        let (kind, text) = *random.pick(&CORPUS);
        let lines: Vec<_> = text.lines().collect();
        (kind, random.text(&lines, &PIECES), instant(random))
    };
    play(20_000, make, |(kind, line, instant)| check(kind, line, *instant));
}

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

fn instant(random: &mut Random) -> DateTime<Utc> {
    match random.below(8) {
        0 => DateTime::<Utc>::MIN_UTC + TimeDelta::seconds(random.below(200_000_000) as i64),
        1 => DateTime::<Utc>::MAX_UTC - TimeDelta::seconds(random.below(200_000_000) as i64),
        2 => DateTime::from_timestamp(random.next() as i64 / 2_000_000, 0).unwrap_or_default(),
        _ => DateTime::from_timestamp_millis((random.next() % 4_200_000_000_000) as i64).unwrap_or_default(),
    }
}
