//! Connections that somebody ends, while the server goes on.

use super::{SLACK, assert_complete, assert_no_errors, mono, once, secs};
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
    const INTERVAL: i64 = 2000;
    let (schedule, due) = once(secs(4));
    let orders = Orders::new([
        format!("long,{schedule},run=20s,step=50ms,lease=5s,catch_up=60s"),
        format!("tick,every={INTERVAL}ms,lease=5s,catch_up=60s"),
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
    println!("the next run began within {slowest:?}, with one due every {INTERVAL} ms");
    assert!(slowest <= secs(3) + SLACK, "the next run began {slowest:?} after the connections had ended");
    let runs = || site.history().runs("long");
    let long = site.run("long", "is over", |run| run.is_done() || run.dropped);
    assert!(long.is_done(), "it lost its lease: {}", long.last);
    assert_eq!(runs().len(), 1, "it was the only attempt: {}", long.start);
    assert_eq!(long.start.nominal, due);
    let newest = site.history().runs("tick").last().expect("it runs on").start.nominal;
    site.run("tick", "has ended well later", |run| run.start.nominal > newest && run.is_done());
    assert!(!workers.iter_mut().any(Worker::has_ended));
    assert_no_errors(&site.logs());
    drop(workers);
    let first = site.history().runs("tick")[0].start.nominal;
    assert_complete(site, &["tick"], first, newest + INTERVAL, INTERVAL);
    site.verify();
}
