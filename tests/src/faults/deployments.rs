//! A rolling deployment and its roll-back, with two real builds: `examples/rolling/v1.rs` and `v2.rs`.

use std::time::Duration;

use anarchon::protocol::{RunOutcome, Status};

use super::{SLACK, assert_no_errors, has_line, mono, once, secs, wall_ms};
use crate::{
    history::Run,
    process::{Orders, Worker},
    site::Site,
    wait::{until, until_so},
};

/// After this long at most the schedule of the version that is left is in force, when the last other instance was told to end: a beat
/// comes every 10 s.
const CHANGE: Duration = secs(12);
/// The same when it was killed: its announcement counts for 30 s.
const CHANGE_AFTER_KILL: Duration = secs(42);
/// The same where there are no announcements: after the next occurrence, the catch-up window of 10 s and a look.
const UNANNOUNCED: Duration = secs(22);
/// How many at a time are replaced: a third.
const STEPS: usize = 3;

fn version_1() -> Orders {
    let jobs = ["stays,every=2s,lease=5s", "goes,every=4s,lease=5s", "moves,every=4s,lease=5s,catch_up=10s"];
    Orders::example("rolling_v1", jobs)
}

fn version_2() -> Orders {
    let jobs = ["stays,every=2s,lease=5s", "comes,every=2s,lease=5s", "moves,every=3s,lease=5s,catch_up=10s"];
    Orders::example("rolling_v2", jobs)
}

/// Instances of two versions.
struct Fleet<'a> {
    site: &'a Site,
    old: Vec<Worker>,
    new: Vec<Worker>,
}

impl<'a> Fleet<'a> {
    fn of(site: &'a Site, old: Vec<Worker>) -> Self {
        Self { site, old, new: Vec::new() }
    }

    /// Ends so many of the old ones as a deployment does, and starts as many of the next version in their place.
    fn replace(&mut self, count: usize, next: &Orders) {
        let mut leaving: Vec<Worker> = self.old.drain(..count.min(self.old.len())).collect();
        leaving.iter_mut().for_each(Worker::terminate);
        leaving.iter_mut().for_each(ended_well);
        self.new.extend(self.site.start_all(leaving.len(), next));
    }

    fn runs_on(&self, job: &str, workers: &[Worker]) -> Vec<Run> {
        let ours = |run: &Run| workers.iter().any(|worker| worker.pid() == run.start.pid);
        self.site.history().runs(job).into_iter().filter(ours).collect()
    }

    /// The old version goes on with what the new one lacks or has at other times, which says so; what both have is shared.
    fn is_mixed(&self, added: &str, removed: &str) {
        until_so("the added job runs", || !self.runs_on(added, &self.new).is_empty());
        let since = mono();
        for (job, workers) in [(removed, &self.old), ("moves", &self.old), ("stays", &self.new)] {
            until_so(&format!("{job} goes on"), || {
                self.runs_on(job, workers).iter().any(|run| run.start.mono > since && run.is_done())
            });
        }
        until_so("the new ones tell of the schedule", || {
            self.new
                .iter()
                .all(|worker| has_line(&worker.log(), &["another schedule is in force", "job=moves"]))
        });
        assert_eq!(self.runs_on("moves", &self.new), [], "two schedules were in force at a time");
    }

    /// Of the new version alone: its schedule is in force in time, and nothing configured it.
    fn is_whole(&self, within: Duration) {
        assert!(self.old.is_empty());
        let ended = mono();
        until_so("the new schedule is in force", || self.runs_on("moves", &self.new).len() >= 2);
        let first = &self.runs_on("moves", &self.new)[0];
        let took = first.start.mono.since(ended);
        let within = if self.site.has_announcements() { within } else { UNANNOUNCED };
        assert!(took <= within + SLACK, "it took {took:?}");
        println!("the new schedule was in force after {took:?}");
        let said = |worker: &Worker| has_line(&worker.log(), &["schedule is in force now", "job=moves"]);
        assert!(self.new.iter().any(said), "nobody said so");
    }

    /// One version becomes the other, step by step.
    fn roll(mut self, next: &Orders, added: &str, removed: &str) -> Self {
        let step = self.old.len().div_ceil(STEPS);
        self.replace(step, next);
        self.is_mixed(added, removed);
        while !self.old.is_empty() {
            self.replace(step, next);
        }
        self.is_whole(CHANGE);
        Self::of(self.site, self.new)
    }

    /// `kill -9` for one that is in the middle of runs of all these jobs, which are returned.
    fn kill_amid(&mut self, jobs: &[&str]) -> Vec<Run> {
        let amid = |pid: u32| {
            let history = self.site.history();
            let run =
                |job: &&str| history.runs(job).into_iter().find(|run| run.start.pid == pid && !run.is_done());
            jobs.iter().map(run).collect::<Option<Vec<_>>>()
        };
        let (at, runs) = until("one is in the middle of all", || {
            let at = self.old.iter().position(|worker| amid(worker.pid()).is_some())?;
            let worker = &self.old[at];
            // Frozen, it cannot come to their end meanwhile.
            worker.freeze();
            let runs = amid(worker.pid());
            if runs.is_none() {
                worker.thaw();
            }
            Some((at, runs?))
        });
        let mut victim = self.old.remove(at);
        victim.kill();
        victim.ended();
        runs
    }

    /// Ends all, and judges the whole history.
    fn end_and_verify(self) {
        // Waiting: won at the moment of a shutdown, and given back unstarted.
        let fine = [Status::Succeeded, Status::Waiting];
        let mut all = self.old;
        all.extend(self.new);
        all.iter_mut().for_each(Worker::terminate);
        all.iter_mut().for_each(ended_well);
        for job in ["stays", "goes", "comes", "moves"] {
            let record = self.site.record(job).record;
            assert!(fine.contains(&record.status), "an error state is left: {job} {record:?}");
        }
        let log = self.site.logs();
        assert_no_errors(&log);
        let wrong =
            |line: &&str| line.contains("another schedule is in force") && !line.contains("job=moves ");
        assert_eq!(log.lines().find(wrong), None, "of a job that is the same in both");
        self.site.verify();
    }
}

/// It is played where instances announce themselves.
pub(super) const NEEDS_ANNOUNCEMENTS: &str =
    "what_fell_due_while_a_new_schedule_was_waited_for_runs_whoever_puts_it_in_force";

pub(super) fn what_fell_due_while_a_new_schedule_was_waited_for_runs_whoever_puts_it_in_force(site: &Site) {
    let lease = "lease=5s,catch_up=300s";
    let (old, _) = once(secs(1800));
    let mut old = site.start(&Orders::new([format!("j,{old},{lease}")]));
    until_so("the old one has started", || old.has_started());
    let (new, at) = once(secs(12));
    let new = Orders::new([format!("j,{new},{lease}")]);
    let waits = |worker: &Worker| has_line(&worker.log(), &["another schedule is in force", "job=j"]);
    let mut first = site.start(&new);
    until_so("the first new one waits", || waits(&first));
    assert!(wall_ms() < at, "this machine is too slow for the scenario");
    until_so("the planned time is over", || wall_ms() > at + 1000);
    let mut second = site.start(&new);
    until_so("the second new one waits", || waits(&second));
    first.freeze();
    old.terminate();
    let run = site.run("j", "has ended well", Run::is_done);
    assert_eq!((run.start.nominal, run.start.pid), (at, second.pid()));
    first.thaw();
    for worker in [&mut old, &mut first, &mut second] {
        worker.terminate();
        ended_well(worker);
    }
    site.verify();
}

fn ended_well(worker: &mut Worker) {
    assert!(worker.ended().success(), "it ended badly after SIGTERM:\n{}", worker.log());
}

pub(super) fn a_deployment_of_two_builds_and_its_roll_back_run_each_nominal_once_and_need_no_hand(
    site: &Site,
    processes: usize,
) {
    let fleet = Fleet::of(site, site.start_all(processes, &version_1()));
    for job in ["stays", "goes", "moves"] {
        site.run(job, "has ended well", Run::is_done);
    }
    let fleet = fleet.roll(&version_2(), "comes", "goes");
    let fleet = fleet.roll(&version_1(), "goes", "comes");
    fleet.end_and_verify();
}

/// A run is carried on by those who have its job in force; when none of them is left, by nobody, until a roll-back.
pub(super) fn a_killed_instance_of_a_deployment_leaves_its_runs_to_those_that_have_the_job(site: &Site) {
    let mut fleet = Fleet::of(site, site.start_all(3, &version_1()));

    let again = loop {
        let killed = fleet.kill_amid(&["goes"]).remove(0).start;
        if fleet.new.is_empty() {
            fleet.new.extend(site.start_all(1, &version_2()));
        } else {
            fleet.old.extend(site.start_all(1, &version_1()));
        }
        // Where the machine is busy the next occurrence may come before the takeover: the newest wins, and we try again.
        let next = site.run("goes", "is a second attempt, or newer", |run| {
            let is_next = run.start.nominal == killed.nominal && run.start.attempt == 2;
            run.is_done() && (is_next || run.start.nominal > killed.nominal)
        });
        if next.start.nominal == killed.nominal {
            break next;
        }
    };
    assert!(fleet.old.iter().any(|worker| worker.pid() == again.start.pid));

    fleet.replace(1, &version_2());
    let dead = fleet.kill_amid(&["goes", "moves"]);
    let [dead_goes, dead_moves] = [&dead[0].start, &dead[1].start];
    fleet.new.extend(site.start_all(1, &version_2()));
    fleet.is_whole(CHANGE_AFTER_KILL);
    // On RabbitMQ the history can be read between two runs only.
    let outcome = |job: &str, token: u64| {
        until(&format!("the dead run of {job} is closed"), || {
            site.record(job).history.iter().find(|run| run.token.0 == token).map(|run| run.outcome)
        })
    };
    // The newest wins, and is of the new schedule.
    assert_eq!(outcome("moves", dead_moves.token), RunOutcome::Lost);
    let left = site.record("goes");
    assert_eq!((left.record.status, left.record.token.0), (Status::Running, dead_goes.token));

    let mut fleet = Fleet::of(site, fleet.new);
    while !fleet.old.is_empty() {
        fleet.replace(1, &version_1());
    }
    fleet.is_whole(CHANGE);
    site.run("goes", "is back", |run| run.start.token > dead_goes.token && run.is_done());
    assert_eq!(outcome("goes", dead_goes.token), RunOutcome::Lost);
    fleet.end_and_verify();
}
