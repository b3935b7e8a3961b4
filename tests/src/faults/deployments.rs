//! A rolling update, and back.

use anarchon::protocol::Status;

use super::{SLACK, assert_no_errors, mono, secs};
use crate::{
    history::Run,
    process::{Orders, Worker},
    site::Site,
    wait::until_so,
};

/// After this long at most, on a store without announcements with a catch-up window of 10 s, the schedule of the last version standing is in force.
const CHANGE: u64 = 42;

fn end_all(mut workers: Vec<Worker>) {
    workers.iter_mut().for_each(Worker::terminate);
    for mut worker in workers {
        assert!(worker.ended().success(), "a worker ended badly after SIGTERM");
    }
}

fn runs_on(site: &Site, job: &str, workers: &[Worker]) -> Vec<Run> {
    let ours = |run: &Run| workers.iter().any(|worker| worker.pid() == run.start.pid);
    site.history().runs(job).into_iter().filter(ours).collect()
}

pub(super) fn versions_with_other_jobs_and_schedules_run_each_nominal_once_and_the_last_one_standing_decides(
    site: &Site,
    processes: usize,
) {
    let of_old = processes * 2 / 3;
    let v1 = Orders::new(["stays,every=2s", "goes,every=2s", "moves,every=2s,catch_up=10s"])
        .option("--lease", "5s");
    let v2 = Orders::new(["stays,every=2s", "comes,every=2s", "moves,every=3s,catch_up=10s"])
        .option("--lease", "5s");
    let old = site.start_all(of_old, &v1);
    for job in ["stays", "goes", "moves"] {
        site.run(job, "has ended well", Run::is_done);
    }

    let new = site.start_all(processes - of_old, &v2);
    until_so("the added job runs", || runs_on(site, "comes", &new).len() >= 2);
    until_so("the new ones share what stays", || !runs_on(site, "stays", &new).is_empty());
    let (going, moving) = (site.history().runs("goes").len(), site.history().runs("moves").len());
    until_so("the removed and the rescheduled job go on as before", || {
        site.history().runs("goes").len() >= going + 2 && site.history().runs("moves").len() >= moving + 2
    });
    assert_eq!(runs_on(site, "moves", &new), [], "two schedules were in force at a time");

    end_all(old);
    let ended = mono();
    until_so("the new schedule is in force", || runs_on(site, "moves", &new).len() >= 2);
    let took = runs_on(site, "moves", &new)[0].start.mono.since(ended);
    assert!(took <= secs(CHANGE) + SLACK, "it took {took:?}");
    let gone = site.history().runs("goes").len();

    // And back.
    let old = site.start_all(of_old, &v1);
    let back = mono();
    until_so("the removed job is back", || site.history().runs("goes").len() >= gone + 2);
    assert_eq!(runs_on(site, "moves", &old), []);
    end_all(new);
    let ended = mono();
    until_so("the old schedule is in force again", || runs_on(site, "moves", &old).len() >= 2);
    let took = runs_on(site, "moves", &old)[0].start.mono.since(ended);
    assert!(took <= secs(CHANGE) + SLACK, "it took {took:?}");
    assert!(runs_on(site, "comes", &old).is_empty());
    let stays = site.run("stays", "goes on", |run| run.start.mono > back && run.is_done());
    assert_eq!(stays.start.attempt, 1);

    for job in ["stays", "goes", "comes", "moves"] {
        let record = site.record(job).record;
        assert!(
            // Waiting: won at the moment of a shutdown, and given back unstarted.
            matches!(record.status, Status::Succeeded | Status::Running | Status::Waiting),
            "an error state is left: {job} {record:?}"
        );
    }
    assert_no_errors(&site.logs());
    drop(old);
    site.verify();
}
