//! Stopping a process in its tracks, and knowing that it stands still.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::until_so;

/// Whether a process was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freeze {
    /// None of its threads does anything until it is told to go on.
    Stopped,
    /// It has ended before.
    Ended,
}

/// Stops a process, and returns when each of its threads stands still.
///
/// The signal alone is not enough: the kernel stops threads one by one, and one that is in a system call ends it first.
///
/// # Panics
/// When a thread goes on for longer than a test waits.
pub(crate) fn freeze(process: Pid) -> Freeze {
    let mut outcome = match kill_process(process, Signal::STOP) {
        Ok(()) => Freeze::Stopped,
        Err(_) => Freeze::Ended,
    };
    until_so(&format!("every thread of process {} stands still", process.as_raw_nonzero()), || {
        if !is_alive(process) {
            outcome = Freeze::Ended;
        }
        outcome == Freeze::Ended || stands_still(process)
    });
    outcome
}

/// Whether a process is there, and not only waited for. Its main thread may end before the others, which keep its files and
/// ports open.
pub(crate) fn is_alive(process: Pid) -> bool {
    threads(process).any(|state| !is_end(state))
}

fn stands_still(process: Pid) -> bool {
    let id = process.as_raw_nonzero();
    // The main thread first: once one thread is stopped, none starts another, and the list is complete.
    if state(&format!("/proc/{id}/stat")) != Some(STOPPED) {
        return false;
    }
    threads(process).all(|state| state == STOPPED || is_end(state))
}

/// The states of those that there are.
fn threads(process: Pid) -> impl Iterator<Item = char> {
    let threads = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
    threads.into_iter().flatten().flatten().filter_map(|thread| state(thread.path().join("stat").to_str()?))
}

const STOPPED: char = 'T';

fn is_end(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// The letter that the kernel gives a process or thread; none if it is not there.
fn state(stat: &str) -> Option<char> {
    // In brackets comes the name, which may hold anything; behind it the state.
    fs::read_to_string(stat).ok()?.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        io::Read as _,
        os::unix::fs::FileExt as _,
        process::{Child, Command, Stdio},
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    const VICTIM: &str = "ANARCHON_TEST_FROZEN";

    /// Killed with its test: a frozen one would not see that its input ends.
    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Threads that are in long system calls most of the time, and wait there for each other; until its input ends.
    fn victim() {
        let file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).unwrap();
        thread::scope(|threads| {
            threads.spawn(|| {
                let _ = std::io::stdin().read(&mut [0]);
                std::process::exit(0);
            });
            for _ in 0..3 {
                threads.spawn(|| {
                    let much = vec![1; 64 << 20];
                    loop {
                        file.write_all_at(&much, 0).unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn a_frozen_process_does_nothing_more() {
        if env::var_os(VICTIM).is_some() {
            return victim();
        }
        let victim = Command::new(env::current_exe().unwrap())
            .args(["freeze::tests::a_frozen_process_does_nothing_more", "--exact", "--nocapture"])
            .env(VICTIM, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let mut victim = Killed(victim.unwrap());
        let pid = Pid::from_child(&victim.0);
        let done = || {
            let io = fs::read_to_string(format!("/proc/{}/io", pid.as_raw_nonzero())).unwrap();
            io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap().parse::<u64>().unwrap()
        };
        for _ in 0..5 {
            let before = done();
            until_so("it works", || done() > before + (64 << 20));
            assert_eq!(freeze(pid), Freeze::Stopped);
            let (frozen, at) = (done(), Instant::now());
            until_so("some time is over", || at.elapsed() > Duration::from_millis(200));
            assert_eq!(done(), frozen, "it went on");
            kill_process(pid, Signal::CONT).unwrap();
        }
        victim.0.kill().unwrap();
        until_so("it has ended", || !is_alive(pid));
        assert_eq!(freeze(pid), Freeze::Ended);
    }
}
