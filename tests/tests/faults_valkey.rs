//! Real processes, really killed, frozen and cut off, on Valkey: those scenarios in which the server has a part. The others
//! play on Redis, with the same code on our side.

use std::process::ExitCode;

use anarchon_tests::{
    faults::{StoreClock, trials},
    servers::redis::{Kind, RedisStore},
};
use libtest_mimic::{Arguments, run};

const CHOSEN: [&str; 6] = [
    "a_store_that_hangs_over_a_due_time_costs_no_process_and_the_latest_missed_run_comes_once",
    "a_store_that_vanishes_over_a_due_time_costs_no_process_and_the_latest_missed_run_comes_once",
    "three_processes_run_every_nominal_time_exactly_once",
    "a_killed_winner_is_followed_by_attempt_two_elsewhere_once_its_lease_is_over",
    "a_frozen_winner_does_nothing_more_when_it_wakes_after_its_lease",
    "a_run_that_outlasts_the_drain_is_given_back_and_not_held_until_its_lease_ends",
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(16);
    let mut trials = trials(env!("CARGO_BIN_EXE_worker"), StoreClock::OfTheServer, |_| {
        Box::new(RedisStore::new(Kind::Valkey))
    });
    trials.retain(|trial| CHOSEN.contains(&trial.name()));
    assert_eq!(trials.len(), CHOSEN.len(), "a chosen scenario is there no more");
    run(&arguments, trials).exit_code()
}
