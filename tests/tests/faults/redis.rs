//! Real processes on Redis and Valkey, in what the common scenarios do not play: fifty kills of holders, a hole in the network,
//! a server that forgets data or scripts, a dead primary of a Cluster or of sentinels, and a thousand jobs at once.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use anarchon::protocol::JobName;
use anarchon_tests::{
    faults::{
        SLACK, Special, assert_complete, assert_no_errors,
        holes::a_holder_cut_off_for_five_leases_ends_its_run_and_another_goes_on,
        kills::fifty_kills_of_holders_cost_no_occurrence_and_run_none_twice,
        losses::a_store_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before,
        many::DueAtOnce, mono, secs, wall_ms,
    },
    history::Run,
    process::{Orders, Worker},
    servers::{
        redis::{self, Kind, command, is_primary, wait_until_level},
        redis_cluster::{Cluster, record_key, slot},
        redis_sentinel::Watched,
    },
    site::{Outage, Site, TestStore, namespace},
    wait::until_so,
};

const WORKER: &str = env!("CARGO_BIN_EXE_worker");

/// What is played on each of the two, with what it loads the machine.
macro_rules! on {
    ($kind:expr) => {
        specials! {
            24 a_thousand_jobs_due_at_once_run_once_each_on_three_and_on_twenty_processes_in_few_calls($kind);
            4 a_server_that_forgets_its_scripts_under_load_loses_no_occurrence($kind);
            4 a_dead_primary_of_a_cluster_costs_no_process_and_no_run_twice($kind);
            4 a_dead_primary_that_sentinels_watch_costs_no_process_and_no_run_twice($kind);
            3 a_holder_that_cannot_reach_the_server_for_five_leases_ends_its_run_and_the_other_goes_on($kind);
            3 a_server_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before($kind);
        }
    };
}

/// What is played on Redis.
pub(crate) fn on_redis() -> Vec<Special> {
    let mut all = on!(Kind::Redis);
    all.extend(specials! { 6 fifty_kills_of_holders_leave_one_record_a_job; });
    all
}

/// What is played on Valkey.
pub(crate) fn on_valkey() -> Vec<Special> {
    on!(Kind::Valkey)
}

fn a_holder_that_cannot_reach_the_server_for_five_leases_ends_its_run_and_the_other_goes_on(kind: Kind) {
    let within = secs(5 + 1);
    a_holder_cut_off_for_five_leases_ends_its_run_and_another_goes_on(
        Path::new(WORKER),
        kind.store(),
        within,
    );
}

fn a_server_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before(kind: Kind) {
    let site = Site::of(WORKER, kind.store().forgetful());
    a_store_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before(&site);
}

fn fifty_kills_of_holders_leave_one_record_a_job() {
    let store = Kind::Redis.store();
    let port = store.port();
    let site = Site::of(WORKER, store);
    let jobs = fifty_kills_of_holders_cost_no_occurrence_and_run_none_twice(&site, secs(5));
    for job in jobs {
        let _ = redis::record_key(port, &namespace(), &job);
    }
}

fn a_server_that_forgets_its_scripts_under_load_loses_no_occurrence(kind: Kind) {
    const LENGTH: i64 = 10_000;
    let store = kind.store();
    let port = store.port();
    let site = Site::of(WORKER, store);
    let jobs: Vec<String> = (0..20).map(|n| format!("j-{n:02}")).collect();
    let orders = Orders::new(jobs.iter().map(|job| format!("{job},every=1s,lease=5s")));
    let mut workers = site.start_all(3, &orders);
    let from = site.run("j-00", "has ended well", Run::is_done).start.nominal + 1000;
    let mut flushes = 0;
    until_so("the time is over", || {
        flushes += 1;
        command(port, "SCRIPT FLUSH").unwrap();
        site.history().runs("j-00").last().is_some_and(|run| run.start.nominal > from + LENGTH)
    });
    println!("{flushes} flushes");
    assert!(!workers.iter_mut().any(Worker::has_ended));
    assert!(!site.logs().contains(" WARN ") && !site.logs().contains(" ERROR "), "nobody is to notice");
    drop(workers);
    assert_complete(&site, &jobs, from, from + LENGTH, 1000);
    site.verify();
}

/// Servers of which one is killed.
trait Group: std::fmt::Debug {
    fn url(&self) -> String;
    /// Kills a primary once its replica has all that it has.
    fn kill_primary(&mut self);
    /// Whether the replica has taken its place.
    fn has_promoted(&self) -> bool;
    /// The jobs that the dead one had, and another would not.
    fn is_concerned(&self, job: &str) -> bool;
}

impl Group for Cluster {
    fn url(&self) -> String {
        Self::url(self)
    }

    fn kill_primary(&mut self) {
        wait_until_level(&self.nodes[1], &self.replicas[1]);
        self.nodes[1].kill();
    }

    fn has_promoted(&self) -> bool {
        is_primary(self.replicas[1].port())
    }

    fn is_concerned(&self, job: &str) -> bool {
        let key = record_key(&self.nodes[0], &namespace(), &JobName::new(job).unwrap());
        Self::slots(1).contains(&slot(&self.nodes[0], &key))
    }
}

impl Group for Watched {
    fn url(&self) -> String {
        Self::url(self)
    }

    fn kill_primary(&mut self) {
        wait_until_level(&self.servers[0], &self.servers[1]);
        self.servers[0].kill();
    }

    fn has_promoted(&self) -> bool {
        let new = self.servers[1].port();
        is_primary(new) && self.primary() == Some(new)
    }

    fn is_concerned(&self, _job: &str) -> bool {
        true
    }
}

#[derive(Debug)]
struct GroupStore<G> {
    group: Arc<Mutex<G>>,
}

impl<G: Group> TestStore for GroupStore<G> {
    fn url(&self) -> String {
        self.group.lock().unwrap().url()
    }

    fn stop(&mut self, _how: Outage) {
        self.group.lock().unwrap().kill_primary();
    }

    fn resume(&mut self) {}
}

fn a_dead_primary_of_a_cluster_costs_no_process_and_no_run_twice(kind: Kind) {
    let cluster = Cluster::with_replicas(kind);
    for node in cluster.all() {
        // Else the others refuse too.
        command(node.port(), "CONFIG SET cluster-require-full-coverage no").unwrap();
    }
    a_dead_primary(kind, cluster);
}

fn a_dead_primary_that_sentinels_watch_costs_no_process_and_no_run_twice(kind: Kind) {
    a_dead_primary(kind, Watched::start(kind));
}

fn a_dead_primary<G: Group + 'static>(kind: Kind, group: G) {
    const INTERVAL: i64 = 4000;
    let group = Arc::new(Mutex::new(group));
    let site = Site::of(WORKER, GroupStore { group: Arc::clone(&group) });
    let jobs: Vec<String> = (0..12).map(|n| format!("j-{n:02}")).collect();
    let offset = (wall_ms() + 6000).rem_euclid(INTERVAL);
    let short =
        jobs.iter().map(|job| format!("{job},every={INTERVAL}ms,offset={offset}ms,lease=5s,catch_up=60s"));
    let mut workers = site.start_all(3, &Orders::new(short));
    let newest = || site.history().runs("j-00").last().map_or(0, |run| run.start.nominal);
    until_so("all have run", || {
        jobs.iter().all(|job| site.history().runs(job).last().is_some_and(Run::is_done))
    });
    // What is on its way from the primary to its replica just then is lost, as the guarantees say: so not just then.
    let due = newest() + INTERVAL;
    until_so("it is between two due times", || wall_ms() >= due + INTERVAL / 2);
    until_so("all ended", || {
        jobs.iter().all(|job| site.history().runs(job).last().is_some_and(Run::is_done))
    });
    site.stop_store(Outage::Vanishes);
    until_so("the replica is promoted", || group.lock().unwrap().has_promoted());
    let (promoted, promoted_ms) = (mono(), wall_ms());
    let concerned: Vec<&String> = jobs.iter().filter(|job| group.lock().unwrap().is_concerned(job)).collect();
    assert!(!concerned.is_empty(), "all jobs are on other servers");
    let mut slowest = Duration::ZERO;
    for job in &concerned {
        let run = site.run(job, "runs after the promotion", |run| run.start.mono > promoted && run.is_done());
        slowest = slowest.max(run.start.mono.since(promoted));
    }
    let next_due = Duration::from_millis(INTERVAL as u64);
    println!("{kind:?}: {} jobs ran within {slowest:?} after the promotion", concerned.len());
    assert!(slowest <= next_due + secs(5) + SLACK, "the last one ran {slowest:?} after the promotion");
    for job in &jobs {
        let on_time = |run: &Run| run.start.nominal > promoted_ms && !run.start.catch_up && run.is_done();
        site.run(job, "is on time again", on_time);
    }
    assert!(!workers.iter_mut().any(Worker::has_ended));
    assert_no_errors(&site.logs());
    drop(workers);
    site.verify();
}

fn a_thousand_jobs_due_at_once_run_once_each_on_three_and_on_twenty_processes_in_few_calls(kind: Kind) {
    // Up to 200 claims leave together, in a script for each of eight groups. Where the jitter spreads them, most leave alone on a machine
    // that has time: still no more than one for each job, and what looks take.
    let plans: [(usize, &[&str], u64, usize); 3] = [
        (3, &["jitter=0s", "run=8s", "step=8s"], 15, 20 * 8),
        (3, &["jitter=500ms", "run=8s", "step=8s"], 15, 1000 + 10 * 8),
        (20, &["jitter=0s"], 45, 20 * 8),
    ];
    for (processes, options, ahead, most) in plans {
        let calls = thousand(kind, processes, options, secs(ahead));
        assert!(calls <= most, "{calls} scripts of each of {processes} processes");
    }
}

/// Returns how many scripts an instance called from a second before to 3 s after.
fn thousand(kind: Kind, processes: usize, options: &[&str], ahead: Duration) -> usize {
    const JOBS: usize = 1000;
    let store = kind.store();
    let port = store.port();
    let site = Site::of(WORKER, store);
    let mut jobs = DueAtOnce::start(&site, processes, JOBS, options, ahead);
    until_so("it is almost time", || wall_ms() >= jobs.due - 1000);
    let before = calls(port);
    // Those that lost have asked as well by then.
    until_so("it is 3 s past", || wall_ms() >= jobs.due + 3000);
    let after = calls(port);
    let winners = jobs.ran_once_each();
    let each = (after - before) / processes;
    println!(
        "{processes} processes, {JOBS} jobs, {options:?}: {each} scripts an instance around the second in which they were due; \
         {winners} of them won"
    );
    each
}

/// How many scripts the server was to run.
fn calls(port: u16) -> usize {
    let stats = command(port, "INFO commandstats").unwrap();
    let count = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse::<usize>().ok()).unwrap_or(0)
    };
    count("eval") + count("evalsha")
}
