//! Runs that take longer than their interval or their lease.

use anarchon::protocol::{Millis, Status};

use super::{SLACK, begin_of, has_line, lateness, secs, soon, wall_ms};
use crate::{
    history::Run,
    process::{Orders, Worker},
    site::Site,
    wait::{until, until_so},
};

pub(super) fn a_run_longer_than_its_interval_skips_occurrences_and_never_runs_twice_at_once(
    site: &Site,
    processes: usize,
) {
    let mut workers = site.start_all(processes, &Orders::new(["j,every=2s,run=9s,step=100ms,lease=5s"]));
    let done = |n: usize| site.history().runs("j").iter().filter(|run| run.is_done()).count() >= n;
    until_so("one run is over", || done(1));
    // Whoever runs now stays; one of the idle ones goes.
    let running =
        until("the next one runs", || site.history().runs("j").last().filter(|r| !r.is_done()).cloned());
    let idle = workers.iter_mut().find(|worker| worker.pid() != running.start.pid);
    idle.map(Worker::kill).expect("several processes and one run");
    until_so("four runs are over", || done(4));
    let (history, logs) = (site.history(), site.logs());
    let runs = history.runs("j");
    for pair in runs.windows(2) {
        let (first, second): (&Run, &Run) = (&pair[0], &pair[1]);
        assert!(first.is_done() && second.start.attempt == 1, "{second:?} after {first:?}");
        let late = lateness(second);
        assert!(
            late <= secs(1) + SLACK,
            "the next run began {late:?} after its planned time: {}",
            second.start
        );
        let skipped = (first.start.nominal + 2000..second.start.nominal)
            .step_by(2000)
            .filter(|n| has_line(&logs, &["skipped", "job=j", &format!("occurrence={}", Millis(*n))]))
            .count();
        assert!(skipped > 0, "nobody recorded a skip between {} and {}", first.start, second.start);
    }
    drop(workers);
    site.verify();
}

pub(super) fn a_run_of_five_leases_keeps_its_lease(site: &Site, processes: usize) {
    keeps_its_lease(site, processes, "run=25s,step=200ms", "multi-thread");
}

pub(super) fn a_handler_that_blocks_its_thread_for_five_leases_keeps_its_lease(
    site: &Site,
    processes: usize,
) {
    keeps_its_lease(site, processes, "run=25s,mode=block", "current-thread");
}

fn keeps_its_lease(site: &Site, processes: usize, kind: &str, runtime: &str) {
    let schedule = soon(secs(120), begin_of(processes));
    let orders = Orders::new([format!("j,{schedule},{kind},lease=5s")]).option("--runtime", runtime);
    let workers = site.start_all(processes, &orders);
    let run = site.run("j", "has ended well", Run::is_done);
    until_so("the end is recorded", || site.record("j").record.status == Status::Succeeded);
    // Two leases more would show whoever took over meanwhile.
    let at = wall_ms() + 2000;
    until_so("others had their chance", || wall_ms() >= at);
    assert_eq!(site.history().runs("j"), [run]);
    let record = site.record("j").record;
    assert_eq!((record.attempt, record.crashes), (1, 0));
    assert!(!has_line(&site.logs(), &["lease lost"]));
    drop(workers);
    site.verify();
}
