//! Holders that are killed, again and again.

use std::{collections::BTreeMap, time::Duration};

use super::{SLACK, begin_of, mono, once, random};
use crate::{
    history::{Fact, History},
    process::{Orders, Worker},
    site::Site,
    wait::{until, until_so},
};

const PROCESSES: usize = 10;
const KILLS: usize = 50;
const JOBS: u32 = 40;
/// Between the due times of two jobs: at each time some runs begin, some are in full swing and some are taken over.
const APART: Duration = Duration::from_millis(1200);

/// Fifty `kill -9` of processes that hold a run, at random moments, up to three at a time; each is started again. Each run comes to
/// its end in as many attempts as that takes.
///
/// Returns the jobs, when all processes are gone.
///
/// # Panics
/// When an occurrence ran twice, or is lost.
pub fn fifty_kills_of_holders_cost_no_occurrence_and_run_none_twice(
    site: &Site,
    lease: Duration,
) -> Vec<String> {
    let mut random = random();
    let begin = begin_of(PROCESSES);
    let mut due = BTreeMap::new();
    let mut line = |n: u32| {
        let (name, (schedule, at)) = (format!("j-{n:02}"), once(begin + APART * n));
        due.insert(name.clone(), at);
        format!(
            "{name},{schedule},run=8s,step=250ms,lease={}s,catch_up=10m,max_attempts=1000",
            lease.as_secs()
        )
    };
    let orders = Orders::new((0..JOBS).map(&mut line));
    let mut workers = site.start_all(PROCESSES, &orders);
    let mut killed = BTreeMap::new();
    while killed.len() < KILLS {
        let moment = mono().plus(Duration::from_millis(random.u64(400..2400)));
        until_so("a moment is over", || mono() >= moment);
        let mut holders = until("some process holds a run", || {
            let holders = holders(&site.history(), &workers);
            (!holders.is_empty()).then_some(holders)
        });
        random.shuffle(&mut holders);
        holders.truncate(random.usize(1..=3).min(KILLS - killed.len()));
        for holder in holders {
            let at = workers.iter().position(|worker| worker.pid() == holder).expect("it is one of them");
            killed.insert(holder, mono());
            workers.swap_remove(at).kill();
        }
        workers.extend((workers.len()..PROCESSES).map(|_| site.start(&orders)));
    }
    for (job, at) in &due {
        site.run(job, "has ended well", |run| run.start.nominal == *at && run.is_done());
        let recorded = || site.record(job).record;
        until_so("the end is recorded", || recorded().status == anarchon::protocol::Status::Succeeded);
        assert_eq!(recorded().decided.0, *at, "of {job}");
    }
    drop(workers);
    let history = site.history();
    let attempts: usize = due.keys().map(|job| history.runs(job).len()).sum();
    println!("{KILLS} kills, {attempts} attempts of {JOBS} occurrences");
    assert!(attempts > due.len(), "no kill ended a run");
    site.verify_history(&without_ends_that_nobody_heard_of(history, &killed));
    due.into_keys().collect()
}

/// The processes that have a run just now.
fn holders(history: &History, workers: &[Worker]) -> Vec<u32> {
    let mut newest = BTreeMap::new();
    for entry in &history.0 {
        newest.insert(&entry.job, entry);
    }
    let runs = newest.values().filter(|entry| matches!(entry.fact, Fact::Start | Fact::Step));
    let mut holders: Vec<u32> = runs.map(|entry| entry.pid).collect();
    holders.sort_unstable();
    holders.dedup();
    holders.retain(|pid| workers.iter().any(|worker| worker.pid() == *pid));
    holders
}

/// A process that is killed after its handler's end and before the store knows of it leaves a run that is taken over: handlers run
/// at least once.
fn without_ends_that_nobody_heard_of(
    mut history: History,
    killed: &BTreeMap<u32, anarchon::clock::Mono>,
) -> History {
    history.0.retain(|entry| {
        let told = killed.get(&entry.pid).is_none_or(|killed| entry.mono.plus(SLACK) < *killed);
        told || entry.fact != Fact::Done
    });
    history
}
