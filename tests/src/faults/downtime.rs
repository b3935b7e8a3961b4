//! Nobody runs, or the store does not, over a due time.

use std::time::Duration;

use super::{SLACK, assert_no_errors, begin_of, has_line, lateness, mono, secs, soon, wall_ms};
use crate::{
    history::Run,
    process::{Orders, Worker},
    site::{Outage, Site},
    wait::{until, until_so},
};

const INTERVAL: i64 = 10_000;

pub(super) fn downtime_of_all_is_followed_by_one_catch_up_run_within_the_window_and_none_outside_it(
    site: &Site,
    processes: usize,
) {
    let orders = late_and_strict(processes);
    let leave = |workers: &mut Vec<Worker>| {
        workers.iter_mut().for_each(Worker::terminate);
        assert!(workers.drain(..).all(|mut worker| worker.ended().success()));
    };
    absence(site, processes, &orders, leave, |workers| workers.extend(site.start_all(processes, &orders)));
}

pub(super) fn processes_that_all_slept_over_a_due_time_catch_up_like_restarted_ones(
    site: &Site,
    processes: usize,
) {
    let freeze = |workers: &mut Vec<Worker>| workers.iter().for_each(Worker::freeze);
    absence(site, processes, &late_and_strict(processes), freeze, |workers| {
        workers.iter().for_each(Worker::thaw)
    });
}

/// One job that may be late, one that may be late by two seconds, and one that may not.
fn late_and_strict(processes: usize) -> Orders {
    let schedule = soon(Duration::from_millis(INTERVAL as u64), begin_of(processes) + secs(1));
    Orders::new([
        format!("late,{schedule},catch_up=60s,lease=5s"),
        format!("strict,{schedule},catch_up=2s,lease=5s"),
        format!("punctual,{schedule},catch_up=none,lease=5s"),
    ])
}

/// Nobody is there over two due times.
fn absence(
    site: &Site,
    processes: usize,
    orders: &Orders,
    leave: impl FnOnce(&mut Vec<Worker>),
    come_back: impl FnOnce(&mut Vec<Worker>),
) {
    let born = wall_ms();
    let mut workers = site.start_all(processes, orders);
    let jobs = ["late", "strict", "punctual"];
    let last = jobs.map(|job| site.run(job, "has ended well", Run::is_done).start.nominal);
    for job in jobs {
        let first = &site.history().runs(job)[0].start;
        assert!(first.nominal >= born && !first.catch_up, "from before the first deployment: {first}");
    }
    leave(&mut workers);
    let left = wall_ms();
    let due = (1..).map(|n| last[0] + n * INTERVAL).find(|due| *due > left).expect("there is one");
    let newest = due + INTERVAL;
    until_so("two due times are over, the newer by 3 s", || wall_ms() >= newest + 3000);
    let back = mono();
    come_back(&mut workers);

    let caught_up = first_after(site, "late", back);
    let next = jobs.map(|job| {
        site.run(job, "is on time again", |run| {
            run.start.mono > back && run.start.nominal > newest && !run.start.catch_up
        })
    });
    // A start so slow that one more due time has passed makes that one the newest.
    assert!(caught_up.start.nominal >= newest, "caught up on what is not the newest: {}", caught_up.start);
    if caught_up.start.nominal == newest {
        assert!(caught_up.start.catch_up, "not marked as a catch-up: {}", caught_up.start);
    }
    assert!(has_line(&site.logs(), &["catching up", "job=late"]), "nobody tells of it");
    for (job, window) in [("late", None), ("strict", Some("window=2s")), ("punctual", Some("window=1.5s"))] {
        let between: Vec<Run> = site
            .history()
            .runs(job)
            .into_iter()
            .filter(|run| run.start.mono > back && run.start.nominal < next[0].start.nominal)
            .collect();
        match window {
            None => assert_eq!(between.len(), 1, "{between:?}"),
            // Started late by no more than its window.
            Some(_) => assert!(between.iter().all(|r| r.start.nominal > newest), "{between:?}"),
        }
        if let Some(window) = window {
            let told = has_line(&site.logs(), &["missed by more than", &format!("job={job} "), window]);
            assert!(told, "no skip that names the {window} of {job}");
        }
    }
    drop(workers);
    site.verify();
}

fn first_after(site: &Site, job: &str, instant: anarchon::clock::Mono) -> Run {
    site.run(job, "began since then", |run| run.start.mono > instant)
}

pub(super) fn a_store_that_hangs_over_a_due_time_costs_no_process_and_the_latest_missed_run_comes_once(
    site: &Site,
    processes: usize,
) {
    outage(site, processes, Outage::Hangs, secs(5));
}

pub(super) fn a_store_that_vanishes_over_a_due_time_costs_no_process_and_the_latest_missed_run_comes_once(
    site: &Site,
    processes: usize,
) {
    outage(site, processes, Outage::Vanishes, secs(5));
}

/// A store that is gone for 20 s costs no process and runs nothing twice; the latest missed occurrence comes once, and then
/// everything is on time again. With these leases, of a store that cannot do with shorter ones.
///
/// # Panics
/// When it is not so.
pub fn a_store_that_is_gone_for_20_s(site: &Site, lease: Duration) {
    outage(site, 3, Outage::Vanishes, lease);
}

fn outage(site: &Site, processes: usize, how: Outage, lease: Duration) {
    let long = soon(secs(120), begin_of(processes));
    let jobs = vec![
        format!("tick,every=5s,catch_up=60s,lease={}s", lease.as_secs()),
        format!("long,{long},run=60s,step=50ms,catch_up=60s,lease={}s", lease.as_secs()),
    ];
    let mut workers = site.start_all(processes, &Orders::new(jobs));
    site.run("tick", "has ended well", Run::is_done);
    let long = site.run("long", "is in full swing", |run| run.steps >= 5);
    site.stop_store(how);
    let (stopped, stopped_ms) = (mono(), wall_ms());
    until_so("20 s are over", || mono() >= stopped.plus(secs(20)));
    // What its last renewal was sent before proves its lease for 0.85 of it.
    let history = site.history();
    let ended = history
        .runs("long")
        .into_iter()
        .find(|run| run.start.token == long.start.token)
        .expect("it is there");
    let outlived = ended.last.mono.since(stopped);
    assert!(outlived <= lease.mul_f64(0.85) + secs(1), "it went on for {outlived:?} without a store");
    assert!(ended.dropped, "it was not dropped");
    assert_eq!(
        workers.iter_mut().filter_map(|w| w.has_ended().then(|| w.pid())).collect::<Vec<u32>>(),
        [] as [u32; 0]
    );
    site.resume_store();
    let (back, back_ms) = (mono(), wall_ms());

    let first = first_after(site, "tick", back);
    // An award that the outage kept from who asked for it is taken over when its lease is over.
    let unheard = if first.is_further() { lease } else { Duration::ZERO };
    let newest = secs(5 + 1) + unheard + SLACK;
    assert!(lateness(&first) <= newest, "not the newest of those missed: {}", first.start);
    let second = site.run("long", "is a further attempt", Run::is_further);
    assert_eq!(second.start.nominal, long.start.nominal);
    println!(
        "back after {:?} of {how:?}: what was missed ran {:?} later, and the run was taken over {:?} later",
        back.since(stopped),
        first.start.mono.since(back),
        second.start.mono.since(back)
    );
    site.run("tick", "is on time again", |run| run.start.nominal > back_ms && !run.start.catch_up);
    let missed: Vec<Run> = site
        .history()
        .runs("tick")
        .into_iter()
        // One of the last second is not missed: it comes on time, beside the one that was being asked for just then.
        .filter(|run| run.start.nominal > stopped_ms && run.start.nominal < back_ms - 1000)
        .collect();
    assert!(missed.len() <= 1, "more than the newest of those missed: {missed:?}");
    if how == Outage::Vanishes {
        for worker in &workers {
            until("each tells that the store was away and is back", || {
                let log = worker.log();
                (has_line(&log, &["does not answer"]) && has_line(&log, &["answers again"])).then_some(())
            });
        }
    }
    // An error of the store is no error of ours.
    assert_no_errors(&site.logs());
    drop(workers);
    site.verify();
}
