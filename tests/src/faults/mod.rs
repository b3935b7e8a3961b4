//! What holds with real processes that are really killed, frozen and cut off: one list for every store.
//!
//! Times are judged on the clock that all processes of a machine share, by what handlers wrote down. Where the design
//! says «within a second», a test says «within a second and [`SLACK`]»: the machine may be busy, and is with these tests.

mod budget;
pub(crate) mod clocks;
mod crashes;
mod deployments;
pub mod disconnects;
pub mod downtime;
mod failures;
pub mod holes;
pub mod kills;
mod long_runs;
pub mod losses;
pub mod many;
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
    process::{Orders, Worker},
    site::{Site, TestStore},
    soak::soak,
};

/// What a busy machine may add to a promised time. With the shortest lease, 5 s, twice the lease is still too late.
pub const SLACK: Duration = Duration::from_secs(3);

/// One scenario: a sentence that can be false, and how it plays.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    name: &'static str,
    play: Play,
}

#[derive(Debug, Clone, Copy)]
enum Play {
    /// With few and with many equal processes, and how much it loads the machine with each.
    Equals([usize; 2], fn(&Site, usize)),
    /// With processes of its own, and how much it loads the machine.
    Own(usize, fn(&Site)),
}

/// One play of a scenario.
struct Turn {
    name: String,
    load: usize,
    play: Box<dyn Fn(&Site) + Send>,
}

impl Scenario {
    fn turns(self, processes: [usize; 2]) -> Vec<Turn> {
        let Self { name, play } = self;
        match play {
            Play::Own(load, play) => vec![Turn { name: name.to_owned(), load, play: Box::new(play) }],
            Play::Equals(loads, play) => {
                let with = |(count, load)| Turn {
                    name: format!("{count}::{name}"),
                    load,
                    play: Box::new(move |site| play(site, count)),
                };
                processes.into_iter().zip(loads).map(with).collect()
            }
        }
    }
}

macro_rules! scenarios {
    ($($play:ident $load:tt $module:ident $name:ident;)+) => {
        [$(Scenario { name: stringify!($name), play: Play::$play($load, $module::$name) },)+]
    };
}

/// All scenarios, the longest first.
///
/// Those with processes of their own, whatever their number: in `clocks` each process has a clock of its own, or all share
/// one that is set, which only SQLite follows; a claim on its way, a process that is told to end while it starts, and
/// what a run logs are matters of one process.
fn scenarios() -> Vec<Scenario> {
    scenarios! {
        Own 1 clocks a_daily_job_runs_once_when_the_clocks_are_set_back;
        Equals [1, 2] once instances_started_one_after_the_other_keep_to_one_grid;
        Equals [6, 12] once processes_that_come_and_go_run_every_nominal_time_exactly_once;
        Own 1 clocks an_instance_whose_clock_is_two_hours_ahead_for_a_while_changes_nothing;
        Equals [6, 12] once processes_that_stay_run_every_nominal_time_exactly_once;
        Equals [1, 2] long_runs a_run_longer_than_its_interval_skips_occurrences_and_never_runs_twice_at_once;
        Own 1 deployments a_killed_instance_of_a_deployment_leaves_its_runs_to_those_that_have_the_job;
        Equals [1, 2] deployments a_deployment_of_two_builds_and_its_roll_back_run_each_nominal_once_and_need_no_hand;
        Equals [1, 2] downtime downtime_of_all_is_followed_by_one_catch_up_run_within_the_window_and_none_outside_it;
        Equals [1, 2] downtime processes_that_all_slept_over_a_due_time_catch_up_like_restarted_ones;
        Equals [1, 2] crashes a_killed_winner_is_followed_by_attempt_two_elsewhere_once_its_lease_is_over;
        Equals [1, 3] crashes a_frozen_winner_does_nothing_more_when_it_wakes_after_its_lease;
        Equals [1, 2] long_runs a_run_of_five_leases_keeps_its_lease;
        Equals [1, 2] long_runs a_handler_that_blocks_its_thread_for_five_leases_keeps_its_lease;
        Equals [1, 2] downtime a_store_that_hangs_over_a_due_time_costs_no_process_and_the_latest_missed_run_comes_once;
        Equals [1, 2] downtime a_store_that_vanishes_over_a_due_time_costs_no_process_and_the_latest_missed_run_comes_once;
        Own 1 clocks instances_whose_clocks_are_three_minutes_ahead_and_behind_run_each_nominal_once_at_the_time_of_the_store;
        Own 1 deployments what_fell_due_while_a_new_schedule_was_waited_for_runs_whoever_puts_it_in_force;
        Equals [2, 3] failures erring_panicking_and_endless_handlers_harm_no_healthy_job_and_are_recorded;
        Equals [1, 2] crashes a_finish_from_a_frozen_thread_is_refused;
        Equals [1, 2] shutdowns a_run_that_ends_in_the_drain_is_the_only_attempt;
        Own 1 clocks a_daily_job_in_the_gap_of_berlin_runs_at_the_first_instant_after_it;
        Own 1 clocks a_daily_job_in_the_gap_of_new_york_runs_at_the_first_instant_after_it;
        Equals [1, 2] crashes a_job_that_kills_its_process_is_given_up_after_max_attempts;
        Equals [1, 2] shutdowns a_run_that_outlasts_the_drain_is_given_back_and_not_held_until_its_lease_ends;
        Equals [1, 2] shutdowns a_run_that_gives_up_at_shutdown_is_given_back_at_once;
        Equals [1, 2] failures an_error_is_retried_as_often_and_as_late_as_the_job_says;
        Equals [1, 2] failures a_run_longer_than_its_timeout_is_recorded_as_an_error;
        Own 1 shutdowns a_claim_on_its_way_at_shutdown_is_run_and_not_lost;
        Own 1 shutdowns a_process_told_to_end_while_it_starts_ends_well;
        Own 1 failures what_a_run_logs_carries_the_fixed_fields;
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
    /// That of whoever calls: one that is wrong is wrong for all that its process does.
    OfEachProcess,
}

impl StoreClock {
    /// Whether a scenario can be played on it.
    fn suits(self, scenario: &Scenario) -> bool {
        match self {
            Self::OfTheHost => !clocks::NEEDS_A_SERVER.contains(&scenario.name),
            Self::OfTheServer => !clocks::SETS_THE_STORE.contains(&scenario.name),
            // Such a store announces nothing either.
            Self::OfEachProcess => {
                scenario.name != deployments::NEEDS_ANNOUNCEMENTS
                    && !clocks::NEEDS_A_SERVER.contains(&scenario.name)
                    && !clocks::NEEDS_A_CLOCK_FOR_ALL.contains(&scenario.name)
            }
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
    /// How many are few and many equal processes on it.
    pub processes: [usize; 2],
    /// Makes one, for one scenario with that directory.
    pub start: fn(&Path) -> Box<dyn TestStore>,
    /// Makes one that others use too, for a scenario that does not need one for itself: where a start costs much.
    pub share: Option<fn() -> Box<dyn TestStore>>,
}

/// The scenarios that stop the store, or load it so much that others would feel it.
const ALONE: [&str; 6] = [
    "processes_that_come_and_go_run_every_nominal_time_exactly_once",
    "processes_that_stay_run_every_nominal_time_exactly_once",
    "a_store_that_hangs_over_a_due_time_costs_no_process_and_the_latest_missed_run_comes_once",
    "a_store_that_vanishes_over_a_due_time_costs_no_process_and_the_latest_missed_run_comes_once",
    "a_claim_on_its_way_at_shutdown_is_run_and_not_lost",
    "a_process_told_to_end_while_it_starts_ends_well",
];

/// A scenario of one store, which makes its own site.
#[derive(Debug, Clone, Copy)]
pub struct Special {
    /// A sentence that can be false.
    pub name: &'static str,
    /// How much it loads the machine.
    pub load: usize,
    /// How it plays.
    pub play: fn(),
}

/// What a minute of [`soak`](crate::soak::soak) loads the machine with.
const SOAK: usize = 4;

/// The `main` of the program: each scenario on each store, what is special to a store, and a minute of soaking on one of them, all
/// under one budget.
#[must_use]
pub fn main(
    worker: &'static str,
    candidates: &[Candidate],
    specials: &[(&str, Vec<Special>)],
    soaked: &'static str,
) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They wait most of the time; how many play at once is bounded by what they load.
    arguments.test_threads.get_or_insert(BUDGET);
    let budget = Arc::new(Budget::default());
    let mut trials = Vec::new();
    let own = Arc::clone(&budget);
    let a_minute = "a_minute_of_kills_freezes_cuts_and_deployments_breaks_no_promise";
    trials.push(Trial::test(format!("{soaked}::{a_minute}"), move || {
        let _share = own.take(SOAK).0;
        println!("{}", soak(worker, soaked, secs(60), random().u64(..)));
        Ok(())
    }));
    for (store, specials) in specials {
        for Special { name, load, play } in specials.iter().copied() {
            let budget = Arc::clone(&budget);
            trials.push(Trial::test(format!("{store}::{name}"), move || {
                // Its start is part of its load.
                let _share = budget.take(load).0;
                play();
                Ok(())
            }));
        }
    }
    for scenario in scenarios() {
        for candidate in candidates.iter().filter(|candidate| candidate.clock.suits(&scenario)) {
            for Turn { name, load, play } in scenario.turns(candidate.processes) {
                let (budget, start) = (Arc::clone(&budget), candidate.start);
                let share = candidate.share.filter(|_| !ALONE.contains(&scenario.name));
                trials.push(Trial::test(format!("{}::{name}", candidate.name), move || {
                    let (_share, starting) = budget.take(load);
                    let site = Site::new(Path::new(worker), |directory| {
                        share.map_or_else(|| start(directory), |share| share())
                    });
                    site.keep_until_started(starting);
                    judged(play, &site)
                }));
            }
        }
    }
    run(&arguments, trials).exit_code()
}

fn judged(play: impl Fn(&Site), site: &Site) -> Result<(), Failed> {
    let played = catch_unwind(AssertUnwindSafe(|| play(site)));
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
#[must_use]
pub fn mono() -> Mono {
    SystemClock.mono()
}

/// Now, in ms since the epoch.
#[must_use]
pub fn wall_ms() -> i64 {
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

/// A schedule that is due once in this time, so far ahead, and when that is, in ms since the epoch.
#[must_use]
pub fn once(ahead: Duration) -> (String, i64) {
    let at = wall_ms() + ahead.as_millis() as i64;
    (format!("every=3600s,offset={}ms", at.rem_euclid(3_600_000)), at)
}

/// Randomness that can be had again.
fn random() -> fastrand::Rng {
    let asked = std::env::var("ANARCHON_SEED").ok();
    let seed = asked.map_or_else(
        || fastrand::u64(..),
        |text| text.parse().unwrap_or_else(|error| panic!("ANARCHON_SEED is {text:?}: {error}")),
    );
    println!("set ANARCHON_SEED={seed} for the same order of starts and stops");
    fastrand::Rng::with_seed(seed)
}

/// How far ahead a first occurrence is to be, so that so many processes are there before it.
fn begin_of(processes: usize) -> Duration {
    Duration::from_secs(3) + Duration::from_millis(200) * u32::try_from(processes).expect("a few")
}

/// So many processes, that of the winner of a run of the job `j` first, and that run after so many steps.
fn winner_and_others(
    site: &Site,
    processes: usize,
    orders: &Orders,
    steps: usize,
) -> (Worker, Vec<Worker>, Run) {
    let mut workers = site.start_all(processes, orders);
    let run = site.run("j", "is in full swing", |run| run.steps >= steps && !run.is_done());
    let winner = workers.iter().position(|worker| worker.pid() == run.start.pid).expect("one of them");
    (workers.swap_remove(winner), workers, run)
}

/// So many seconds.
#[must_use]
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Each of the jobs has come to its end at every nominal time of the interval.
///
/// The newest occurrence wins by design: one that nobody could claim for a whole interval is decided by the next, and
/// one whose predecessor still ran is skipped. With short intervals a machine that stalls brings that about. So a nominal
/// time may be missing where a worker logged the skip, or a stall of half an interval or more at that time; but not more
/// than one of ten.
///
/// # Panics
/// When it is not so.
pub fn assert_complete(site: &Site, jobs: &[impl AsRef<str>], from: i64, to: i64, interval: i64) {
    let (history, logs) = (site.history(), site.logs());
    let stalls: Vec<(i64, i64)> =
        logs.lines().filter_map(stall).filter(|(from, to)| (to - from) * 2 >= interval).collect();
    let skips: Vec<&str> = logs.lines().filter(|line| line.contains("skipped")).collect();
    let times: Vec<i64> = (from..to).step_by(usize::try_from(interval).expect("positive")).collect();
    let (mut missing, mut unexplained) = (0, Vec::new());
    for job in jobs.iter().map(AsRef::as_ref) {
        let runs = history.runs(job);
        let done: BTreeSet<i64> =
            runs.iter().filter(|run| run.is_done()).map(|run| run.start.nominal).collect();
        for nominal in times.iter().filter(|nominal| !done.contains(nominal)) {
            missing += 1;
            let occurrence = Millis(*nominal);
            let skip = [format!("job={job} "), format!("occurrence={occurrence}")];
            let was_skipped = skips.iter().any(|line| skip.iter().all(|part| line.contains(part)));
            let was_stalled = stalls.iter().any(|(from, to)| *from < nominal + interval && nominal < to);
            if !was_stalled && !was_skipped {
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

/// Checks that nothing was logged as an error, but for what a client of a store says of its connections.
///
/// # Panics
/// When something was.
pub fn assert_no_errors(log: &str) {
    let is_of_client = |line: &str| [" lapin::", " async_nats::"].iter().any(|client| line.contains(client));
    let errors: Vec<&str> =
        log.lines().filter(|line| line.contains(" ERROR ") && !is_of_client(line)).collect();
    assert!(errors.is_empty(), "errors were logged: {errors:#?}");
}

/// A line of a log that holds all of these.
fn has_line(log: &str, parts: &[&str]) -> bool {
    log.lines().any(|line| parts.iter().all(|part| line.contains(part)))
}
