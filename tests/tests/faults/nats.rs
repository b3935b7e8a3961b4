//! Real processes on NATS, in what the common scenarios do not play: twenty that start at once, many jobs at once, fifty kills
//! of holders, connections that end, a hole in the network, a server that forgets, and clusters whose leader or all is killed.

use std::{path::Path, time::Duration};

use anarchon_tests::{
    deeds::What,
    faults::{
        SLACK, Special, assert_no_errors,
        disconnects::connections_that_are_ended_cost_no_run_its_lease_and_nothing_runs_twice,
        downtime::a_store_that_is_gone_for_20_s,
        holes::a_holder_cut_off_for_five_leases_ends_its_run_and_another_goes_on,
        kills::fifty_kills_of_holders_cost_no_occurrence_and_run_none_twice,
        losses::a_store_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before,
        many::DueAtOnce, mono, once, secs,
    },
    history::Run,
    process::{Orders, Worker},
    proxy::Mode,
    servers::{
        nats::{Release, request, url},
        nats_cluster::SharedCluster,
        store::{Proxied, ServerStore},
    },
    site::Site,
    wait::until,
};
use serde_json::{Value, json};

/// What is played, with what it loads the machine.
pub(crate) fn specials() -> Vec<Special> {
    specials! {
        5 twenty_processes_that_start_at_once_make_one_bucket_and_run_each_job_once;
        5 two_hundred_jobs_due_in_one_second_run_once_each;
        6 fifty_kills_of_holders_leave_one_record_a_job_on_the_oldest_server;
        6 fifty_kills_of_holders_leave_one_record_a_job_on_the_newest_server;
        6 fifty_kills_of_holders_leave_one_record_a_job_on_a_cluster;
        3 a_server_that_is_killed_for_20_s_costs_no_process_and_the_latest_missed_run_comes_once;
        4 a_cluster_that_is_killed_for_20_s_costs_no_process_and_the_latest_missed_run_comes_once;
        3 connections_that_the_operator_ends_cost_no_run;
        3 connections_that_break_cost_no_run_on_a_server_whose_operator_cannot_end_them;
        3 a_holder_that_cannot_reach_the_server_for_five_leases_ends_its_run_and_the_other_goes_on;
        3 a_server_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before;
        5 a_dead_leader_under_load_costs_no_process_no_run_twice_and_no_attempt;
    }
}

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
const STREAM: &str = "KV_anarchon_faults";
const LEASE: Duration = Duration::from_secs(5);
/// The shortest that outlasts a change of leader.
const LEASE_OF_A_CLUSTER: Duration = Duration::from_secs(15);

fn twenty_processes_that_start_at_once_make_one_bucket_and_run_each_job_once() {
    for release in Release::ALL {
        let store = release.store();
        let port = store.port();
        let site = Site::of(WORKER, store);
        let mut jobs = DueAtOnce::start(&site, 20, 20, &[], secs(45));
        let streams = request(port, "$JS.API.STREAM.NAMES", "{}").unwrap();
        assert_eq!(streams.matches("KV_").count(), 1, "{streams}");
        let _ = jobs.ran_once_each();
    }
}

fn two_hundred_jobs_due_in_one_second_run_once_each() {
    let site = Site::of(WORKER, Release::Newer.store());
    let _ = DueAtOnce::start(&site, 3, 200, &[], secs(30)).ran_once_each();
}

fn fifty_kills_of_holders_leave_one_record_a_job_on_the_oldest_server() {
    kill_holders_on(Release::System.store());
}

fn fifty_kills_of_holders_leave_one_record_a_job_on_the_newest_server() {
    kill_holders_on(Release::Newer.store());
}

fn kill_holders_on(store: ServerStore) {
    let port = store.port();
    let site = Site::of(WORKER, store);
    let jobs = fifty_kills_of_holders_cost_no_occurrence_and_run_none_twice(&site, LEASE);
    assert_one_record_each(port, &jobs);
}

fn fifty_kills_of_holders_leave_one_record_a_job_on_a_cluster() {
    let cluster = SharedCluster::start(Release::Newer);
    let port = cluster.lock().nodes[0].port();
    let site = Site::of(WORKER, cluster);
    let jobs = fifty_kills_of_holders_cost_no_occurrence_and_run_none_twice(&site, LEASE_OF_A_CLUSTER);
    assert_one_record_each(port, &jobs);
}

/// By what the server says that the bucket holds: records, and how many versions of each.
fn assert_one_record_each(port: u16, jobs: &[String]) {
    let question = json!({ "subjects_filter": ">" }).to_string();
    let told = request(port, &format!("$JS.API.STREAM.INFO.{STREAM}"), &question).unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    let kept = told["state"]["subjects"].as_object().unwrap().iter();
    let kept: Vec<_> =
        kept.filter_map(|(key, count)| Some((key.split_once(".job.")?.1, count.as_u64()))).collect();
    assert_eq!(kept, jobs.iter().map(|job| (job.as_str(), Some(1))).collect::<Vec<_>>());
}

fn a_server_that_is_killed_for_20_s_costs_no_process_and_the_latest_missed_run_comes_once() {
    a_store_that_is_gone_for_20_s(&Site::of(WORKER, Release::System.store()), LEASE);
}

fn a_cluster_that_is_killed_for_20_s_costs_no_process_and_the_latest_missed_run_comes_once() {
    let site = Site::of(WORKER, SharedCluster::start(Release::Newer));
    a_store_that_is_gone_for_20_s(&site, LEASE_OF_A_CLUSTER);
}

fn connections_that_the_operator_ends_cost_no_run() {
    let operated = [
        "accounts { JOBS { jetstream: enabled, users: [{ user: jobs, password: jobs }] }, OPERATOR { users: [{ user: operator, password: operator }] } }",
        "system_account: OPERATOR",
        "no_auth_user: jobs",
    ];
    let store = ServerStore::new(Release::Newer.with(operated), url);
    let port = store.port();
    let site = Site::of(WORKER, store);
    connections_that_are_ended_cost_no_run_its_lease_and_nothing_runs_twice(&site, || end_connections(port));
}

/// Ends the connections of all three processes, as the command line of NATS does.
fn end_connections(port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let login = async_nats::ConnectOptions::with_user_and_password("operator".into(), "operator".into());
    let operator = runtime.block_on(login.connect(url(port))).unwrap();
    let server = operator.server_info().server_id;
    let ask = |what: &str, body: Value| {
        let question = operator.request(format!("$SYS.REQ.SERVER.{server}.{what}"), body.to_string().into());
        serde_json::from_slice::<Value>(&runtime.block_on(question).unwrap().payload).unwrap()
    };
    let all = until("all three are connected", || {
        let told = ask("CONNZ", json!({}));
        let connections = told["data"]["connections"].as_array()?.iter();
        let ours = connections.filter(|one| one["name"] == "anarchon");
        let ours: Vec<Value> = ours.map(|one| one["cid"].clone()).collect();
        (ours.len() == 3).then_some(ours)
    });
    for cid in all {
        let answer = ask("KICK", json!({ "cid": cid }));
        assert!(answer.get("error").is_none(), "{answer}");
    }
}

fn connections_that_break_cost_no_run_on_a_server_whose_operator_cannot_end_them() {
    let (store, proxy) = Proxied::new(Release::System.store(), usize::MAX);
    let site = Site::of(WORKER, store);
    connections_that_are_ended_cost_no_run_its_lease_and_nothing_runs_twice(&site, || {
        proxy.set(Mode::Cut);
        proxy.set(Mode::Pass);
    });
}

fn a_holder_that_cannot_reach_the_server_for_five_leases_ends_its_run_and_the_other_goes_on() {
    // The other one times the lease itself, from its own first look.
    let within = LEASE + secs(2);
    a_holder_cut_off_for_five_leases_ends_its_run_and_another_goes_on(
        Path::new(WORKER),
        Release::System.store(),
        within,
    );
}

fn a_server_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before() {
    let site = Site::of(WORKER, Release::System.store().forgetful());
    a_store_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before(&site);
}

fn a_dead_leader_under_load_costs_no_process_no_run_twice_and_no_attempt() {
    let shared = SharedCluster::start(Release::Newer);
    let site = Site::of(WORKER, shared.clone());
    let (schedule, _) = once(secs(5));
    let jobs: Vec<String> = (0..20).map(|n| format!("j-{n:02}")).collect();
    let short = jobs.iter().map(|job| format!("{job},every=2s,lease=15s,catch_up=60s"));
    let long = format!("long,{schedule},run=70s,step=100ms,lease=30s,catch_up=60s");
    let mut workers = site.start_all(3, &Orders::new(short.chain([long])));
    site.run("long", "is in full swing", |run| run.steps >= 5);
    for _ in 0..2 {
        let leader = until("the stream has a leader", || shared.lock().leader(STREAM));
        site.deeds().note(What::StoreGone);
        shared.lock().nodes[leader].kill();
        let killed = mono();
        let mut slowest = Duration::ZERO;
        for job in &jobs {
            let run = site.run(job, "runs on", |run| run.start.mono > killed && run.is_done());
            slowest = slowest.max(run.start.mono.since(killed));
        }
        site.deeds().note(What::StoreBack);
        println!("all jobs ran within {slowest:?} after the death of the leader");
        assert!(slowest <= secs(15) + SLACK, "the last one ran {slowest:?} after the death of the leader");
        let mut cluster = shared.lock();
        cluster.nodes[leader].restart();
        cluster.wait_until_whole();
    }
    let ended = site.run("long", "has ended well", Run::is_done);
    assert_eq!(site.history().runs("long").len(), 1, "it was the only attempt: {}", ended.start);
    assert!(!workers.iter_mut().any(Worker::has_ended));
    assert_no_errors(&site.logs());
    drop(workers);
    site.verify();
}
