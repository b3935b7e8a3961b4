//! Real processes on NATS, in what the common scenarios do not play: twenty that start at once, a hole in the network, a
//! server that forgets, a dead leader of a cluster, and many jobs at once.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anarchon::{
    NatsBackend,
    clock::{Clock as _, Mono, SystemClock},
    store::Store,
};
use anarchon_tests::{
    faults::SLACK,
    history::{Fact, Run},
    process::{Orders, Worker},
    proxy::{Mode, Proxy},
    servers::{
        nats::{NatsStore, Release, request, url},
        nats_cluster::Cluster,
    },
    site::{Outage, Site, TestStore},
    wait::{until, until_so},
};

const STREAM: &str = "KV_anarchon_faults";

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

#[test]
fn twenty_processes_that_start_at_once_make_one_bucket_and_run_each_job_once() {
    for release in Release::ALL {
        let store = NatsStore::new(release);
        let port = store.port();
        let site = site(store);
        play(&site, || {
            let (schedule, due) = once(secs(20));
            let jobs: Vec<String> = (0..20).map(|n| format!("j-{n:02}")).collect();
            let workers =
                site.start_all(20, &Orders::new(jobs.iter().map(|job| format!("{job},{schedule}"))));
            until_so("all have started", || {
                workers.iter().all(|worker| worker.log().contains("scheduler started"))
            });
            assert!(wall_ms() < due, "the machine is too slow: they started when the jobs were due already");
            let streams = request(port, "$JS.API.STREAM.NAMES", "{}").unwrap();
            assert_eq!(streams.matches("KV_").count(), 1, "{streams}");
            for job in &jobs {
                site.run(job, "has ended well", |run| run.start.nominal == due && run.is_done());
            }
            drop(workers);
            let history = site.history();
            let starts = history.0.iter().filter(|entry| entry.fact == Fact::Start).count();
            assert_eq!(starts, jobs.len(), "one of them ran twice");
            site.verify();
        });
    }
}

#[test]
fn two_hundred_jobs_due_in_one_second_run_once_each() {
    const JOBS: usize = 200;
    let site = site(NatsStore::new(Release::Newer));
    play(&site, || {
        let (schedule, due) = once(secs(12));
        let jobs: Vec<String> = (0..JOBS).map(|n| format!("j-{n:03}")).collect();
        let workers = site.start_all(3, &Orders::new(jobs.iter().map(|job| format!("{job},{schedule}"))));
        let all = || site.history().0.iter().filter(|entry| entry.fact == Fact::Done).count() >= JOBS;
        until_so("all have run", all);
        let history = site.history();
        let starts: Vec<_> = history.0.iter().filter(|entry| entry.fact == Fact::Start).collect();
        let started: BTreeSet<_> = starts.iter().map(|entry| (entry.job.as_str(), entry.nominal)).collect();
        assert_eq!(started, jobs.iter().map(|job| (job.as_str(), due)).collect());
        assert_eq!(starts.len(), JOBS, "one of them ran twice");
        drop(workers);
        site.verify();
    });
}

/// The first process goes through a proxy, the others do not.
#[derive(Debug)]
struct TwoWays {
    server: NatsStore,
    proxy: Arc<Proxy>,
    started: AtomicUsize,
}

impl TestStore for TwoWays {
    fn url(&self) -> String {
        match self.started.fetch_add(1, Ordering::Relaxed) {
            0 => url(self.proxy.port()),
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

#[test]
fn a_holder_that_cannot_reach_the_server_for_five_leases_ends_its_run_and_the_other_goes_on() {
    let server = NatsStore::new(Release::System);
    let proxy = Arc::new(Proxy::to(server.port()));
    let site = site(TwoWays { server, proxy: Arc::clone(&proxy), started: AtomicUsize::new(0) });
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
        println!("taken over {after:?} after the cut, with leases of 5 s");
        assert!(after <= secs(5 + 2) + SLACK, "taken over {after:?} after the cut");
        until_so("five leases are over", || mono() >= cut.plus(secs(25)));
        let outlived = site.history().runs("long")[0].last.mono.since(cut);
        assert!(outlived <= Duration::from_millis(4250) + secs(1), "it went on for {outlived:?}");
        proxy.set(Mode::Pass);
        let healed = mono();
        let back = |run: &Run| run.start.pid == holder.pid() && run.start.mono > healed;
        site.run("tick", "is of the process that was cut off", back);
        let meanwhile = |run: &Run| run.start.nominal > cut_ms && run.start.mono < healed;
        assert!(site.history().runs("tick").iter().any(meanwhile));
        site.run("long", "has ended well", |run| run.is_further() && run.is_done());
        drop((holder, other));
        site.verify();
    });
}

#[test]
fn a_server_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before() {
    let site = site(NatsStore::forgetful(Release::System));
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

/// Three nodes, of which the leader is killed.
#[derive(Debug)]
struct ClusterStore(Arc<Mutex<Cluster>>);

impl TestStore for ClusterStore {
    fn url(&self) -> String {
        self.0.lock().unwrap().url()
    }

    fn backend(&self) -> Arc<dyn Store> {
        Arc::new(NatsBackend::connect(&self.url()).unwrap())
    }

    fn stop(&mut self, _how: Outage) {
        unreachable!("the test knows which node is to go")
    }

    fn resume(&mut self) {}
}

#[test]
fn a_dead_leader_under_load_costs_no_process_no_run_twice_and_no_attempt() {
    let cluster = Arc::new(Mutex::new(Cluster::start(Release::Newer)));
    let site = site(ClusterStore(Arc::clone(&cluster)));
    play(&site, || {
        let (schedule, _) = once(secs(5));
        let jobs: Vec<String> = (0..20).map(|n| format!("j-{n:02}")).collect();
        let short = jobs.iter().map(|job| format!("{job},every=2s,lease=15s,catch_up=60s"));
        let long = format!("long,{schedule},run=70s,step=100ms,lease=30s,catch_up=60s");
        let mut workers = site.start_all(3, &Orders::new(short.chain([long])));
        site.run("long", "is in full swing", |run| run.steps >= 5);
        for _ in 0..2 {
            let leader = until("the stream has a leader", || cluster.lock().unwrap().leader(STREAM));
            cluster.lock().unwrap().nodes[leader].kill();
            let killed = mono();
            let mut slowest = Duration::ZERO;
            for job in &jobs {
                let run = site.run(job, "runs on", |run| run.start.mono > killed && run.is_done());
                slowest = slowest.max(run.start.mono.since(killed));
            }
            println!("all jobs ran within {slowest:?} after the death of the leader");
            assert!(
                slowest <= secs(15) + SLACK,
                "the last one ran {slowest:?} after the death of the leader"
            );
            let mut cluster = cluster.lock().unwrap();
            cluster.nodes[leader].restart();
            cluster.wait_until_whole();
        }
        let ended = site.run("long", "has ended well", Run::is_done);
        assert_eq!(site.history().runs("long").len(), 1, "it was the only attempt: {}", ended.start);
        assert!(!workers.iter_mut().any(Worker::has_ended));
        assert!(!site.logs().contains(" ERROR "), "an error of the store is no error of ours");
        drop(workers);
        site.verify();
    });
}
