//! The conformance suite on one Redis server, through backends of its own, as several processes would.

use std::{process::ExitCode, sync::Arc};

use anarchon::{RedisBackend, conformance::Harness};
use anarchon_tests::servers::redis::Kind;

fn main() -> ExitCode {
    anarchon_tests::conformance::main(|| {
        let server = Kind::Redis.start();
        Harness::new(move || {
            let url = format!("redis://127.0.0.1:{}", server.port());
            Arc::new(RedisBackend::connect(&url).expect("the URL of a server"))
        })
    })
}
