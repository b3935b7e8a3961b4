//! What a signal does to a program that calls `run`: real processes, really signalled.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use anarchon_tests::wait::{until, until_so};

#[test]
fn two_signals_that_come_together_are_one() {
    let (code, rest) = twice("1500", "end");
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("done\n"), "the run was not waited for: {rest}");
}

/// The second one may come when `run` has already returned.
#[test]
fn two_signals_that_come_together_are_one_also_when_nothing_runs() {
    for _ in 0..5 {
        let (code, rest) = twice("0", "end");
        assert_eq!(code, Some(0), "{rest}");
    }
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut program = Program::start("forever", "end");
        program.read("started");
        assert_eq!(program.signal_until_it_ends(signal), Some(code));
    }
}

#[test]
fn what_a_program_does_after_run_can_be_interrupted() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut program = Program::start("0", "wait");
        program.read("started");
        program.signal(signal);
        program.read("returned");
        assert_eq!(program.signal_until_it_ends(signal), Some(code));
    }
}

#[test]
fn a_program_whose_start_was_refused_can_be_interrupted() {
    let mut program = Program::start("refused", "wait");
    program.read("returned Store");
    program.signal(Signal::INT);
    assert_eq!(program.end().0, Some(130));
}

#[test]
fn after_run_a_signal_is_left_to_the_program_that_listened_before() {
    let mut program = Program::start("0", "count");
    program.read("started");
    program.signal(Signal::INT);
    program.read("returned");
    // Ten of them take longer than two signals that count as one.
    assert_eq!(program.signal_until_it_ends(Signal::INT), Some(7));
}

#[test]
fn a_handler_that_blocks_does_not_keep_run_from_returning_nor_the_process_from_exiting() {
    let mut program = Program::start("block", "exit");
    program.read("started");
    program.signal(Signal::TERM);
    program.read("returned");
    assert_eq!(program.end().0, Some(0));
}

/// What the documentation of `Scheduler::drain` says of tokio.
#[test]
fn a_handler_that_blocks_keeps_the_runtime_from_being_dropped() {
    let mut program = Program::start("block", "end");
    program.read("started");
    program.signal(Signal::TERM);
    let warned = program.read("returned");
    assert!(warned.contains("the handler still blocks its thread") && warned.contains("job=job"), "{warned}");
    program.read("dropping the runtime");
    until("its main thread waits", || program.main_thread_sleeps().then_some(()));
    program.signal(Signal::TERM);
    let (code, rest) = program.end();
    assert_eq!((code, rest.as_str()), (Some(143), ""));
}

/// `program | head -1`: the log's pipe is closed, on which the usual subscriber panics.
#[test]
fn a_log_that_nobody_reads_keeps_neither_runs_from_going_on_nor_the_program_from_ending() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs");
        let runs = || std::fs::read(&file).map_or(0, |bytes| bytes.len());
        let mut child = Command::new("env")
            .args(["--default-signal=INT,TERM", env!("CARGO_BIN_EXE_unheard")])
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until_so("it runs", || runs() > 0);
        drop((child.stdout.take(), child.stderr.take()));
        let before = runs();
        until_so("runs go on", || runs() > before + 2);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = until("it ends", || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(0));
    }
}

/// Signals twice within a moment, and returns how it ended and what it said after.
fn twice(run: &str, after: &str) -> (Option<i32>, String) {
    loop {
        let mut program = Program::start(run, after);
        program.read("started");
        let begun = Instant::now();
        program.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(5));
        program.signal(Signal::INT);
        // On a busy machine we may have been kept from the second one.
        if begun.elapsed() < Duration::from_millis(200) {
            return program.end();
        }
    }
}

/// A running `signalled`. Dropping it kills it.
struct Program {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Program {
    fn start(run: &str, after: &str) -> Self {
        // A shell has its background jobs ignore SIGINT, and what it starts inherits that.
        let mut child = Command::new("env")
            .args(["--default-signal=INT,TERM", env!("CARGO_BIN_EXE_signalled"), run, after])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, said }
    }

    /// Reads up to a line, and returns what came before it.
    fn read(&mut self, word: &str) -> String {
        let mut said = String::new();
        loop {
            let start = said.len();
            assert!(self.said.read_line(&mut said).expect("lines") > 0, "it ended before it said {word:?}");
            if said[start..].trim_end() == word {
                said.truncate(start);
                return said;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        // Not there: it has ended, which is found out later.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// False as well when it has ended.
    fn main_thread_sleeps(&self) -> bool {
        let id = self.child.id();
        let stat = std::fs::read_to_string(format!("/proc/{id}/task/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
    }

    fn signal_until_it_ends(mut self, signal: Signal) -> Option<i32> {
        let mut last = Instant::now();
        self.signal(signal);
        until("it ends", || {
            if last.elapsed() > Duration::from_millis(100) {
                last = Instant::now();
                self.signal(signal);
            }
            self.child.try_wait().expect("it is our child")
        })
        .code()
    }

    fn end(mut self) -> (Option<i32>, String) {
        let status = until("it ends", || self.child.try_wait().expect("it is our child"));
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("text");
        (status.code(), rest)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
