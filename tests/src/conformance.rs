//! Runs the conformance suite against stores, one test a check and store.

use std::{
    io,
    path::Path,
    process::ExitCode,
    sync::{Arc, OnceLock},
};

use anarchon::conformance::{Harness, checks};
use libtest_mimic::{Arguments, Trial, run};
use tokio::runtime::{Builder, Runtime};

use crate::guarantees;

/// A store that has to pass.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// What its tests begin with.
    pub name: &'static str,
    /// What is to be said of its set-up.
    pub setup: &'static str,
    /// Makes it.
    pub start: fn() -> Harness,
    /// For whom.
    pub serves: Serves,
}

/// Who shares what a candidate's start made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serves {
    /// All checks. A server is owned by the harness, and so ends with the last of them.
    All,
    /// Each check has its own: a file that all wrote to would have them wait for its lock.
    Each,
}

/// The `main` of the conformance binary.
#[must_use]
pub fn main(candidates: &[Candidate]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They wait most of the time; more at once would keep each other waiting for longer than a store may take.
    arguments.test_threads.get_or_insert(6);
    let harnesses: Vec<_> = candidates.iter().map(|_| Arc::new(OnceLock::new())).collect();
    let mut trials = Vec::new();
    for check in checks() {
        for (candidate, harness) in candidates.iter().zip(&harnesses) {
            let (Candidate { name, start, serves, .. }, shared) = (*candidate, Arc::clone(harness));
            trials.push(Trial::test(format!("{name}::{}", check.name()), move || {
                let own = OnceLock::new();
                let harness: &Harness = match serves {
                    Serves::All => shared.get_or_init(start),
                    Serves::Each => own.get_or_init(start),
                };
                runtime()?.block_on(check.run(harness));
                Ok(())
            }));
        }
    }
    let told: Vec<_> = candidates.iter().copied().zip(harnesses).collect();
    trials.push(Trial::test("the_pages_say_what_the_stores_promise", move || {
        let runtime = runtime()?;
        let found = told.iter().map(|(candidate, harness)| {
            let harness = harness.get_or_init(candidate.start);
            (candidate.setup, runtime.block_on(harness.guarantees()))
        });
        let table = guarantees::table(&found.collect::<Vec<_>>(), checks().len());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        Ok(guarantees::check(&root, &table)?)
    }));
    let conclusion = run(&arguments, trials);
    let filtered = arguments.filter.is_some() || !arguments.skip.is_empty() || arguments.ignored;
    let unfiltered = !arguments.list && !filtered;
    if unfiltered && conclusion.num_passed + conclusion.num_failed == 0 {
        eprintln!("no check was run");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(4).enable_all().build()
}
