//! The conformance suite on one Valkey server, through backends of its own, as several processes would.

use std::process::ExitCode;

use anarchon::conformance::Harness;
use anarchon_tests::servers::redis::Kind;

fn main() -> ExitCode {
    anarchon_tests::conformance::main(|| {
        let server = Kind::Valkey.start();
        Harness::new(move || Kind::Valkey.backend(&Kind::Valkey.url(server.port())))
    })
}
