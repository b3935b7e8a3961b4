//! The memory store passes the conformance suite.

use std::{process::ExitCode, sync::Arc};

use anarchon::{MemoryBackend, conformance::Harness};

fn main() -> ExitCode {
    anarchon_tests::conformance::main(|| {
        let data = MemoryBackend::new();
        Harness::new(move || Arc::new(data.clone())).model_operations(20_000)
    })
}
