//! See `soak.rs` of the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    let worker = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("worker")));
    let Some(worker) = worker.filter(|worker| worker.is_file()) else {
        eprintln!("soak: the program worker is not beside this one; scripts/soak builds both");
        return ExitCode::from(2);
    };
    anarchon_tests::soak::main(&worker.display().to_string())
}
