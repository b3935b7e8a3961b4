//! The PostgreSQL store passes the conformance suite behind PgBouncer in transaction mode, with its settings as they come.

use std::{process::ExitCode, sync::Arc};

use anarchon::{conformance::Harness, store::PostgresBackend};
use anarchon_tests::servers::postgres::{Release, bouncer, url};

fn main() -> ExitCode {
    anarchon_tests::conformance::main(|| {
        let server = Release::System.start();
        let bouncer = bouncer(server.port());
        Harness::new(move || {
            // Behind it as long as there are handles.
            let _ = &server;
            Arc::new(PostgresBackend::connect(&url(bouncer.port())).expect("a valid URL"))
        })
    })
}
