//! Real processes, really killed, frozen and cut off, on every store. What is shown stands in `src/faults/`.
//!
//! All in one program: the scenarios wait most of the time, and so wait together. `STORE::SCENARIO` names one.

use std::process::ExitCode;

use anarchon_tests::{
    faults::{
        Candidate,
        StoreClock::{OfTheHost, OfTheServer},
        main as play,
    },
    servers::{
        postgres::{PostgresStore, Release},
        redis::{Kind, RedisStore},
        sqlite::SqliteStore,
    },
};

fn main() -> ExitCode {
    play(
        env!("CARGO_BIN_EXE_worker"),
        &[
            Candidate { name: "sqlite", clock: OfTheHost, start: |site| Box::new(SqliteStore::new(site)) },
            Candidate {
                name: "redis",
                clock: OfTheServer,
                start: |_| Box::new(RedisStore::new(Kind::Redis)),
            },
            Candidate {
                name: "valkey",
                clock: OfTheServer,
                start: |_| Box::new(RedisStore::new(Kind::Valkey)),
            },
            Candidate {
                name: "postgres",
                clock: OfTheServer,
                start: |_| Box::new(PostgresStore::new(Release::System)),
            },
        ],
    )
}
