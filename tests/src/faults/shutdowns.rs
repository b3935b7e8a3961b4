//! SIGTERM with and without time to finish.

use anarchon::protocol::Status;

use super::{SLACK, begin_of, has_line, lateness, mono, secs, soon, wall_ms, winner_and_others};
use crate::{
    history::{Fact, Run},
    process::Orders,
    site::{Outage, Site},
    wait::until_so,
};

pub(super) fn a_run_that_ends_in_the_drain_is_the_only_attempt(site: &Site, processes: usize) {
    let schedule = soon(secs(15), begin_of(processes));
    let orders = Orders::new([format!("j,{schedule},run=8s,step=100ms,lease=5s")]);
    let (mut winner, others, run) = winner_and_others(site, processes, &orders, 5);
    winner.terminate();
    assert_eq!(winner.ended().code(), Some(0));
    let next = site.run("j", "is of the next occurrence", |next| next.start.nominal > run.start.nominal);
    assert!(
        others.iter().any(|other| other.pid() == next.start.pid),
        "by the one that ended: {}",
        next.start
    );
    assert_eq!((next.start.nominal - run.start.nominal, next.start.attempt), (15_000, 1));
    assert!(!next.start.catch_up && lateness(&next) <= secs(1) + SLACK, "late: {}", next.start);
    let runs = site.history().runs("j");
    assert!(runs[0].is_done() && runs[1] == next, "{runs:?}");
    drop((winner, others));
    site.verify();
}

pub(super) fn a_run_that_outlasts_the_drain_is_given_back_and_not_held_until_its_lease_ends(
    site: &Site,
    processes: usize,
) {
    // Its future is dropped 2 s after the end of the drain.
    let second = given_back(site, processes, "ok", secs(1 + 2));
    assert_eq!(second.last.fact, Fact::Step);
    assert!(site.history().runs("j")[0].dropped);
}

pub(super) fn a_run_that_gives_up_at_shutdown_is_given_back_at_once(site: &Site, processes: usize) {
    given_back(site, processes, "polite", secs(1));
    assert_eq!(site.history().runs("j")[0].last.fact, Fact::Cancelled("shutdown".into()));
}

pub(super) fn a_claim_on_its_way_at_shutdown_is_run_and_not_lost(site: &Site) {
    let due = wall_ms() + 6000;
    let jobs = [format!("j,{},run=1s,lease=30s", soon(secs(120), secs(6))), "tick,every=1s,lease=30s".into()];
    let mut only = site.start(&Orders::new(jobs).option("--drain", "20s"));
    site.run("tick", "has ended well", Run::is_done);
    let reach = |ms: i64| until_so("the time has come", || wall_ms() >= ms);
    reach(due - 500);
    site.stop_store(Outage::Hangs);
    // The claim has left, with its jitter of at most 5 s times 10 %, and cannot be answered.
    reach(due + 1000);
    only.terminate();
    until_so("it shuts down", || has_line(&only.log(), &["shutting down"]));
    site.resume_store();
    assert_eq!(only.ended().code(), Some(0), "{}", only.log());
    let runs = site.history().runs("j");
    assert!(matches!(&runs[..], [run] if run.is_done() && run.start.attempt == 1), "{runs:?}");
    assert_eq!(site.record("j").record.status, Status::Succeeded);
    site.verify();
}

pub(super) fn a_process_told_to_end_while_it_starts_ends_well(site: &Site) {
    let orders = Orders::new(["j,every=1s"]);
    let first = site.start(&orders);
    site.run("j", "has ended well", Run::is_done);
    // It cannot register its jobs meanwhile.
    site.stop_store(Outage::Hangs);
    let mut second = site.start(&orders);
    until_so("it starts", || second.is_starting());
    second.terminate();
    assert_eq!(second.ended().code(), Some(0), "{}", second.log());
    site.resume_store();
    drop(first);
    site.verify();
}

/// The second attempt begins within a second after the first ended, which ends so long after the signal.
fn given_back(site: &Site, processes: usize, mode: &str, ends_after: std::time::Duration) -> Run {
    let schedule = soon(secs(120), begin_of(processes));
    let job = format!("j,{schedule},run=60s,step=100ms,mode={mode},lease=30s");
    let orders = Orders::new([job]).option("--drain", "1s");
    let (mut winner, others, first) = winner_and_others(site, processes, &orders, 5);
    let asked = mono();
    winner.terminate();
    let second = site.run("j", "is a further attempt", |run| run.is_further() && run.steps > 0);
    assert_eq!(second.start.nominal, first.start.nominal);
    assert!(others.iter().any(|other| other.pid() == second.start.pid), "not elsewhere: {}", second.start);
    let after = second.start.mono.since(asked);
    assert!(after <= ends_after + secs(1) + SLACK, "attempt 2 began {after:?} after SIGTERM");
    assert_eq!(winner.ended().code(), Some(0));
    drop((winner, others));
    site.verify();
    second
}
