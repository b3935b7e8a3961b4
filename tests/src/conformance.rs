//! Runs the conformance suite against one store, one test a check.

use std::process::ExitCode;

use anarchon::conformance::{Harness, checks};
use libtest_mimic::{Arguments, Trial, run};

/// The `main` of a conformance binary. `start` is not called when the checks are only listed.
///
/// A server that `start` starts is owned by its harness, and so ends with the last check.
pub fn main(start: impl FnOnce() -> Harness) -> ExitCode {
    let arguments = Arguments::from_args();
    let harness = (!arguments.list).then(start);
    let trials = checks().into_iter().map(|check| {
        let harness = harness.clone();
        Trial::test(check.name(), move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
            runtime.block_on(check.run(&harness.ok_or("nothing was started")?));
            Ok(())
        })
    });
    let conclusion = run(&arguments, trials.collect());
    let filtered = arguments.filter.is_some() || !arguments.skip.is_empty() || arguments.ignored;
    let unfiltered = !arguments.list && !filtered;
    if unfiltered && conclusion.num_passed + conclusion.num_failed == 0 {
        eprintln!("no check was run");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}
