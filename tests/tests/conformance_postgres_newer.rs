//! The PostgreSQL store passes the conformance suite on the newest release, beside the one of the system.

use std::{process::ExitCode, sync::Arc};

use anarchon::{conformance::Harness, store::PostgresBackend};
use anarchon_tests::servers::postgres::{Release, url};

fn main() -> ExitCode {
    anarchon_tests::conformance::main(|| {
        let server = Release::Newer.start();
        Harness::new(move || Arc::new(PostgresBackend::connect(&url(server.port())).expect("a valid URL")))
    })
}
