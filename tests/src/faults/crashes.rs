//! Winners that die or freeze, and what others make of it.

use anarchon::protocol::{RunOutcome, Status};

use super::{SLACK, begin_of, has_line, mono, secs, soon, winner_and_others};
use crate::{
    history::{Fact, Run},
    process::{Orders, Worker},
    site::Site,
    wait::until_so,
};

const LEASE: u64 = 5;

fn assert_follows(second: &Run, first: &Run) {
    assert_ne!(second.start.pid, first.start.pid, "attempt 2 is elsewhere");
    assert_eq!(second.start.nominal, first.start.nominal);
    assert!(second.start.token > first.start.token);
}

pub(super) fn a_killed_winner_is_followed_by_attempt_two_elsewhere_once_its_lease_is_over(
    site: &Site,
    processes: usize,
) {
    let schedule = soon(secs(20), begin_of(processes));
    let orders = Orders::new([format!("j,{schedule},run=6s,step=100ms,lease=5s")]);
    let (mut winner, others, first) = winner_and_others(site, processes, &orders, 5);
    let killed = mono();
    winner.kill();
    let second = site.run("j", "is a further attempt", Run::is_further);
    assert_follows(&second, &first);
    let after = second.start.mono.since(killed);
    println!("taken over {after:?} after the kill, with leases of {LEASE} s");
    assert!(after <= secs(LEASE + 1) + SLACK, "attempt 2 began {after:?} after the kill");
    // The last renewal was sent within 0.7 leases before: a handler that goes on is trusted.
    assert!(
        after >= secs(LEASE) * 3 / 10,
        "attempt 2 began {after:?} after the kill, before the lease was over"
    );
    site.run("j", "has ended well as a further attempt", |run| run.is_further() && run.is_done());
    let next = site.run("j", "is of the next occurrence", |run| run.start.nominal > first.start.nominal);
    assert_eq!((next.start.nominal - first.start.nominal, next.start.attempt), (20_000, 1));
    drop((winner, others));
    site.verify();
}

pub(super) fn a_frozen_winner_does_nothing_more_when_it_wakes_after_its_lease(site: &Site, processes: usize) {
    let schedule = soon(secs(60), begin_of(processes));
    // Many runs: one of them alone may be dropped before its turn comes, whatever guards it.
    let jobs: Vec<String> = (0..16).map(|n| format!("j-{n:02}")).collect();
    let line = |job: &String| format!("{job},{schedule},run=12s,step=20ms,lease=5s");
    let mut workers = site.start_all(processes, &Orders::new(jobs.iter().map(line)));
    let firsts: Vec<Run> = jobs.iter().map(|job| site.run(job, "has begun", |run| run.steps >= 5)).collect();
    workers.sort_by_key(|worker| firsts.iter().filter(|run| run.start.pid == worker.pid()).count());
    let winner = workers.last().expect("some processes");
    winner.freeze();
    let frozen = mono();
    let firsts: Vec<&Run> = firsts.iter().filter(|run| run.start.pid == winner.pid()).collect();
    for first in &firsts {
        let second = site.run(&first.start.job, "is a further attempt", Run::is_further);
        assert_follows(&second, first);
        let after = second.start.mono.since(frozen);
        println!("taken over {after:?} after the freeze, with leases of {LEASE} s");
        assert!(after <= secs(LEASE + 1) + SLACK, "attempt 2 began {after:?} after the freeze");
    }
    until_so("three leases are over", || mono() >= frozen.plus(secs(3 * LEASE)));
    winner.thaw();
    // A handler that was frozen in the middle of a poll comes to the end of that, which nobody can prevent: its time is over then.
    let mut cut_polls = 0;
    for first in &firsts {
        let (job, token) = (&first.start.job, first.start.token);
        let is_over = |run: &Run| run.start.token == token && (run.dropped || run.is_done());
        let over = site.run(job, "was dropped", is_over);
        if over.last.mono > frozen {
            assert!(over.is_done(), "the frozen handler went on: {}", over.last);
            cut_polls += 1;
        }
        let told = || has_line(&winner.log(), &["lease lost", &format!("job={job} ")]);
        until_so("the frozen one knows that it lost its lease", told);
        let second =
            site.run(job, "has ended well as a further attempt", |run| run.is_further() && run.is_done());
        until_so("the end is recorded", || site.record(job).record.status == Status::Succeeded);
        let record = site.record(job).record;
        assert_eq!((record.token.0, record.attempt), (second.start.token, second.start.attempt));
    }
    // The process has two threads for handlers.
    assert!(cut_polls <= 2, "{cut_polls} frozen handlers went on");
    let pid = winner.pid();
    drop(workers);
    site.verify_history(&if cut_polls > 0 { site.history().without(pid, frozen) } else { site.history() });
}

pub(super) fn a_finish_from_a_frozen_thread_is_refused(site: &Site, processes: usize) {
    let schedule = soon(secs(60), begin_of(processes));
    let orders = Orders::new([format!("j,{schedule},run=8s,mode=block,lease=5s")]);
    let (winner, others, first) = winner_and_others(site, processes, &orders, 0);
    winner.freeze();
    let frozen = mono();
    site.run("j", "has ended well as a further attempt", |run| run.is_further() && run.is_done());
    until_so("three leases are over", || mono() >= frozen.plus(secs(3 * LEASE)));
    winner.thaw();
    // A thread that sleeps cannot be dropped: that its end counts for nothing is what the token is for.
    site.run("j", "has ended late", |run| run.start.token == first.start.token && run.is_done());
    // One that left on a connection which heartbeats ended may have counted, for all that the sender knows: a refusal of its repeat is
    // then no news.
    let told = || {
        let log = winner.log();
        has_line(&log, &["outcome not recorded", "job=j"]) || has_line(&log, &["lapin::heartbeat"])
    };
    until_so("its finish is refused", told);
    let record = site.record("j");
    assert_eq!(record.record.status, Status::Succeeded);
    assert!(record.record.attempt > 1);
    let first_ended =
        record.history.iter().find(|run| run.token.0 == first.start.token).map(|run| run.outcome);
    assert_eq!(first_ended, Some(RunOutcome::Lost));
    let pid = winner.pid();
    drop((winner, others));
    site.verify_history(&site.history().without(pid, frozen));
}

pub(super) fn a_job_that_kills_its_process_is_given_up_after_max_attempts(site: &Site, processes: usize) {
    let schedule = soon(secs(120), begin_of(processes));
    let poison = format!("poison,{schedule},mode=abort,max_attempts=2,lease=5s");
    let mut workers = site.start_all(processes, &Orders::new([poison.as_str(), "healthy,every=1s"]));
    workers.iter_mut().for_each(Worker::may_end);
    until_so("it is given up", || site.record("poison").record.status == Status::Lost);
    let record = site.record("poison").record;
    assert_eq!(record.attempt, 2, "{record:?}");
    let survivors: Vec<u32> = workers.iter_mut().filter_map(|w| (!w.has_ended()).then(|| w.pid())).collect();
    assert_eq!(survivors.len(), processes - 2, "each attempt ended its process");
    let runs = site.history().runs("poison");
    assert_eq!(runs.iter().map(|run| run.start.attempt).collect::<Vec<_>>(), [1, 2]);
    assert!(runs.iter().all(|run| run.last.fact == Fact::Failing));
    // It is told once the store has answered, and so after the record is seen.
    until_so("it is told", || has_line(&site.logs(), &["given up", "job=poison", "status=\"lost\""]));
    let newest = site.history().runs("healthy").len();
    until_so("the healthy job goes on", || site.history().runs("healthy").len() > newest + 3);
    drop(workers);
    site.verify();
}
