//! What holds with real processes that are really killed, frozen and cut off: one list for every store.
//!
//! Times are judged on the clock that all processes of a machine share, by what handlers wrote down. Where the design
//! says «within a second», a test says «within a second and [`SLACK`]»: the machine may be busy, and is with these tests.

mod budget;
mod clocks;
mod crashes;
mod deployments;
mod downtime;
mod failures;
mod long_runs;
mod once;
mod shutdowns;

use std::{
    any::Any,
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anarchon::{
    clock::{Clock as _, Mono, SystemClock},
    protocol::Millis,
};
use libtest_mimic::{Arguments, Failed, Trial, run};

use self::budget::{BUDGET, Budget};
use crate::{
    history::Run,
    site::{Site, TestStore},
};

/// What a busy machine may add to a promised time. With the shortest lease, 5 s, twice the lease is still too late.
pub const SLACK: Duration = Duration::from_secs(3);

/// One scenario: a sentence that can be false, how much it loads the machine, and how it plays.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// The sentence.
    pub name: &'static str,
    load: usize,
    play: fn(&Site),
}

macro_rules! scenarios {
    ($($module:ident: $($name:ident $load:literal),+;)+) => {
        [$($(Scenario { name: stringify!($name), load: $load, play: $module::$name },)+)+]
    };
}

/// All scenarios, the longest first.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    scenarios! {
        deployments:
            versions_with_other_jobs_and_schedules_run_each_nominal_once_and_the_last_one_standing_decides 1;
        clocks:
            a_daily_job_runs_once_when_the_clocks_are_set_back 1,
            a_daily_job_in_the_gap_of_berlin_runs_at_the_first_instant_after_it 1,
            a_daily_job_in_the_gap_of_new_york_runs_at_the_first_instant_after_it 1,
            an_instance_whose_clock_is_two_hours_ahead_for_a_while_changes_nothing 1,
            instances_whose_clocks_are_three_minutes_ahead_and_behind_run_each_nominal_once_at_the_time_of_the_store 1;
        downtime:
            a_store_that_hangs_over_a_due_time_costs_no_process_and_the_latest_missed_run_comes_once 1,
            a_store_that_vanishes_over_a_due_time_costs_no_process_and_the_latest_missed_run_comes_once 1;
        once:
            three_processes_run_every_nominal_time_exactly_once 3,
            ten_processes_run_every_nominal_time_exactly_once 9,
            processes_that_come_and_go_run_every_nominal_time_exactly_once 4,
            instances_started_one_after_the_other_keep_to_one_grid 1;
        long_runs:
            a_run_longer_than_its_interval_skips_occurrences_and_never_runs_twice_at_once 1,
            a_run_of_five_leases_keeps_its_lease 1,
            a_handler_that_blocks_its_thread_for_five_leases_keeps_its_lease 1;
        crashes:
            a_killed_winner_is_followed_by_attempt_two_elsewhere_once_its_lease_is_over 1,
            a_frozen_winner_does_nothing_more_when_it_wakes_after_its_lease 1,
            a_finish_from_a_frozen_thread_is_refused 1,
            a_job_that_kills_its_process_is_given_up_after_max_attempts 1;
        downtime:
            downtime_of_all_is_followed_by_one_catch_up_run_within_the_window_and_none_outside_it 1,
            processes_that_all_slept_over_a_due_time_catch_up_like_restarted_ones 1;
        shutdowns:
            a_run_that_ends_in_the_drain_is_the_only_attempt 1,
            a_run_that_outlasts_the_drain_is_given_back_and_not_held_until_its_lease_ends 1,
            a_run_that_gives_up_at_shutdown_is_given_back_at_once 1,
            a_claim_on_its_way_at_shutdown_is_run_and_not_lost 1,
            a_process_told_to_end_while_it_starts_ends_well 1;
        failures:
            erring_panicking_and_endless_handlers_harm_no_healthy_job_and_are_recorded 2,
            a_run_longer_than_its_timeout_is_recorded_as_an_error 1,
            an_error_is_retried_as_often_and_as_late_as_the_job_says 1,
            what_a_run_logs_carries_the_fixed_fields 1;
    }
    .to_vec()
}

/// Whose clock a store goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreClock {
    /// The one that the processes of the host agree on: it is set by setting theirs.
    OfTheHost,
    /// Its own: whatever the processes are told, it is right.
    OfTheServer,
}

impl StoreClock {
    /// Whether a scenario can be played on it.
    fn suits(self, scenario: &Scenario) -> bool {
        match self {
            Self::OfTheHost => !clocks::NEEDS_A_SERVER.contains(&scenario.name),
            Self::OfTheServer => !clocks::SETS_THE_STORE.contains(&scenario.name),
        }
    }
}

/// A store on which the scenarios are played.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// What its tests begin with.
    pub name: &'static str,
    /// Whose clock it goes by.
    pub clock: StoreClock,
    /// Makes one, for one scenario with that directory.
    pub start: fn(&Path) -> Box<dyn TestStore>,
}

/// The `main` of the program: each scenario on each store, all under one budget.
#[must_use]
pub fn main(worker: &'static str, candidates: &[Candidate]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They wait most of the time; how many play at once is bounded by what they load.
    arguments.test_threads.get_or_insert(BUDGET);
    let budget = Arc::new(Budget::default());
    let mut trials = Vec::new();
    for scenario in scenarios() {
        for candidate in candidates.iter().filter(|candidate| candidate.clock.suits(&scenario)) {
            let (budget, start) = (Arc::clone(&budget), candidate.start);
            trials.push(Trial::test(format!("{}::{}", candidate.name, scenario.name), move || {
                let _share = budget.take(scenario.load);
                play(scenario, &Site::new(Path::new(worker), start))
            }));
        }
    }
    run(&arguments, trials).exit_code()
}

fn play(scenario: Scenario, site: &Site) -> Result<(), Failed> {
    let played = catch_unwind(AssertUnwindSafe(|| (scenario.play)(site)));
    played.map_err(|panic| format!("{}\n{}", message(&*panic), site.report()).into())
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without words")
}

/// Now, on the clock that all processes share.
fn mono() -> Mono {
    SystemClock.mono()
}

/// Now, in ms since the epoch.
fn wall_ms() -> i64 {
    SystemClock.wall_micros() / 1000
}

/// How long after its planned time a run began, whatever its process thinks of the time.
fn lateness(run: &Run) -> Duration {
    Duration::from_micros(u64::try_from(signed_lateness(run)).unwrap_or(0))
}

/// The same in µs, negative for one that began too early.
fn signed_lateness(run: &Run) -> i64 {
    let micros = |mono: Mono| i64::try_from(mono.0).expect("some years of uptime");
    let ago = micros(mono()) - micros(run.start.mono);
    SystemClock.wall_micros() - ago - run.start.nominal * 1000
}

/// A schedule of this interval whose next occurrence is so far ahead. It need not be met: there is another one later.
fn soon(interval: Duration, ahead: Duration) -> String {
    let (interval, ahead) = (interval.as_millis() as i64, ahead.as_millis() as i64);
    format!("every={interval}ms,offset={}ms", (wall_ms() + ahead).rem_euclid(interval))
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Each of the jobs has come to its end at every nominal time of the interval.
///
/// The newest occurrence wins by design: one that nobody could claim for a whole interval is decided by the next, and
/// one whose predecessor still ran is skipped. With short intervals a machine that stalls brings that about. So a nominal
/// time may be missing where a worker logged the skip, or a stall of half an interval or more at that time; but not more
/// than one of ten.
fn assert_complete(site: &Site, jobs: &[impl AsRef<str>], from: i64, to: i64, interval: i64) {
    let (history, logs) = (site.history(), site.logs());
    let stalls: Vec<(i64, i64)> =
        logs.lines().filter_map(stall).filter(|(from, to)| (to - from) * 2 >= interval).collect();
    let times: Vec<i64> = (from..to).step_by(usize::try_from(interval).expect("positive")).collect();
    let (mut missing, mut unexplained) = (0, Vec::new());
    for job in jobs.iter().map(AsRef::as_ref) {
        let runs = history.runs(job);
        let done: BTreeSet<i64> =
            runs.iter().filter(|run| run.is_done()).map(|run| run.start.nominal).collect();
        for nominal in times.iter().filter(|nominal| !done.contains(nominal)) {
            missing += 1;
            let occurrence = Millis(*nominal);
            let skip = ["skipped", &format!("job={job} "), &format!("occurrence={occurrence}")];
            let was_stalled = stalls.iter().any(|(from, to)| *from < nominal + interval && nominal < to);
            if !was_stalled && !has_line(&logs, &skip) {
                unexplained.push(format!("{job} {occurrence} ({nominal})"));
            }
        }
    }
    assert!(unexplained.is_empty(), "never run, and nothing says why: {}", unexplained.join(", "));
    let planned = jobs.len() * times.len();
    assert!(missing * 10 <= planned, "{missing} of {planned} nominal times have not run");
    println!("{missing} of {planned} nominal times were missed by stalls");
}

/// From when to when, in ms since the epoch, a process stood still or waited for its store, if the line says so.
fn stall(line: &str) -> Option<(i64, i64)> {
    let (written, rest) = line.split_once(' ')?;
    let (_, length) = rest.split_once("stalled_ms=")?;
    let length: i64 = length.split(' ').next()?.parse().ok()?;
    let to = chrono::DateTime::parse_from_rfc3339(written).ok()?.timestamp_millis();
    Some((to - length, to))
}

/// A line of a log that holds all of these.
fn has_line(log: &str, parts: &[&str]) -> bool {
    log.lines().any(|line| parts.iter().all(|part| line.contains(part)))
}
