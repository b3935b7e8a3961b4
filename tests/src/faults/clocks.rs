//! Clocks that are set, and clocks that are wrong.
//!
//! The workers' wall clock is faked by libfaketime; the monotonic clocks stay real. How far it is off stands in a file, so
//! that it can be set while they run.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{SLACK, assert_complete, has_line, lateness, mono, secs, signed_lateness};
use crate::{
    deeds::What,
    history::Run,
    process::{Orders, Worker},
    site::Site,
    wait::until_so,
};
use anarchon::clock::{Clock as _, SystemClock};

/// These set the clock of the store by setting those of all processes.
pub(super) const SETS_THE_STORE: [&str; 3] = [
    "a_daily_job_runs_once_when_the_clocks_are_set_back",
    "a_daily_job_in_the_gap_of_berlin_runs_at_the_first_instant_after_it",
    "a_daily_job_in_the_gap_of_new_york_runs_at_the_first_instant_after_it",
];

/// Two of three clocks are wrong here.
pub(super) const NEEDS_A_SERVER: [&str; 1] = [
    "instances_whose_clocks_are_three_minutes_ahead_and_behind_run_each_nominal_once_at_the_time_of_the_store",
];

/// One clock is wrong, and the others are right.
pub(super) const NEEDS_A_CLOCK_FOR_ALL: [&str; 1] =
    ["an_instance_whose_clock_is_two_hours_ahead_for_a_while_changes_nothing"];

/// A wall clock that several processes share.
pub(crate) struct FakeClock {
    file: PathBuf,
}

impl FakeClock {
    pub(crate) fn new(site: &Site, name: &str) -> Self {
        let clock = Self { file: site.directory().join(name) };
        clock.set(0);
        clock
    }

    /// Puts the clock ahead of the real one by so many µs.
    pub(crate) fn set(&self, micros: i64) {
        // In one step: a process may read at any time.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{:+.6}\n", micros as f64 / 1e6)).expect("a file can be written");
        fs::rename(&new, &self.file).expect("a file can be put in place");
    }

    /// Sets it, which is also that of the store, to an instant.
    fn set_to(&self, site: &Site, instant: &str, before: Duration) -> i64 {
        site.deeds().note(What::ClocksSet);
        let to = millis(instant);
        self.set((to - before.as_millis() as i64) * 1000 - SystemClock.wall_micros());
        to
    }

    pub(crate) fn environment(&self) -> [(String, String); 6] {
        [
            ("LD_PRELOAD", library()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.to_str().expect("plain text").to_owned()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
            ("NO_FAKE_STAT", "1".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }
}

/// Where the package `faketime` puts it.
fn library() -> String {
    let places = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    places
        .chain(["/usr/lib", "/usr/local/lib"].map(PathBuf::from))
        .map(|place| place.join("faketime/libfaketimeMT.so.1"))
        .find(|library| Path::exists(library))
        .and_then(|library| library.to_str().map(str::to_owned))
        .expect("libfaketime is missing; install the package \"faketime\"")
}

fn millis(instant: &str) -> i64 {
    instant.parse::<chrono::DateTime<chrono::Utc>>().expect("an instant").timestamp_millis()
}

/// How long before the instant in question the workers are started.
const EARLY: u64 = 20;

fn daily(rule: &str) -> Orders {
    Orders::new([format!("daily,{rule},catch_up=10m,lease=5s"), "tick,every=1s,lease=5s".to_owned()])
}

fn newest_tick(site: &Site) -> i64 {
    site.history().runs("tick").last().map_or(0, |run| run.start.nominal)
}

fn assert_never_paused(site: &Site) {
    for pair in site.history().runs("tick").windows(2) {
        let pause = pair[1].start.mono.since(pair[0].start.mono);
        assert!(pause <= secs(2) + SLACK, "a job in UTC paused for {pause:?} before {}", pair[1].start);
    }
}

pub(super) fn a_daily_job_runs_once_when_the_clocks_are_set_back(site: &Site) {
    let clock = FakeClock::new(site, "clock");
    let first = clock.set_to(site, "2025-10-26T00:00:00Z", secs(EARLY));
    let second = millis("2025-10-26T01:00:00Z");
    let orders = daily("cron=0 2 * * *,tz=Europe/Berlin").environment(clock.environment());
    let workers = site.start_all(2, &orders);
    let run = site.run("daily", "has ended well", Run::is_done);
    assert_eq!(run.start.nominal, first);
    until_so("2:00 has passed for the first time", || newest_tick(site) >= first + 3000);
    // All clocks of the host go on to just before 2:00 comes again; the store follows after 45 s.
    clock.set_to(site, "2025-10-26T01:00:00Z", secs(70));
    until_so("2:00 has passed for the second time", || newest_tick(site) >= second + 5000);
    assert_eq!(site.history().runs("daily"), [run]);
    assert_never_paused(site);
    drop(workers);
    site.verify();
}

pub(super) fn a_daily_job_in_the_gap_of_berlin_runs_at_the_first_instant_after_it(site: &Site) {
    gap(site, "cron=0 2 * * *,tz=Europe/Berlin", "2025-03-30T01:00:00Z");
}

pub(super) fn a_daily_job_in_the_gap_of_new_york_runs_at_the_first_instant_after_it(site: &Site) {
    gap(site, "cron=30 2 * * *,tz=America/New_York", "2025-03-09T07:00:00Z");
}

fn gap(site: &Site, rule: &str, after_the_gap: &str) {
    let clock = FakeClock::new(site, "clock");
    let instant = clock.set_to(site, after_the_gap, secs(EARLY));
    let workers = site.start_all(2, &daily(rule).environment(clock.environment()));
    let run = site.run("daily", "has ended well", Run::is_done);
    assert_eq!(run.start.nominal, instant);
    until_so("5 s have passed since", || newest_tick(site) >= instant + 5000);
    assert_eq!(site.history().runs("daily"), [run]);
    assert_never_paused(site);
    drop(workers);
    site.verify();
}

pub(super) fn an_instance_whose_clock_is_two_hours_ahead_for_a_while_changes_nothing(site: &Site) {
    const INTERVAL: i64 = 2000;
    let clock = FakeClock::new(site, "clock");
    let orders = Orders::new(["tick,every=2s,lease=5s"]);
    let wrong = site.start(&orders.clone().environment(clock.environment()));
    let right = site.start_all(2, &orders);
    let has_run_since = |worker: &Worker, since| {
        site.history().runs("tick").iter().any(|run| run.start.pid == worker.pid() && run.start.mono > since)
    };
    let begin = mono();
    until_so("all three run", || {
        has_run_since(&wrong, begin) && right.iter().all(|w| has_run_since(w, begin))
    });
    let from = newest_tick(site);
    clock.set(2 * 3600 * 1_000_000);
    let set = mono();
    until_so("the wrong clock is told of", || {
        has_line(&wrong.log(), &["local clock is 7", "ahead of the store's"])
    });
    until_so("it is longer than nobody would confirm the right one", || mono() >= set.plus(secs(46)));
    clock.set(0);
    let corrected = mono();
    until_so("the corrected one runs again", || has_run_since(&wrong, corrected));
    until_so("its clock is told to be right", || has_line(&wrong.log(), &["agrees with the store's again"]));
    let to = newest_tick(site);

    assert_in_time(site);
    assert_complete(site, &["tick"], from, to, INTERVAL);
    drop((wrong, right));
    site.verify();
}

fn assert_in_time(site: &Site) {
    for run in site.history().runs("tick") {
        // The clock of the machine may have been slewed a little meanwhile.
        assert!(signed_lateness(&run) > -20_000, "before its time: {}", run.start);
        assert!(lateness(&run) <= secs(1) + SLACK, "after its time: {}", run.start);
    }
}

pub(super) fn instances_whose_clocks_are_three_minutes_ahead_and_behind_run_each_nominal_once_at_the_time_of_the_store(
    site: &Site,
) {
    const INTERVAL: i64 = 1000;
    let orders = Orders::new(["tick,every=1s,lease=5s"]);
    let with_clock = |name: &str, micros: i64| {
        let clock = FakeClock::new(site, name);
        clock.set(micros);
        site.start(&orders.clone().environment(clock.environment()))
    };
    let (ahead, behind) = (with_clock("ahead", 180_000_000), with_clock("behind", -180_000_000));
    let right = site.start(&orders);
    let has_run =
        |worker: &Worker| site.history().runs("tick").iter().any(|run| run.start.pid == worker.pid());
    until_so("all three run", || [&ahead, &behind, &right].into_iter().all(has_run));
    for (worker, direction) in [(&ahead, "ahead of the store's"), (&behind, "behind the store's")] {
        until_so("the wrong clocks are told of", || {
            has_line(&worker.log(), &["local clock is 1", direction])
        });
    }
    let from = newest_tick(site) + INTERVAL;
    until_so("some time is over", || newest_tick(site) >= from + 20_000);
    assert_in_time(site);
    assert_complete(site, &["tick"], from, from + 20_000, INTERVAL);
    assert!(!has_line(&right.log(), &["local clock is"]), "the right one is warned");
    drop((ahead, behind, right));
    site.verify();
}
