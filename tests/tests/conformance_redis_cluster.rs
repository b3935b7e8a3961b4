//! The conformance suite on a Redis Cluster of three nodes: batches are split by slot.

use std::process::ExitCode;

use anarchon::conformance::Harness;
use anarchon_tests::servers::{redis::Kind, redis_cluster::Cluster};

fn main() -> ExitCode {
    anarchon_tests::conformance::main(|| {
        let cluster = Cluster::start(Kind::Redis);
        Harness::new(move || Kind::Redis.backend(&cluster.url()))
    })
}
