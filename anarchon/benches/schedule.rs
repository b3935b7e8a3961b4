//! What it takes to read a schedule and to find an occurrence. `cargo bench -p anarchon --bench schedule`

#![expect(clippy::unwrap_used, reason = "a benchmark may end at the first surprise")]

use std::hint::black_box;

use anarchon::{At, Cron, Every};
use anarchon_schedule::{Schedule, Spec, Zones};
use chrono::{DateTime, Duration, Utc};
use criterion::{Criterion, criterion_group, criterion_main};

/// Five-field expressions with their zones, from the common to the rare.
const CRONS: [(&str, &str); 7] = [
    ("* * * * *", "UTC"),
    ("*/5 * * * *", "UTC"),
    ("0 * * * *", "Europe/Athens"),
    ("0 8 * * 1-5", "Europe/Athens"),
    ("30 2 * * *", "America/New_York"),
    ("0 0 1 * *", "Europe/Berlin"),
    ("0 0 29 2 *", "UTC"),
];

fn cron(expression: &str, zone: &str) -> Schedule {
    Spec::from(Cron::new(expression).tz(zone)).check().unwrap()
}

fn all() -> Vec<(String, Schedule)> {
    let mut all: Vec<_> = CRONS
        .iter()
        .map(|(expression, zone)| (format!("{expression} {zone}"), cron(expression, zone)))
        .collect();
    all.push(("every 10s".to_owned(), Spec::from(Every::new("10s")).check().unwrap()));
    all.push(("at".to_owned(), Spec::from(At::new("2027-01-01T00:00:00+02:00")).check().unwrap()));
    all
}

fn instant(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn parse(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse");
    let zones = Zones::system();
    for (expression, zone) in CRONS {
        let spec = Spec::from(Cron::new(expression).tz(zone));
        group.bench_function(format!("{expression} {zone}"), |b| {
            b.iter(|| black_box(&spec).resolve(&zones).unwrap())
        });
    }
    let spec = Spec::from(Every::new("10s"));
    group.bench_function("every 10s", |b| b.iter(|| black_box(&spec).resolve(&zones).unwrap()));
}

fn next(c: &mut Criterion) {
    let mut group = c.benchmark_group("next");
    let begin = instant("2026-03-27T12:34:56Z");
    for (name, schedule) in all() {
        // One occurrence after the other, so that no single lucky or unlucky day is measured.
        let mut at = begin;
        group.bench_function(name, |b| {
            b.iter(|| {
                at = schedule
                    .next_after(black_box(at))
                    .filter(|next| *next < begin + Duration::days(20_000))
                    .unwrap_or(begin)
            });
        });
    }
}

fn latest(c: &mut Criterion) {
    let mut group = c.benchmark_group("latest over ten years");
    let begin = instant("2036-03-27T12:34:56Z");
    for (name, schedule) in all() {
        group.bench_function(name, |b| b.iter(|| schedule.latest_at_or_before(black_box(begin))));
    }
}

criterion_group!(benches, parse, next, latest);
criterion_main!(benches);
