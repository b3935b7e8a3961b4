//! Real processes, really killed, frozen and cut off, on every store. What is shown stands in `src/faults/`.
//!
//! All in one program: the scenarios wait most of the time, and so wait together. `STORE::PROCESSES::SCENARIO` names one,
//! without the number where a scenario has processes of its own.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

/// Functions with what each loads the machine, and what they are played with.
macro_rules! specials {
    ($($load:literal $play:ident $(($with:expr))?;)+) => {
        vec![$(Special { name: stringify!($play), load: $load, play: || $play($($with)?) },)+]
    };
}

#[path = "faults/nats.rs"]
mod on_nats;
#[path = "faults/postgres.rs"]
mod on_postgres;
#[path = "faults/rabbitmq.rs"]
mod on_rabbitmq;
#[path = "faults/redis.rs"]
mod on_redis;

use std::process::ExitCode;

use anarchon_tests::{
    faults::{
        Candidate,
        StoreClock::{OfEachProcess, OfTheHost, OfTheServer},
        main as play,
    },
    servers::{
        nats, postgres,
        rabbitmq::{Broker, SharedBroker},
        redis::Kind,
        sqlite::SqliteStore,
    },
};

fn main() -> ExitCode {
    let sqlite = Candidate {
        name: "sqlite",
        clock: OfTheHost,
        // One writer at a time: more of them would show how busy the machine is.
        processes: [3, 10],
        start: |site| Box::new(SqliteStore::new(site)),
        share: None,
    };
    let rabbitmq = Candidate {
        name: "rabbitmq",
        clock: OfEachProcess,
        // Each look takes a token out of its queue for a moment: more of them would show how busy the machine is.
        processes: [3, 10],
        start: |_| Box::new(Broker::start().store()),
        share: Some(|| Box::new(SharedBroker::part())),
    };
    let server = |name, start| Candidate { name, clock: OfTheServer, processes: [3, 20], start, share: None };
    play(
        env!("CARGO_BIN_EXE_worker"),
        &[
            sqlite,
            server("redis", |_| Box::new(Kind::Redis.store())),
            server("valkey", |_| Box::new(Kind::Valkey.store())),
            server("postgres", |_| Box::new(postgres::Release::System.store())),
            Candidate { processes: [3, 10], ..server("nats", |_| Box::new(nats::Release::Newer.store())) },
            rabbitmq,
        ],
        &[
            ("redis", on_redis::on_redis()),
            ("valkey", on_redis::on_valkey()),
            ("postgres", on_postgres::specials()),
            ("nats", on_nats::specials()),
            ("rabbitmq", on_rabbitmq::specials()),
        ],
        "redis",
    )
}
