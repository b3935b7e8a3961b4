//! An instance, as a process of its own: one of the programs in `bin`.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anarchon_bench::{instance::Kind, micros, processes};
use rustix::process::{Pid, Signal, kill_process};

/// A library, and the program that is an instance of it.
#[derive(Debug, Clone, Copy)]
pub struct Scheduler {
    pub name: &'static str,
    pub program: &'static str,
    pub stores: &'static [&'static str],
    /// Whether several instances share their jobs.
    pub is_shared: bool,
}

impl Scheduler {
    /// Its name and version.
    pub fn version(self) -> String {
        let line = format!("name = \"{}\"\nversion = \"", self.name);
        let version = LOCK.split_once(&line).and_then(|(_, rest)| rest.split('"').next());
        format!("{} {}", self.name, version.unwrap_or_default())
    }
}

/// The versions that this was built with.
const LOCK: &str = include_str!("../Cargo.lock");

/// What an instance is to do, but for where.
#[derive(Clone, Copy)]
pub struct Work {
    pub scheduler: Scheduler,
    pub jobs: usize,
    pub seconds: usize,
    pub jitter: bool,
    pub kind: Kind,
}

/// It is killed when this is dropped.
pub struct Instance {
    child: Child,
    file: PathBuf,
}

impl Instance {
    /// Starts it; what it saw will be in this file.
    pub fn start(work: &Work, url: &str, file: PathBuf) -> Self {
        let program = std::env::current_exe().expect("a program").with_file_name(work.scheduler.program);
        let child = Command::new(program)
            .args([url, &work.jobs.to_string(), &work.seconds.to_string()])
            .args([if work.jitter { "on" } else { "off" }, work.kind.word()])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program of an instance");
        Self { child, file }
    }

    pub fn wait_until_up(&mut self) {
        let out = self.child.stdout.as_mut().expect("it is piped");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "up", "an instance could not start");
    }

    /// Tells it when what counts begins, in ms since the epoch.
    pub fn tell(&mut self, first: i64) {
        writeln!(self.child.stdin.as_mut().expect("it is piped"), "{first}").expect("it is there");
    }

    pub fn cpu_seconds(&self) -> f64 {
        processes::cpu_seconds(self.child.id())
    }

    pub fn resident(&self) -> u64 {
        processes::resident(self.child.id())
    }

    /// Sends it SIGSTOP or SIGCONT.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("it is there");
        self.child.wait().expect("a child");
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) {
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "an instance ended with {status}");
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Calls of the store and items in them, if it counts them.
    pub fn calls(&self) -> Option<(u64, u64)> {
        let text = std::fs::read_to_string(self.file.with_extension("calls")).ok()?;
        if text.trim().is_empty() {
            return None;
        }
        let sums: Vec<(u64, u64)> = text
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let numbers = |at: usize| {
                    words.chunks(3).filter_map(|kind| kind.get(at)?.parse::<u64>().ok()).sum::<u64>()
                };
                (numbers(1), numbers(2))
            })
            .collect();
        let [before, after] = sums[..] else { return None };
        Some((after.0 - before.0, after.1 - before.1))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It has ended already, but after a panic.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In ms since the epoch.
pub fn sleep_until(at: i64) {
    thread::sleep(Duration::from_micros(u64::try_from(at * 1000 - micros()).unwrap_or(0)));
}

/// The next full second that is so many more away, in ms since the epoch.
pub fn second_in(seconds: i64) -> i64 {
    (micros() / 1_000_000 + seconds) * 1000
}

/// Calls and items of all of them together.
pub fn calls_of_all(instances: &[Instance]) -> Option<(u64, u64)> {
    instances
        .iter()
        .filter_map(Instance::calls)
        .reduce(|(calls, items), (more, more_items)| (calls + more, items + more_items))
}
