//! Nanoseconds per parse, next and latest; the best of several rounds, since the machine is rarely quiet.
//! Run it with `cargo bench -p anarchon-schedule`.

use std::hint::black_box;
use std::time::Instant;

use anarchon_schedule::{Cron, Every, Spec, Zones};
use chrono::{DateTime, TimeDelta, Utc};

fn main() {
    println!("{:<34} {:>8} {:>8} {:>8} {:>8}", "schedule", "parse", "next", "latest", "spread");
    for (expr, zone) in [
        ("* * * * *", "UTC"),
        ("*/15 * * * *", "Europe/Athens"),
        ("0 8 * * 1-5", "Europe/Athens"),
        ("30 2 * * *", "America/New_York"),
        ("0 0 L * *", "America/Sao_Paulo"),
        ("0 9 15W * *", "Asia/Tokyo"),
        ("0 0 1 1 *", "Europe/London"),
        ("0 9 29 2 *", "UTC"),
        ("0 9 29 2 *", "Europe/Athens"),
    ] {
        report(&format!("{expr}  {zone}"), &Spec::from(Cron::new(expr).tz(zone)));
    }
    report("every 10s", &Spec::from(Every::new("10s")));
    report("quartz 0 0 8 ? * MON-FRI", &Spec::from(Cron::new("0 0 8 ? * MON-FRI").dialect("quartz")));
    for zones in [Zones::embedded(), Zones::system()] {
        let started = Instant::now();
        let (schedule, _) =
            Spec::from(Cron::new("0 8 * * *").tz("Europe/Vienna")).resolve(&zones).expect("valid");
        black_box(schedule.next_after(start()));
        println!("first use of a zone, {}: {:?}", zones.version(), started.elapsed());
    }
}

fn report(name: &str, spec: &Spec) {
    let zones = Zones::system();
    let (schedule, _) = spec.resolve(&zones).expect("valid");
    let parse = nanoseconds(|| {
        black_box(black_box(spec).resolve(&zones).is_ok());
    });
    let next = nanoseconds(|| {
        black_box(schedule.next_after(black_box(start())));
    });
    let latest = nanoseconds(|| {
        black_box(schedule.latest_at_or_before(black_box(start())));
    });
    let mut t = start();
    let spread = nanoseconds(|| {
        t += TimeDelta::seconds(86_400 * 3 + 4_321);
        if t > start() + TimeDelta::days(20_000) {
            t = start();
        }
        black_box(schedule.next_after(t));
    });
    println!("{name:<34} {parse:>8.0} {next:>8.0} {latest:>8.0} {spread:>8.0}");
}

fn nanoseconds(mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let started = Instant::now();
        for _ in 0..5_000 {
            work();
        }
        best = best.min(started.elapsed().as_nanos() as f64 / 5_000.0);
    }
    best
}

fn start() -> DateTime<Utc> {
    DateTime::from_timestamp(1_774_000_000, 0).expect("in range")
}
