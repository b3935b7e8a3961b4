//! Every store passes the conformance suite, through handles of its own, as several processes would.
//!
//! All in one program: the checks wait most of the time, and so wait together. `STORE::CHECK` names one.

use std::{process::ExitCode, sync::Arc};

use anarchon::{
    MemoryBackend, NatsBackend,
    conformance::Harness,
    store::{PostgresBackend, RabbitMqBackend, SqliteBackend},
};
use anarchon_tests::{
    conformance::{Candidate, Serves},
    servers::{
        nats, nats_cluster,
        postgres::{Release, bouncer, url},
        rabbitmq::{Broker, url as broker_url},
        redis::Kind,
        redis_cluster::Cluster,
    },
};
use tempfile::TempDir;

fn main() -> ExitCode {
    anarchon_tests::conformance::main(&[
        Candidate { name: "memory", setup: "", start: memory, serves: Serves::Each },
        Candidate { name: "sqlite", setup: "", start: sqlite, serves: Serves::Each },
        Candidate { name: "redis", setup: "", start: || redis(Kind::Redis), serves: Serves::All },
        Candidate {
            name: "redis_cluster",
            setup: "Cluster of three",
            start: redis_cluster,
            serves: Serves::All,
        },
        Candidate { name: "valkey", setup: "", start: || redis(Kind::Valkey), serves: Serves::All },
        Candidate { name: "postgres", setup: "", start: || postgres(Release::System), serves: Serves::All },
        Candidate {
            name: "postgres_newer",
            setup: "",
            start: || postgres(Release::Newer),
            serves: Serves::All,
        },
        Candidate { name: "pgbouncer", setup: "behind PgBouncer", start: pgbouncer, serves: Serves::All },
        Candidate { name: "nats_2.9", setup: "", start: || nats(nats::Release::System), serves: Serves::All },
        Candidate { name: "nats", setup: "", start: || nats(nats::Release::Newer), serves: Serves::All },
        Candidate {
            name: "nats_cluster",
            setup: "cluster of three",
            start: nats_cluster,
            serves: Serves::All,
        },
        Candidate { name: "rabbitmq", setup: "", start: || rabbitmq("classic", 1_000), serves: Serves::All },
        Candidate {
            name: "rabbitmq_quorum",
            setup: "",
            start: || rabbitmq("quorum", 200),
            serves: Serves::All,
        },
    ])
}

fn memory() -> Harness {
    let data = MemoryBackend::new();
    Harness::new(move || Arc::new(data.clone())).model_operations(20_000)
}

fn sqlite() -> Harness {
    // In memory where that is to be had: where the disk is busy, so many at once wait longer for the lock than they may.
    let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a folder for the file");
    Harness::new(move || {
        let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
        Arc::new(SqliteBackend::connect(&url).expect("the URL of a file"))
    })
}

fn redis(kind: Kind) -> Harness {
    let server = kind.start();
    Harness::new(move || kind.backend(&kind.url(server.port())))
}

/// Three nodes: batches are split by slot.
fn redis_cluster() -> Harness {
    let cluster = Cluster::start(Kind::Redis);
    Harness::new(move || Kind::Redis.backend(&cluster.url()))
}

/// As a server is in production: it flushes what it acknowledges.
fn postgres(release: Release) -> Harness {
    let server = release.with(["fsync=on"]);
    Harness::new(move || Arc::new(PostgresBackend::connect(&url(server.port())).expect("a valid URL")))
}

fn rabbitmq(queues: &'static str, most_jobs: usize) -> Harness {
    let broker = Broker::start();
    let harness = Harness::new(move || {
        let url = format!("{}?queues={queues}", broker_url(broker.server.port()));
        Arc::new(RabbitMqBackend::connect(&url).expect("a valid URL"))
    });
    // To make a quorum queue takes the broker a while.
    harness.most_jobs(most_jobs)
}

/// In transaction mode, with its settings as they come.
fn pgbouncer() -> Harness {
    let server = Release::System.with(["fsync=on"]);
    let bouncer = bouncer(server.port());
    Harness::new(move || {
        // Behind it as long as there are handles.
        let _ = &server;
        Arc::new(PostgresBackend::connect(&url(bouncer.port())).expect("a valid URL"))
    })
}

fn nats(release: nats::Release) -> Harness {
    let server = release.start();
    Harness::new(move || Arc::new(NatsBackend::connect(&nats::url(server.port())).expect("a valid URL")))
}

/// Three nodes, each with all records.
fn nats_cluster() -> Harness {
    let cluster = nats_cluster::Cluster::start(nats::Release::Newer);
    Harness::new(move || Arc::new(NatsBackend::connect(&cluster.url()).expect("valid URLs")))
}
