//! Every nominal time exactly once, however many processes there are.

use std::collections::BTreeSet;

use super::wall_ms;
use crate::{
    history::History,
    process::{Orders, Worker},
    site::Site,
    wait::{until, until_so},
};

const JOBS: usize = 20;
const INTERVAL: i64 = 1000;
/// How much planned time is looked at.
const LENGTH: i64 = 30_000;

pub(super) fn processes_that_stay_run_every_nominal_time_exactly_once(site: &Site, processes: usize) {
    let workers = site.start_all(processes, &twenty_jobs());
    until_so("no process is idle", || workers.iter().all(|worker| has_run(&site.history(), worker)));
    let from = newest_nominal(&site.history()) + INTERVAL;
    until_so("the time is over", || newest_nominal(&site.history()) > from + LENGTH);
    end_all(workers);
    assert_complete(site, from, from + LENGTH);
    let history = site.history();
    let idle = |pid: &u32| !history.0.iter().any(|e| e.pid == *pid && e.nominal >= from);
    let pids: BTreeSet<u32> = history.0.iter().map(|entry| entry.pid).collect();
    assert_eq!(pids.iter().filter(|pid| idle(pid)).count(), 0, "a process had nothing to do for {LENGTH} ms");
}

pub(super) fn processes_that_come_and_go_run_every_nominal_time_exactly_once(site: &Site, processes: usize) {
    let mut random = super::random();
    let orders = twenty_jobs();
    let (mut workers, mut leaving) = (site.start_all(processes - 1, &orders), Vec::new());
    until_so("all of them run", || workers.iter().all(|worker| has_run(&site.history(), worker)));
    let from = newest_nominal(&site.history()) + INTERVAL;
    while newest_nominal(&site.history()) <= from + LENGTH {
        let pace = site.history().0.len() + random.usize(10..120);
        until_so("some more has run", || site.history().0.len() >= pace);
        let history = site.history();
        let settled = workers.iter().filter(|worker| has_run(&history, worker)).count();
        if workers.len() < processes || (workers.len() < processes + 3 && random.bool()) {
            workers.push(site.start(&orders));
        } else if settled >= processes {
            // All but one that are known to work stay.
            let mut one: Worker = workers.swap_remove(random.usize(..workers.len()));
            one.terminate();
            leaving.push(one);
        }
    }
    workers.append(&mut leaving);
    end_all(workers);
    assert_complete(site, from, from + LENGTH);
}

pub(super) fn instances_started_one_after_the_other_keep_to_one_grid(site: &Site, processes: usize) {
    let orders = Orders::new(["grid,every=5s"]);
    let mut workers = Vec::new();
    for _ in 0..processes {
        workers.push(site.start(&orders));
        let at = wall_ms() + 6000 / processes as i64;
        until_so("a part of 6 s is over", || wall_ms() >= at);
    }
    let from = until("there is a run", || site.history().runs("grid").first().map(|run| run.start.nominal));
    until_so("ten more occurrences are over", || newest_nominal(&site.history()) >= from + 50_000);
    end_all(workers);
    site.verify();
    let nominals: Vec<i64> = site.history().runs("grid").iter().map(|run| run.start.nominal).collect();
    let grid: Vec<i64> = (0..).map(|n| from + n * 5000).take(nominals.len()).collect();
    assert_eq!(nominals, grid);
}

/// All due at once, but not together with those of the scenarios that play beside it: they would keep each other from
/// being in time.
fn twenty_jobs() -> Orders {
    let offset = fastrand::i64(0..INTERVAL);
    Orders::new((0..JOBS).map(|n| format!("job-{n:02},every={INTERVAL}ms,offset={offset}ms")))
}

fn has_run(history: &History, worker: &Worker) -> bool {
    history.0.iter().any(|entry| entry.pid == worker.pid())
}

fn newest_nominal(history: &History) -> i64 {
    history.0.iter().map(|entry| entry.nominal).max().unwrap_or(0)
}

fn end_all(mut workers: Vec<Worker>) {
    workers.iter_mut().for_each(Worker::terminate);
    for mut worker in workers {
        let status = worker.ended();
        assert!(status.success(), "a worker ended badly after SIGTERM: {status:?}");
    }
}

/// Every job has run at every nominal time, once. Two ends of one nominal time are never excused.
fn assert_complete(site: &Site, from: i64, to: i64) {
    site.verify();
    let jobs: Vec<String> = (0..JOBS).map(|n| format!("job-{n:02}")).collect();
    super::assert_complete(site, &jobs, from, to, INTERVAL);
}
