//! Every store passes the conformance suite, through handles of its own, as several processes would.
//!
//! All in one program: the checks wait most of the time, and so wait together. `STORE::CHECK` names one.
//!
//! Where a store has users, one of each kind is used by the one that the guide has, with the least rights.

use std::{process::ExitCode, sync::Arc};

use anarchon::{
    MemoryBackend, NatsBackend,
    conformance::Harness,
    store::{PostgresBackend, RabbitMqBackend, SqliteBackend, Store as _},
};
use anarchon_tests::{
    calls::ns,
    conformance::{Candidate, Serves},
    grants::{self, USER},
    servers::{
        nats, nats_cluster,
        postgres::{Release, bouncer, url},
        rabbitmq::{Broker, url as broker_url},
        redis::{Kind, make_user},
        redis_cluster::Cluster,
    },
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, raw_sql};
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
    make_user(server.port(), &grants::redis_settings());
    Harness::new(move || kind.backend(&grants::login(&kind.url(server.port()))))
}

/// Three nodes: batches are split by slot.
fn redis_cluster() -> Harness {
    let cluster = Cluster::start(Kind::Redis);
    for node in cluster.all() {
        make_user(node.port(), &format!("{} +cluster|slots", grants::redis_settings()));
    }
    Harness::new(move || Kind::Redis.backend(&grants::login(&cluster.url())))
}

/// As a server is in production: it flushes what it acknowledges.
fn postgres(release: Release) -> Harness {
    let server = release.with(["fsync=on"]);
    let port = server.port();
    let as_user = move |user: &str| {
        // Behind it as long as there are handles.
        let _ = &server;
        let url = url(port).replace("postgres@", &format!("{user}@"));
        PostgresBackend::connect(&url).expect("a valid URL")
    };
    block_on(async {
        let [before, after] = grants::postgres();
        execute(&url(port), before).await;
        as_user("payroll_owner").open(&ns()).await.expect("its owner makes the tables");
        execute(&url(port), after).await;
    });
    Harness::new(move || Arc::new(as_user(grants::USER)))
}

async fn execute(url: &str, sql: String) {
    let mut superuser = PgConnection::connect(url).await.expect("a connection");
    raw_sql(AssertSqlSafe(sql)).execute(&mut superuser).await.expect("what the guide says");
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

fn rabbitmq(queues: &'static str, most_jobs: usize) -> Harness {
    let broker = Broker::start();
    for line in grants::rabbitmq("[^/]*") {
        broker.ctl(&line.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let harness = Harness::new(move || {
        let url = format!("{}/{USER}?queues={queues}", grants::login(&broker_url(broker.server.port())));
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
    let server = release.with([grants::nats("*")]);
    Harness::new(move || {
        let url = grants::login(&nats::url(server.port()));
        Arc::new(NatsBackend::connect(&url).expect("a valid URL"))
    })
}

/// Three nodes, each with all records.
fn nats_cluster() -> Harness {
    let cluster = nats_cluster::Cluster::start(nats::Release::Newer);
    Harness::new(move || Arc::new(NatsBackend::connect(&cluster.url()).expect("valid URLs")))
}
