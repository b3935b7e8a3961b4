//! Connections that somebody ends, while the server goes on.

use super::{SLACK, assert_no_errors, mono, once, secs};
use crate::{
    process::{Orders, Worker},
    site::Site,
};

/// Whoever ends all connections three times in the course of a run costs no process, no attempt and no occurrence.
///
/// # Panics
/// When it is not so.
pub fn connections_that_are_ended_cost_no_run_its_lease_and_nothing_runs_twice(site: &Site, end: impl Fn()) {
    const ENDS: usize = 3;
    let (schedule, due) = once(secs(4));
    let orders = Orders::new([
        format!("long,{schedule},run=20s,step=50ms,lease=5s,catch_up=60s"),
        "tick,every=1s,lease=5s,catch_up=60s".to_owned(),
    ]);
    let mut workers = site.start_all(3, &orders);
    site.run("long", "is in full swing", |run| run.steps >= 5);
    let mut slowest = secs(0);
    for _ in 0..ENDS {
        end();
        let ended = mono();
        let next = site.run("tick", "runs on", |run| run.start.mono > ended && run.is_done());
        slowest = slowest.max(next.start.mono.since(ended));
    }
    println!("the next run began within {slowest:?}, with one due each second");
    assert!(slowest <= secs(2) + SLACK, "the next run began {slowest:?} after the connections had ended");
    let runs = || site.history().runs("long");
    let long = site.run("long", "is over", |run| run.is_done() || run.dropped);
    assert!(long.is_done(), "it lost its lease: {}", long.last);
    assert_eq!(runs().len(), 1, "it was the only attempt: {}", long.start);
    assert_eq!(long.start.nominal, due);
    assert!(!workers.iter_mut().any(Worker::has_ended));
    assert_no_errors(&site.logs());
    drop(workers);
    site.verify();
}
