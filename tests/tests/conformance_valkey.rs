//! The conformance suite on one Valkey server, through backends of its own, as several processes would.

use std::{process::ExitCode, sync::Arc};

use anarchon::{ValkeyBackend, conformance::Harness};
use anarchon_tests::servers::redis::Kind;

fn main() -> ExitCode {
    anarchon_tests::conformance::main(|| {
        let server = Kind::Valkey.start();
        Harness::new(move || {
            let url = format!("valkey://127.0.0.1:{}", server.port());
            Arc::new(ValkeyBackend::connect(&url).expect("the URL of a server"))
        })
    })
}
