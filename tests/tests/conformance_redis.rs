//! The conformance suite on one Redis server, through backends of its own, as several processes would.

use std::process::ExitCode;

use anarchon::conformance::Harness;
use anarchon_tests::servers::redis::Kind;

fn main() -> ExitCode {
    anarchon_tests::conformance::main(|| {
        let server = Kind::Redis.start();
        Harness::new(move || Kind::Redis.backend(&Kind::Redis.url(server.port())))
    })
}
