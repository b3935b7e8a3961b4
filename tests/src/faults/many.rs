//! Many jobs that are due in the same second.

use std::{collections::BTreeSet, time::Duration};

use super::{once, wall_ms};
use crate::{
    history::Fact,
    process::{Orders, Worker},
    site::Site,
    wait::until_so,
};

/// Jobs that are due once, all together, and the processes that have them.
#[derive(Debug)]
pub struct DueAtOnce<'a> {
    site: &'a Site,
    /// When they are due, in ms since the epoch.
    pub due: i64,
    /// Their names.
    pub jobs: Vec<String>,
    workers: Vec<Worker>,
}

impl<'a> DueAtOnce<'a> {
    /// Starts the processes, all at once, and waits until all are there. The jobs have these options, such as `jitter=0s`.
    ///
    /// # Panics
    /// When that took longer than the jobs were ahead.
    #[must_use]
    pub fn start(site: &'a Site, processes: usize, jobs: usize, options: &[&str], ahead: Duration) -> Self {
        let (schedule, due) = once(ahead);
        let jobs: Vec<String> = (0..jobs).map(|n| format!("j-{n:04}")).collect();
        let line = |job: &String| [&[job.as_str(), &schedule], options].concat().join(",");
        let workers = site.start_all(processes, &Orders::new(jobs.iter().map(line)));
        assert!(wall_ms() < due, "the machine is too slow: they started when the jobs were due already");
        Self { site, due, jobs, workers }
    }

    /// Waits until all have run, ends the processes, and checks that each ran once. Returns how many processes had a run.
    ///
    /// # Panics
    /// When it is not so.
    #[must_use]
    pub fn ran_once_each(&mut self) -> usize {
        let all = self.jobs.len();
        let ends = || self.site.history().0.iter().filter(|entry| entry.fact == Fact::Done).count();
        until_so("all have run", || ends() >= all);
        self.workers.clear();
        let history = self.site.history();
        let starts: Vec<_> = history.0.iter().filter(|entry| entry.fact == Fact::Start).collect();
        let started: BTreeSet<_> = starts.iter().map(|entry| (entry.job.as_str(), entry.nominal)).collect();
        assert_eq!(started, self.jobs.iter().map(|job| (job.as_str(), self.due)).collect());
        assert_eq!(starts.len(), all, "one of them ran twice");
        self.site.verify();
        starts.iter().map(|entry| entry.pid).collect::<BTreeSet<u32>>().len()
    }
}
