//! The example programs, as a user has them.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::wait::{PATIENCE, until};

/// Where the program of an example is, built as `cargo test --workspace --all-features` builds it, so that it is seldom built twice.
///
/// # Panics
/// When there is none of that name, or it does not build.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    static BUILT: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(build);
    built.get(name).unwrap_or_else(|| panic!("there is no example {name}")).clone()
}

fn build() -> BTreeMap<String, PathBuf> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--workspace", "--all-features", "--examples", "--message-format=json"])
        .args((!cfg!(debug_assertions)).then_some("--release"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo, which runs the tests");
    assert!(output.status.success(), "the examples do not build");
    let messages = output.stdout.split(|byte| *byte == b'\n');
    messages
        .filter_map(|message| serde_json::from_slice::<Value>(message).ok())
        .filter(|message| message["target"]["kind"][0] == "example")
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_owned();
            Some((name, message["executable"].as_str()?.into()))
        })
        .collect()
}

/// A program that is killed when a test fails before its end.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts it with nothing on its standard input.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(command: &mut Command) -> Self {
        Self::reading(command, Stdio::null())
    }

    /// Starts it with this on its standard input.
    ///
    /// # Panics
    /// When it does not start.
    pub fn reading(command: &mut Command, input: impl Into<Stdio>) -> Self {
        Self(command.stdin(input).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Whether it has ended.
    ///
    /// # Panics
    /// When the system does not tell.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some()
    }

    /// Sends it a signal, which it does not hear if it has ended.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }

    /// Waits for its exit code; a signal has none.
    ///
    /// # Panics
    /// When it does not end.
    pub fn end(&mut self) -> Option<i32> {
        until("it ends", || self.0.try_wait().expect("a child")).code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that goes on until it is told to end, and what it says on standard output.
#[derive(Debug)]
pub struct Running {
    process: Process,
    lines: Receiver<String>,
}

impl Running {
    /// Starts it.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(command: &mut Command) -> Self {
        let mut process = Process::start(command.stdout(Stdio::piped()));
        let said = BufReader::new(process.0.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { process, lines }
    }

    /// Reads up to the line that is waited for, and returns that.
    ///
    /// # Panics
    /// When it does not come, with what came.
    pub fn read_until(&self, mut enough: impl FnMut(&str) -> bool) -> String {
        let begin = Instant::now();
        let mut said = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE.saturating_sub(begin.elapsed()));
            let line = line.unwrap_or_else(|error| panic!("{error}, and it had said only {said:?}"));
            if enough(&line) {
                return line;
            }
            said.push(line);
        }
    }

    /// What follows these words at the beginning of a line.
    ///
    /// # Panics
    /// When no line begins so.
    #[must_use]
    pub fn value(&self, words: &str) -> String {
        self.read_until(|line| line.starts_with(words))[words.len()..].to_owned()
    }

    /// The number of its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.0.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for its end: its exit code and the rest of what it said.
    ///
    /// # Panics
    /// When it does not end.
    #[must_use]
    pub fn end(mut self) -> (Option<i32>, String) {
        let code = self.process.end();
        (code, self.lines.iter().map(|line| line + "\n").collect())
    }
}
