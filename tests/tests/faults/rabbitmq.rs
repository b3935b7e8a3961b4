//! Real processes on RabbitMQ, in what the common scenarios do not play: twenty that start at once, many jobs at once, fifty
//! kills of holders, connections that the operator ends, a hole in the network, and a broker that forgets.

use std::{collections::BTreeSet, path::Path, time::Duration};

use anarchon_tests::{
    faults::{
        Special, disconnects::connections_that_are_ended_cost_no_run_its_lease_and_nothing_runs_twice,
        holes::a_holder_cut_off_for_five_leases_ends_its_run_and_another_goes_on,
        kills::fifty_kills_of_holders_cost_no_occurrence_and_run_none_twice,
        losses::a_store_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before,
        many::DueAtOnce, secs,
    },
    servers::rabbitmq::{Broker, Operator},
    site::Site,
    wait::until_so,
};

/// What is played, with what it loads the machine.
pub(crate) fn specials() -> Vec<Special> {
    specials! {
        5 twenty_processes_that_start_at_once_make_one_token_a_job_and_run_each_job_once;
        5 two_hundred_jobs_due_in_one_second_run_once_each;
        6 fifty_kills_of_holders_leave_one_token_a_job;
        3 connections_that_the_operator_ends_cost_no_run;
        3 a_holder_that_cannot_reach_the_broker_for_five_leases_ends_its_run_and_the_other_goes_on;
        3 a_broker_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before;
    }
}

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
const LEASE: Duration = Duration::from_secs(5);

fn site() -> (Site, Operator) {
    let broker = Broker::start();
    let operator = broker.operator();
    (Site::of(WORKER, broker.store()), operator)
}

fn twenty_processes_that_start_at_once_make_one_token_a_job_and_run_each_job_once() {
    let (site, operator) = site();
    let mut jobs = DueAtOnce::start(&site, 20, 20, &[], secs(60));
    let _ = jobs.ran_once_each();
    assert_one_token_each(&operator, &jobs.jobs);
}

fn two_hundred_jobs_due_in_one_second_run_once_each() {
    let (site, operator) = site();
    let mut jobs = DueAtOnce::start(&site, 3, 200, &[], secs(45));
    let _ = jobs.ran_once_each();
    assert_one_token_each(&operator, &jobs.jobs);
}

fn fifty_kills_of_holders_leave_one_token_a_job() {
    let (site, operator) = site();
    let jobs = fifty_kills_of_holders_cost_no_occurrence_and_run_none_twice(&site, LEASE);
    assert_one_token_each(&operator, &jobs);
}

fn connections_that_the_operator_ends_cost_no_run() {
    let (site, operator) = site();
    connections_that_are_ended_cost_no_run_its_lease_and_nothing_runs_twice(&site, || {
        operator.ctl(&["close_all_connections", "an operator ends them"]);
    });
}

fn a_holder_that_cannot_reach_the_broker_for_five_leases_ends_its_run_and_the_other_goes_on() {
    // Three heartbeats, of half a lease in whole seconds each, until the broker gives up the connection; then the rest of the lease.
    let within = LEASE + secs(2);
    a_holder_cut_off_for_five_leases_ends_its_run_and_another_goes_on(
        Path::new(WORKER),
        Broker::start().store(),
        within,
    );
}

fn a_broker_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before() {
    let site = Site::of(WORKER, Broker::start().store().forgetful());
    a_store_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before(&site);
}

/// By what the broker says that it keeps: queues with the messages in them, those that somebody has included.
fn assert_one_token_each(operator: &Operator, jobs: &[String]) {
    let want: BTreeSet<String> = jobs
        .iter()
        .flat_map(|job| [format!("anarchon/faults/{job}\t1"), format!("anarchon/faults/{job}:mark\t0")])
        .collect();
    let told = || operator.ctl(&["list_queues", "--silent", "name", "messages"]);
    // What a killed process declared for itself alone may be there a moment longer.
    until_so("there are no queues but those of the jobs", || told().lines().count() == want.len());
    assert_eq!(told().lines().map(str::to_owned).collect::<BTreeSet<String>>(), want);
}
