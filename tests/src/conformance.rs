//! Runs the conformance suite against stores, one test a check and store.

use std::{
    process::ExitCode,
    sync::{Arc, OnceLock},
};

use anarchon::conformance::{Harness, checks};
use libtest_mimic::{Arguments, Trial, run};

/// A store that has to pass.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// What its tests begin with.
    pub name: &'static str,
    /// Starts its server, at its first check. The server is owned by the harness, and so ends with the last one.
    pub start: fn() -> Harness,
}

/// The `main` of the conformance binary.
#[must_use]
pub fn main(candidates: &[Candidate]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They wait most of the time.
    arguments.test_threads.get_or_insert(24);
    let harnesses: Vec<_> = candidates.iter().map(|_| Arc::new(OnceLock::new())).collect();
    let mut trials = Vec::new();
    for check in checks() {
        for (candidate, harness) in candidates.iter().zip(&harnesses) {
            let (start, harness) = (candidate.start, Arc::clone(harness));
            trials.push(Trial::test(format!("{}::{}", candidate.name, check.name()), move || {
                let harness: &Harness = harness.get_or_init(start);
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
                runtime.block_on(check.run(harness));
                Ok(())
            }));
        }
    }
    drop(harnesses);
    let conclusion = run(&arguments, trials);
    let filtered = arguments.filter.is_some() || !arguments.skip.is_empty() || arguments.ignored;
    let unfiltered = !arguments.list && !filtered;
    if unfiltered && conclusion.num_passed + conclusion.num_failed == 0 {
        eprintln!("no check was run");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}
