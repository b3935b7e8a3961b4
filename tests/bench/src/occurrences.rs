//! The main table: jobs that are due each second, in real processes on a real server.

use std::fmt;

use anarchon_bench::{board, instance::Kind};

use crate::{
    child::{Instance, Scheduler, Work, calls_of_all, second_in, sleep_until},
    page::{Table, or_dash},
    stores::{Seen, Started, most_jobs},
};

const HEAD: [&str; 19] = [
    "store",
    "scheduler",
    "jobs",
    "instances",
    "*jitter",
    "once",
    "twice",
    "missed",
    "late p50 ms",
    "p99",
    "max",
    "*share of each %",
    "CPU s, instances",
    "MB each",
    "CPU s, store",
    "calls/occ.",
    "items/occ.",
    "bytes/occ.",
    "commands/occ.",
];

/// What is played: all of these with each other, where a store and a scheduler have them.
pub struct Plan<'a> {
    pub stores: &'a [&'static str],
    pub schedulers: &'a [Scheduler],
    pub jitters: &'a [bool],
    pub jobs: &'a [usize],
    pub instances: &'a [usize],
    pub seconds: usize,
}

impl Plan<'_> {
    pub fn play(&self, table: &mut Table) {
        table.head(&HEAD, 2);
        for store in self.stores {
            for scheduler in self.schedulers.iter().filter(|scheduler| scheduler.stores.contains(store)) {
                for &jitter in self.jitters.iter().filter(|jitter| !**jitter || scheduler.name == "anarchon")
                {
                    for &jobs in self.jobs.iter().filter(|jobs| **jobs <= most_jobs(store)) {
                        let work = Work {
                            scheduler: *scheduler,
                            jobs,
                            seconds: self.seconds,
                            jitter,
                            kind: Kind::Busy,
                        };
                        let counts = self.instances.iter();
                        for &n in counts.filter(|n| **n == 1 || scheduler.is_shared && *store != "memory") {
                            let first =
                                format!("{store} | {} | {jobs} | {n} | {}", scheduler.name, word(jitter));
                            table.play(&first, |table| (play(work, store, n, table).to_string(), ()));
                        }
                    }
                }
            }
        }
    }
}

pub fn word(jitter: bool) -> &'static str {
    if jitter { "default" } else { "off" }
}

/// What instances see who do this, and the CPU seconds of all of them.
pub fn seen(work: Work, store: &'static str, instances: usize, table: &mut Table) -> (board::Seen, f64) {
    let line = play(work, store, instances, table);
    (line.seen, line.cpu)
}

/// What came of it.
struct Line {
    store: &'static str,
    work: Work,
    seen: board::Seen,
    /// Of all instances together.
    cpu: f64,
    calls: Option<(u64, u64)>,
    megabytes: f64,
    of_store: Option<Seen>,
}

fn play(work: Work, store: &'static str, instances: usize, table: &mut Table) -> Line {
    let started = Started::new(store);
    table.made_with(&started.version());
    table.made_with(&work.scheduler.version());
    let folder = tempfile::tempdir().expect("a folder");
    let start = |i| Instance::start(&work, started.url(), folder.path().join(format!("{i}.seen")));
    let mut instances: Vec<Instance> = (0..instances).map(start).collect();
    instances.iter_mut().for_each(Instance::wait_until_up);
    // The first occurrences of all are over by then.
    let first = second_in(3);
    instances.iter_mut().for_each(|instance| instance.tell(first));
    let cpu = |instances: &[Instance]| instances.iter().map(Instance::cpu_seconds).sum::<f64>();
    sleep_until(first - 500);
    let before = (cpu(&instances), started.seen_at_first());
    sleep_until(first + work.seconds as i64 * 1000 - 500);
    let after = (cpu(&instances), started.seen_at_last());
    let megabytes = instances.iter().map(Instance::resident).max().unwrap_or(0) as f64 / 1e6;
    let mut seen = board::Seen::default();
    for instance in &mut instances {
        instance.wait();
        seen.add(instance.file()).unwrap_or_else(|error| panic!("{}: {error}", work.scheduler.name));
    }
    Line {
        store,
        work,
        seen,
        cpu: after.0 - before.0,
        calls: calls_of_all(&instances),
        megabytes,
        of_store: after.1.zip(before.1).map(|(after, before)| after.since(before)),
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Work { scheduler, jobs, seconds, jitter, .. } = self.work;
        let [once, twice, missed] = self.seen.once_twice_missed();
        let ms = |micros: u64| format!("{:.1}", micros as f64 / 1000.0);
        let all: u64 = self.seen.shares.iter().sum();
        let share = |share: &u64| format!("{:.0}", *share as f64 * 100.0 / all.max(1) as f64);
        let shares: Vec<String> = self.seen.shares.iter().map(share).collect();
        let per = |count: u64| format!("{:.2}", count as f64 / (jobs * seconds) as f64);
        write!(
            f,
            "{} | {} | {jobs} | {} | {} | {once} | {twice} | {missed} | {} | {} | {} | {} | {:.2} | {:.1} | {} | {} | {} | {} | {}",
            self.store,
            scheduler.name,
            shares.len(),
            word(jitter),
            ms(self.seen.percentile(0.5)),
            ms(self.seen.percentile(0.99)),
            ms(self.seen.longest),
            shares.join(" "),
            self.cpu,
            self.megabytes,
            or_dash(self.of_store.map(|seen| format!("{:.2}", seen.cpu))),
            or_dash(self.calls.map(|(calls, _)| per(calls))),
            or_dash(self.calls.map(|(_, items)| per(items))),
            or_dash(self.of_store.and_then(|seen| seen.bytes).map(per)),
            or_dash(self.of_store.and_then(|seen| seen.commands).map(per)),
        )
    }
}
