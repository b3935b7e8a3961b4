//! One line of the table.

use std::{
    fmt,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anarchon_bench::{board::Seen, micros, processes};

use crate::stores::{Started, Traffic};

/// A library, and the program that is an instance of it.
#[derive(Clone, Copy)]
pub struct Scheduler {
    pub name: &'static str,
    pub program: &'static str,
    pub stores: &'static [&'static str],
    /// Whether several instances share their jobs.
    pub is_shared: bool,
}

#[derive(Clone, Copy)]
pub struct Case {
    pub scheduler: Scheduler,
    pub store: &'static str,
    pub jobs: usize,
    pub instances: usize,
    pub jitter: bool,
    pub idle: bool,
}

pub const HEAD: &str = "\
| store | scheduler | jobs | instances | jitter | once | twice | missed | late p50 ms | p99 | max | share of each % | CPU s, instances | \
MB each | CPU s, store | calls/occ. | items/occ. | bytes/occ. |
| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |";

/// What came of it.
pub struct Line {
    case: Case,
    seconds: usize,
    seen: Seen,
    cpu: f64,
    store_cpu: Option<f64>,
    megabytes: f64,
    /// Of all instances together.
    calls: Option<(u64, u64)>,
    traffic: Option<Traffic>,
}

impl Case {
    /// Plays it for so many seconds, and says what came of it.
    pub fn play(self, seconds: usize) -> Line {
        let store = Started::new(self.store);
        let folder = tempfile::tempdir().expect("a folder");
        let file = |i: usize| folder.path().join(format!("{i}.seen"));
        let mut instances: Vec<Instance> =
            (0..self.instances).map(|i| Instance::start(&self, store.url(), seconds, &file(i))).collect();
        instances.iter_mut().for_each(Instance::wait_until_up);
        // The first occurrences of all are over by then.
        let first = (micros() / 1_000_000 + 3) * 1000;
        instances.iter_mut().for_each(|instance| instance.tell(first));
        let cpu = |instances: &[Instance]| {
            instances.iter().map(|i| processes::cpu_seconds(i.child.id())).sum::<f64>()
        };
        let store_cpu = || store.pid().map(processes::cpu_seconds);
        sleep_until(first - 500);
        let before = (cpu(&instances), store_cpu(), store.traffic());
        sleep_until(first + seconds as i64 * 1000 - 500);
        let after = (cpu(&instances), store_cpu(), store.traffic());
        let megabytes =
            instances.iter().map(|i| processes::resident(i.child.id())).max().unwrap_or(0) as f64 / 1e6;
        let mut seen = Seen::default();
        let mut calls = None;
        for (i, instance) in instances.into_iter().enumerate() {
            instance.wait();
            seen.add(&file(i)).unwrap_or_else(|error| panic!("{}: {error}", self.scheduler.name));
            if let Some((more_calls, more_items)) = calls_of(&file(i)) {
                let (calls, items) = calls.get_or_insert((0, 0));
                *calls += more_calls;
                *items += more_items;
            }
        }
        Line {
            case: self,
            seconds,
            seen,
            cpu: after.0 - before.0,
            store_cpu: after.1.zip(before.1).map(|(after, before)| after - before),
            megabytes,
            calls,
            traffic: after.2.zip(before.2).map(|(after, before)| after.since(before)),
        }
    }
}

/// Calls of the store and items in them, between the two lines that an instance wrote.
fn calls_of(file: &Path) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(file.with_extension("calls")).ok()?;
    let sums: Vec<(u64, u64)> = text
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let numbers =
                |at: usize| words.chunks(3).filter_map(|kind| kind.get(at)?.parse::<u64>().ok()).sum::<u64>();
            (numbers(1), numbers(2))
        })
        .collect();
    let [before, after] = sums[..] else { return None };
    Some((after.0 - before.0, after.1 - before.1)).filter(|(calls, _)| *calls > 0)
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { scheduler, store, jobs, instances, jitter, idle } = self.case;
        let [once, twice, missed] = self.seen.once_twice_missed();
        let ms = |micros: u64| format!("{:.1}", micros as f64 / 1000.0);
        let all: u64 = self.seen.shares.iter().sum();
        let shares: Vec<String> = self
            .seen
            .shares
            .iter()
            .map(|share| format!("{:.0}", *share as f64 * 100.0 / all.max(1) as f64))
            .collect();
        let due = jobs * self.seconds;
        // Of an idle instance a minute counts.
        let per = |count: u64| {
            let units = if idle { self.seconds as f64 * instances as f64 / 60.0 } else { due as f64 };
            format!("{:.2}", count as f64 / units)
        };
        let some = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
        write!(
            f,
            "| {store} | {} | {jobs} | {instances} | {} | {once} | {twice} | {missed} | {} | {} | {} | {} | {:.2} | {:.1} | {} | {} | {} | {} |",
            scheduler.name,
            if jitter { "default" } else { "off" },
            ms(self.seen.percentile(0.5)),
            ms(self.seen.percentile(0.99)),
            ms(self.seen.longest),
            shares.join(" "),
            self.cpu,
            self.megabytes,
            some(self.store_cpu.map(|cpu| format!("{cpu:.2}"))),
            some(self.calls.map(|(calls, _)| per(calls))),
            some(self.calls.map(|(_, items)| per(items))),
            some(self.traffic.map(|traffic| per(traffic.bytes))),
        )
    }
}

struct Instance {
    child: Child,
}

impl Instance {
    fn start(case: &Case, url: &str, seconds: usize, out: &Path) -> Self {
        let child = Command::new(program(case.scheduler.program))
            .args([url, &case.jobs.to_string(), &seconds.to_string()])
            .args([if case.jitter { "on" } else { "off" }, if case.idle { "idle" } else { "busy" }])
            .arg(out)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program of an instance");
        Self { child }
    }

    fn wait_until_up(&mut self) {
        let out = self.child.stdout.as_mut().expect("it is piped");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "up", "an instance could not start");
    }

    fn tell(&mut self, first: i64) {
        writeln!(self.child.stdin.as_mut().expect("it is piped"), "{first}").expect("it is there");
    }

    fn wait(mut self) {
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "an instance ended with {status}");
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It has ended already, but after a panic.
        let _ = self.child.kill();
    }
}

fn program(name: &str) -> PathBuf {
    std::env::current_exe().expect("a program").with_file_name(name)
}

fn sleep_until(at: i64) {
    thread::sleep(Duration::from_micros(u64::try_from(at * 1000 - micros()).unwrap_or(0)));
}
