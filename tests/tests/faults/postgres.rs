//! PostgreSQL under load, in what the common scenarios do not play: many jobs in one second, many runs, many kills, and servers
//! that fail while they are at it.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anarchon::{
    clock::{Clock as _, SystemClock},
    protocol::{
        Claim, Fingerprint, Finish, Finished, InstanceId, JobName, JobSpec, Namespace, Nonce, Outcome,
        Verdict, What,
    },
    store::{PostgresBackend, Store},
};
use anarchon_tests::{
    faults::{
        Special, holes::a_holder_cut_off_for_five_leases_ends_its_run_and_another_goes_on,
        kills::fifty_kills_of_holders_cost_no_occurrence_and_run_none_twice,
    },
    history::Run,
    process::{Orders, Worker},
    servers::{
        postgres::{Release, url},
        store::ServerStore,
    },
    site::{Outage, Site},
    wait::{until, until_so},
};
use sqlx::{Connection as _, PgConnection};

const WORKER: &str = env!("CARGO_BIN_EXE_worker");

/// What is played, with what it loads the machine.
pub(crate) fn specials() -> Vec<Special> {
    specials! {
        24 a_thousand_jobs_of_one_second_run_once_each_on_three_processes;
        24 a_thousand_jobs_of_one_second_run_once_each_on_twenty_processes;
        16 a_hundred_thousand_runs_leave_tables_of_constant_size;
        6 fifty_kills_of_holders_leave_one_record_a_job;
        4 a_server_that_is_restarted_and_ends_our_sessions_under_load_costs_no_process_and_no_run_twice;
        3 a_holder_cut_off_for_five_leases_is_followed_by_one_attempt_elsewhere_and_works_again_after_it;
        3 a_server_that_lost_its_data_under_load_is_registered_with_again;
    }
}

fn a_thousand_jobs_of_one_second_run_once_each_on_three_processes() {
    a_thousand_jobs_of_one_second_run_once_each(3, 10);
}

fn a_thousand_jobs_of_one_second_run_once_each_on_twenty_processes() {
    a_thousand_jobs_of_one_second_run_once_each(20, 30);
}

/// All of them are due together, every so many seconds.
fn a_thousand_jobs_of_one_second_run_once_each(processes: usize, every: i64) {
    const JOBS: usize = 1000;
    let (site, server) = site(Release::System.store());
    let name = |n| format!("job-{n:04}");
    let orders = Orders::new((0..JOBS).map(|n| format!("{},every={every}s", name(n))));
    let workers = site.start_all(processes, &orders);
    for worker in &workers {
        until_so("it has started", || worker.log().contains("scheduler started"));
    }
    let done = |nominal: i64| {
        let done = |run: &Run| run.start.nominal == nominal && run.is_done();
        let history = site.history();
        (0..JOBS).filter(|n| history.runs(&name(*n)).iter().any(done)).count()
    };
    let interval = every * 1000;
    let now = SystemClock.wall_micros() / 1000;
    // Starting loads the machine too.
    let first = (now / interval + 2) * interval;
    until_so("the first of them are due soon", || SystemClock.wall_micros() / 1000 > first - interval / 4);
    let before = calls(server);
    let ticks = 2;
    for tick in 0..ticks {
        let nominal = first + tick * interval;
        until_so("all have run", || done(nominal) == JOBS);
    }
    until_so("the last tick is over", || {
        SystemClock.wall_micros() / 1000 > first + ticks * interval - interval / 4
    });
    let calls = calls(server) - before;
    drop(workers);
    site.verify();
    let each = calls / ticks / i64::try_from(processes).unwrap();
    println!(
        "{processes} processes: {calls} store calls in {ticks} ticks, {each} an instance and tick of {every} s"
    );
    // Claims and finishes of 1,000 jobs spread over the jitter, renewals, looks, beats: not one call a job.
    assert!(each < 500, "{each} calls an instance and tick");
    let late: Vec<i64> = site
        .history()
        .jobs()
        .iter()
        .flat_map(|job| site.history().runs(job))
        .filter(|run| run.start.nominal >= first)
        .map(|run| run.start.wall / 1000 - run.start.nominal)
        .collect();
    println!("started at most {} ms late", late.iter().max().unwrap());
}

fn a_server_that_is_restarted_and_ends_our_sessions_under_load_costs_no_process_and_no_run_twice() {
    let (site, server) = site(Release::System.store());
    let mut workers =
        site.start_all(3, &Orders::new((0..20).map(|n| format!("job-{n:02},every=1s,run=200ms,lease=5s"))));
    site.run("job-00", "has ended well", Run::is_done);
    for round in 0..6 {
        let since = newest(&site);
        match round % 3 {
            0 => drop(execute(
                server,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'anarchon'",
            )),
            1 => {
                site.stop_store(Outage::Vanishes);
                site.resume_store();
            }
            _ => {
                site.stop_store(Outage::Hangs);
                let frozen = SystemClock.mono();
                until_so("a second is over", || SystemClock.mono() > frozen.plus(Duration::from_secs(1)));
                site.resume_store();
            }
        }
        let back = SystemClock.wall_micros() / 1000;
        site.run("job-00", "is on time again", |run| run.is_done() && run.start.nominal > since.max(back));
        let recovered = SystemClock.wall_micros() / 1000 - back;
        println!("round {round}: back after {recovered} ms");
        assert!(recovered < 8000, "{recovered} ms after the server a run had ended");
    }
    alive(&mut workers);
    drop(workers);
    assert!(!site.logs().contains(" ERROR "), "an error of the store is no error of ours");
    site.verify();
}

fn a_server_that_lost_its_data_under_load_is_registered_with_again() {
    let (site, _) = site(Release::System.store().forgetful());
    let mut workers = site.start_all(3, &Orders::new(["tick,every=1s,lease=5s", "other,every=1s,lease=5s"]));
    let before = ["tick", "other"].map(|job| site.run(job, "has ended well", Run::is_done));
    site.stop_store(Outage::Vanishes);
    site.resume_store();
    let back = SystemClock.wall_micros() / 1000;
    for run in before {
        let after = site.run(&run.start.job, "runs again", |run| run.is_done() && run.start.nominal > back);
        assert!(after.start.token > run.start.token, "tokens grow over the loss");
    }
    alive(&mut workers);
    drop(workers);
    site.verify();
}

fn a_holder_cut_off_for_five_leases_is_followed_by_one_attempt_elsewhere_and_works_again_after_it() {
    let within = Duration::from_millis(5500);
    a_holder_cut_off_for_five_leases_ends_its_run_and_another_goes_on(
        Path::new(WORKER),
        Release::System.store(),
        within,
    );
}

fn fifty_kills_of_holders_leave_one_record_a_job() {
    let (site, server) = site(Release::System.store());
    let jobs = fifty_kills_of_holders_cost_no_occurrence_and_run_none_twice(&site, Duration::from_secs(5));
    let records = execute(server, "SELECT count(*) FROM anarchon.job WHERE ns = 'faults'");
    assert_eq!(usize::try_from(records), Ok(jobs.len()));
}

fn a_hundred_thousand_runs_leave_tables_of_constant_size() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(many_runs());
}

async fn many_runs() {
    const JOBS: u64 = 200;
    const ROUNDS: u64 = 500;
    let server = Release::System.start();
    let url = url(server.port());
    let store = PostgresBackend::connect(&url).unwrap();
    store.open(&Namespace::new("load").unwrap()).await.unwrap();
    let names: Vec<JobName> = (0..JOBS).map(|n| JobName::new(&format!("job-{n:04}")).unwrap()).collect();
    let (schedule, me) = (Fingerprint::of("every 1 s"), InstanceId::new("loader").unwrap());
    let specs: Vec<JobSpec> = names
        .iter()
        .map(|job| JobSpec { job: job.clone(), schedule, by: me.clone(), replace: None, next: None })
        .collect();
    for answer in store.register(&specs).await {
        answer.unwrap();
    }
    let mut raw = PgConnection::connect(&url).await.unwrap();
    let begin = SystemClock.mono();
    let mut sizes = BTreeMap::new();
    for round in 1..=ROUNDS {
        let now = store.inspect(&names[..1], 0).await.remove(0).unwrap().now.millis();
        let claims: Vec<Claim> = names
            .iter()
            .zip(0..)
            .map(|(job, n)| Claim {
                job: job.clone(),
                what: What::Planned(now),
                lease: Duration::from_secs(30),
                window: Duration::from_secs(300),
                max_attempts: 3,
                schedule,
                holder: me.clone(),
                nonce: Nonce { instance: round, seq: n + 1 },
                next: None,
                expires: anarchon::protocol::Millis::MAX,
            })
            .collect();
        let mut finishes = Vec::new();
        for (claim, answer) in claims.iter().zip(store.claim(&claims).await) {
            let Verdict::Awarded(award) = answer.unwrap().value else { panic!("not awarded") };
            let message = Some("an error of some length ".repeat(4));
            finishes.push(Finish {
                job: claim.job.clone(),
                token: award.token,
                outcome: Outcome::Failed,
                message,
            });
        }
        for answer in store.finish(&finishes).await {
            assert!(matches!(answer.unwrap().value, Finished::Closed(_)));
        }
        if round % (ROUNDS / 5) == 0 {
            sizes.insert(round * JOBS, [size(&mut raw, "job").await, size(&mut raw, "run").await]);
        }
    }
    let took = SystemClock.mono().since(begin);
    println!("{} runs in {took:?}; bytes of job and run after so many: {sizes:?}", ROUNDS * JOBS);
    let counts = "SELECT (SELECT count(*) FROM anarchon.job), (SELECT count(*) FROM anarchon.run)";
    let counts: (i64, i64) = sqlx::query_as(counts).fetch_one(&mut raw).await.unwrap();
    assert_eq!(counts, (200, 200 * 20));
    let (early, late) = (sizes[&(ROUNDS * JOBS / 5)], sizes[&(ROUNDS * JOBS)]);
    for (early, late) in early.into_iter().zip(late) {
        assert!(late <= early * 2, "the tables grow: {sizes:?}");
    }
    // 100 times the bytes of a row are far more than it has: bloat is bounded.
    assert!(late[0] < 200 * 100 * 100, "{sizes:?}");
    let hot = "SELECT relname::text, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname IN ('job', 'run') ORDER BY 1";
    let counted = "SELECT coalesce(sum(n_tup_upd), 0)::bigint FROM pg_stat_user_tables WHERE relname = 'job'";
    loop {
        let updates: i64 = sqlx::query_scalar(counted).fetch_one(&mut raw).await.unwrap();
        if updates >= i64::try_from(2 * ROUNDS * JOBS).unwrap() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let rows: Vec<(String, i64, i64)> = sqlx::query_as(hot).fetch_all(&mut raw).await.unwrap();
    for (table, updates, hot) in rows {
        let share = hot as f64 / updates as f64;
        println!("{table}: {updates} updates, {:.1} % of them HOT", share * 100.0);
        assert!(share > 0.9, "{table}: {hot} of {updates} updates were HOT");
    }
}

async fn size(connection: &mut PgConnection, table: &str) -> i64 {
    sqlx::query_scalar("SELECT pg_total_relation_size(('anarchon.' || $1)::regclass)")
        .bind(table)
        .fetch_one(connection)
        .await
        .unwrap()
}

/// A site, and the port of its server.
fn site(store: ServerStore) -> (Site, u16) {
    let port = store.port();
    (Site::of(WORKER, store), port)
}

fn newest(site: &Site) -> i64 {
    site.history().0.iter().map(|entry| entry.nominal).max().unwrap_or(0)
}

fn alive(workers: &mut [Worker]) {
    for worker in workers {
        assert!(!worker.has_ended(), "process {} ended:\n{}", worker.pid(), worker.log());
    }
}

/// How many transactions were committed in the database: each call is one.
fn calls(server: u16) -> i64 {
    // Sessions report every so often.
    let mut last = -1;
    until("the server has counted", || {
        let now = execute(server, "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'");
        let settled = now - last < 10;
        last = now;
        settled.then_some(now)
    })
}

/// Runs a statement, and returns the number that it gives, if any.
fn execute(server: u16, sql: &'static str) -> i64 {
    let url = url(server);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let row = sqlx::query(sql).fetch_optional(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        row.and_then(|row| sqlx::Row::try_get(&row, 0).ok()).unwrap_or(0)
    })
}
