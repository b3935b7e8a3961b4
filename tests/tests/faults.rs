//! Real processes, really killed, frozen and cut off, on every store. What is shown stands in `src/faults/`.
//!
//! All in one program: the scenarios wait most of the time, and so wait together. `STORE::PROCESSES::SCENARIO` names one,
//! without the number where a scenario has processes of its own.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

/// Functions with what each loads the machine.
macro_rules! specials {
    ($($load:literal $play:ident;)+) => {
        vec![$(Special { name: stringify!($play), load: $load, play: $play },)+]
    };
}

#[path = "faults/nats.rs"]
mod on_nats;
#[path = "faults/rabbitmq.rs"]
mod on_rabbitmq;

use std::process::ExitCode;

use anarchon_tests::{
    faults::{
        Candidate,
        StoreClock::{OfEachProcess, OfTheHost, OfTheServer},
        main as play,
    },
    servers::{nats, postgres, rabbitmq::Broker, redis::Kind, sqlite::SqliteStore},
};

fn main() -> ExitCode {
    let sqlite = Candidate {
        name: "sqlite",
        clock: OfTheHost,
        // One writer at a time: more of them would show how busy the machine is.
        processes: [3, 10],
        start: |site| Box::new(SqliteStore::new(site)),
    };
    let rabbitmq = Candidate {
        name: "rabbitmq",
        clock: OfEachProcess,
        // Each look takes a token out of its queue for a moment: more of them would show how busy the machine is.
        processes: [3, 10],
        start: |_| Box::new(Broker::start().store()),
    };
    let server = |name, start| Candidate { name, clock: OfTheServer, processes: [3, 20], start };
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
        &[("nats", on_nats::specials()), ("rabbitmq", on_rabbitmq::specials())],
        "redis",
    )
}
