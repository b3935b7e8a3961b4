//! A server that forgets everything.

use super::{assert_no_errors, mono, once, secs, wall_ms};
use crate::{
    history::Run,
    process::{Orders, Worker},
    site::{Outage, Site},
    wait::until_so,
};

/// A store that comes back without its data begins anew, and runs nothing of before.
///
/// # Panics
/// When it is not so.
pub fn a_store_that_comes_back_without_its_data_begins_anew_and_runs_nothing_of_before(site: &Site) {
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
    println!("runs again {:?} after the store was back", first.start.mono.since(back));
    site.run("tick", "is on time again", |run| run.start.nominal > back_ms && !run.start.catch_up);
    assert_eq!(site.history().runs("long").len(), 1, "what the store forgot is not run again");
    assert!(first.start.token > long.start.token, "tokens grow all the same");
    assert!(!workers.iter_mut().any(Worker::has_ended));
    assert_no_errors(&site.logs());
    drop(workers);
    site.verify();
}
