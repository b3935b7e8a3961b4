//! Real processes on Redis and Valkey, in what the common scenarios do not play: a hole in the network, a server that
//! forgets data or scripts, a dead primary of a Cluster or of sentinels, and a thousand jobs at once.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anarchon::{
    clock::{Clock as _, Mono, SystemClock},
    protocol::JobName,
    store::Store,
};
use anarchon_tests::{
    faults::{SLACK, assert_complete},
    history::{Fact, Run},
    process::{Orders, Worker},
    proxy::{Mode, Proxy},
    servers::{
        redis::{Kind, RedisStore, command, is_primary, wait_until_level},
        redis_cluster::{Cluster, slot},
        redis_sentinel::Watched,
    },
    site::{Outage, Site, TestStore, namespace},
    wait::until_so,
};

fn site(store: impl TestStore + 'static) -> Site {
    Site::new(Path::new(env!("CARGO_BIN_EXE_worker")), |_| Box::new(store))
}

fn mono() -> Mono {
    SystemClock.mono()
}

fn wall_ms() -> i64 {
    SystemClock.wall_micros() / 1000
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A schedule that is due once in this time: so far ahead.
fn once(ahead: Duration) -> (String, i64) {
    let at = wall_ms() + ahead.as_millis() as i64;
    (format!("every=3600s,offset={}ms", at.rem_euclid(3_600_000)), at)
}

/// Shows what the processes did when a test fails.
fn play<T>(site: &Site, scenario: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(scenario)).unwrap_or_else(|panic| {
        eprintln!("{}", site.report());
        std::panic::resume_unwind(panic)
    })
}

/// Each test on both.
macro_rules! on_both {
    ($($test:ident)+) => {
        mod redis {
            $(#[test] fn $test() { super::$test(super::Kind::Redis); })+
        }
        mod valkey {
            $(#[test] fn $test() { super::$test(super::Kind::Valkey); })+
        }
    };
}

on_both! {
    a_holder_that_cannot_reach_the_server_for_five_leases_ends_its_run_and_the_other_goes_on
    a_server_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before
    a_server_that_forgets_its_scripts_under_load_loses_no_occurrence
    a_dead_primary_of_a_cluster_costs_no_process_and_no_run_twice
    a_dead_primary_that_sentinels_watch_costs_no_process_and_no_run_twice
    a_thousand_jobs_due_at_once_run_once_each_on_three_and_on_twenty_processes_in_few_calls
}

/// The first process goes through a proxy, the others do not.
#[derive(Debug)]
struct TwoWays {
    kind: Kind,
    server: RedisStore,
    proxy: Arc<Proxy>,
    started: AtomicUsize,
}

impl TestStore for TwoWays {
    fn url(&self) -> String {
        match self.started.fetch_add(1, Ordering::Relaxed) {
            0 => self.kind.url(self.proxy.port()),
            _ => self.server.url(),
        }
    }

    fn backend(&self) -> Arc<dyn Store> {
        self.server.backend()
    }

    fn stop(&mut self, how: Outage) {
        self.server.stop(how);
    }

    fn resume(&mut self) {
        self.server.resume();
    }
}

fn a_holder_that_cannot_reach_the_server_for_five_leases_ends_its_run_and_the_other_goes_on(kind: Kind) {
    let server = RedisStore::new(kind);
    let proxy = Arc::new(Proxy::to(server.port()));
    let site = site(TwoWays { kind, server, proxy: Arc::clone(&proxy), started: AtomicUsize::new(0) });
    play(&site, || {
        let (schedule, _) = once(secs(3));
        let orders = Orders::new([
            format!("long,{schedule},run=15s,step=50ms,lease=5s,catch_up=60s"),
            "tick,every=2s,lease=5s".to_owned(),
        ]);
        let holder = site.start(&orders);
        let first = site.run("long", "is in full swing", |run| run.steps >= 5);
        assert_eq!(first.start.pid, holder.pid());
        let other = site.start(&orders);
        until_so("the other one is there", || other.log().contains("scheduler started"));
        proxy.set(Mode::Hole);
        let (cut, cut_ms) = (mono(), wall_ms());
        let second = site.run("long", "is a further attempt", Run::is_further);
        assert_eq!((second.start.pid, second.start.nominal), (other.pid(), first.start.nominal));
        let after = second.start.mono.since(cut);
        assert!(after <= secs(5 + 1) + SLACK, "taken over {after:?} after the cut");
        until_so("five leases are over", || mono() >= cut.plus(secs(25)));
        let outlived = site.history().runs("long")[0].last.mono.since(cut);
        assert!(outlived <= Duration::from_millis(4250) + secs(1), "it went on for {outlived:?}");
        proxy.set(Mode::Pass);
        let healed = mono();
        let back = |run: &Run| run.start.pid == holder.pid() && run.start.mono > healed;
        site.run("tick", "is of the process that was cut off", back);
        assert!(
            site.history()
                .runs("tick")
                .iter()
                .any(|run| run.start.nominal > cut_ms && run.start.mono < healed)
        );
        site.run("long", "has ended well", |run| run.is_further() && run.is_done());
        drop((holder, other));
        site.verify();
    });
}

fn a_server_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before(kind: Kind) {
    let site = site(RedisStore::forgetful(kind));
    play(&site, || {
        let (schedule, _) = once(secs(3));
        let orders = Orders::new([
            format!("long,{schedule},run=60s,step=50ms,lease=5s,catch_up=10m"),
            "tick,every=5s,lease=5s,catch_up=10m".to_owned(),
        ]);
        let mut workers = site.start_all(3, &orders);
        site.run("tick", "has ended well", Run::is_done);
        let long = site.run("long", "is in full swing", |run| run.steps >= 5);
        site.stop_store(Outage::Vanishes);
        let stopped = mono();
        until_so("20 s are over", || mono() >= stopped.plus(secs(20)));
        let away_ms = wall_ms();
        site.resume_store();
        let (back, back_ms) = (mono(), wall_ms());
        let first = site.run("tick", "began since then", |run| run.start.mono > back);
        assert!(first.start.nominal >= away_ms, "from before the data were lost: {}", first.start);
        site.run("tick", "is on time again", |run| run.start.nominal > back_ms && !run.start.catch_up);
        assert_eq!(site.history().runs("long").len(), 1, "what the server forgot is not run again");
        assert!(first.start.token > long.start.token, "tokens grow all the same");
        assert!(!workers.iter_mut().any(Worker::has_ended));
        assert!(!site.logs().contains(" ERROR "), "an error of the store is no error of ours");
        drop(workers);
        site.verify();
    });
}

fn a_server_that_forgets_its_scripts_under_load_loses_no_occurrence(kind: Kind) {
    const LENGTH: i64 = 10_000;
    let store = RedisStore::new(kind);
    let port = store.port();
    let site = site(store);
    play(&site, || {
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
    });
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
        Self::slots(1).contains(&slot(&self.nodes[0], &namespace(), &JobName::new(job).unwrap()))
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
    kind: Kind,
    group: Arc<Mutex<G>>,
}

impl<G: Group> TestStore for GroupStore<G> {
    fn url(&self) -> String {
        self.group.lock().unwrap().url()
    }

    fn backend(&self) -> Arc<dyn Store> {
        self.kind.backend(&self.url())
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
    let site = site(GroupStore { kind, group: Arc::clone(&group) });
    play(&site, || {
        let jobs: Vec<String> = (0..12).map(|n| format!("j-{n:02}")).collect();
        let offset = (wall_ms() + 6000).rem_euclid(INTERVAL);
        let short = jobs
            .iter()
            .map(|job| format!("{job},every={INTERVAL}ms,offset={offset}ms,lease=5s,catch_up=60s"));
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
        let concerned: Vec<&String> =
            jobs.iter().filter(|job| group.lock().unwrap().is_concerned(job)).collect();
        assert!(!concerned.is_empty(), "all jobs are on other servers");
        let mut slowest = Duration::ZERO;
        for job in &concerned {
            let run =
                site.run(job, "runs after the promotion", |run| run.start.mono > promoted && run.is_done());
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
        assert!(!site.logs().contains(" ERROR "), "an error of the store is no error of ours");
        drop(workers);
        site.verify();
    });
}

fn a_thousand_jobs_due_at_once_run_once_each_on_three_and_on_twenty_processes_in_few_calls(kind: Kind) {
    // With all of them beside it, a process has no CPU to start on.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // The short runs of the last end within the time that is looked at: each end is a call of its own.
    let plans = [
        (3, "jitter=0s,run=8s,step=8s", 15, 20),
        (3, "jitter=500ms,run=8s,step=8s", 15, 500),
        (20, "jitter=0s", 45, 150),
    ];
    for (processes, options, ahead, most) in plans {
        let store = RedisStore::new(kind);
        let port = store.port();
        let site = site(store);
        let calls = play(&site, || thousand(&site, port, processes, options, secs(ahead)));
        assert!(calls <= most, "{calls} calls of each of {processes} processes");
    }
}

/// Returns how many calls an instance made from a second before to 3 s after.
fn thousand(site: &Site, port: u16, processes: usize, options: &str, ahead: Duration) -> usize {
    const JOBS: usize = 1000;
    let (schedule, due) = once(ahead);
    let jobs: Vec<String> = (0..JOBS).map(|n| format!("j-{n:04}")).collect();
    let workers =
        site.start_all(processes, &Orders::new(jobs.iter().map(|job| format!("{job},{schedule},{options}"))));
    until_so("all have started", || workers.iter().all(|worker| worker.log().contains("scheduler started")));
    assert!(wall_ms() < due, "the machine is too slow: they started when the jobs were due already");
    until_so("it is almost time", || wall_ms() >= due - 1000);
    let before = calls(port);
    // Those that lost have asked as well by then.
    until_so("it is 3 s past", || wall_ms() >= due + 3000);
    let after = calls(port);
    until_so("all have run", || {
        site.history().0.iter().filter(|entry| entry.fact == Fact::Done).count() >= JOBS
    });
    let history = site.history();
    let starts: Vec<_> = history.0.iter().filter(|entry| entry.fact == Fact::Start).collect();
    let started: BTreeSet<_> = starts.iter().map(|entry| (entry.job.as_str(), entry.nominal)).collect();
    assert_eq!(started, jobs.iter().map(|job| (job.as_str(), due)).collect());
    assert_eq!(starts.len(), JOBS, "one of them ran twice");
    let winners: BTreeSet<u32> = starts.iter().map(|entry| entry.pid).collect();
    let (calls, items) = (after.0 - before.0, after.1 - before.1);
    println!(
        "{processes} processes, {JOBS} jobs, {options}: {calls} calls with {items} items around the second in which they were due, \
         {} calls an instance; {} of them won",
        calls / processes,
        winners.len()
    );
    drop(workers);
    site.verify();
    calls / processes
}

/// How many calls the server had, and how many items were in them: each begins with an EVAL.
fn calls(port: u16) -> (usize, usize) {
    let stats = command(port, "INFO commandstats").unwrap();
    let count = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse::<usize>().ok()).unwrap_or(0)
    };
    (count("eval"), count("eval") + count("evalsha"))
}
