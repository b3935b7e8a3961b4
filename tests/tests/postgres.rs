//! What the PostgreSQL store does beyond the conformance suite: schemas, roles, sessions, failures, encryption.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    fs,
    future::Future as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{Arc, OnceLock},
    task::Poll,
    time::{Duration, Instant},
};

use anarchon::{
    ErrorKind,
    protocol::{
        Announcement, Claim, Control, ControlAction, Controlled, Finish, Finished, JobName, JobSpec, Millis,
        Namespace, Registered, Renewal, Renewed, Token, Verdict,
    },
    store::{Answer, Durability, PostgresBackend, Store, StoreError, StoreErrorKind},
};
use anarchon_tests::{
    calls::{claim, due, finish, instance, job, live, ns, register, spec, specs, win},
    certificates::Authority,
    damage::{Damage, costs_its_own_job_alone},
    grants::{self, USER},
    process::Orders,
    secrets,
    servers::{
        Server,
        port::Port,
        postgres::{Postgres, Release, bouncer, url},
    },
    site::Site,
    wait::until,
};
use futures_util::StreamExt as _;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tempfile::TempDir;

// URLs and opening.

#[test]
fn a_url_is_checked_without_a_connection_and_shown_without_its_password() {
    for (url, shown) in [
        ("postgres://u:geheim@host:1234/db", "postgres://u@host:1234/db"),
        ("postgresql://u:geheim@host/db?sslmode=verify-full", "postgres://u@host:5432/db"),
        ("postgres://u:geheim@host/db?schema=jobs&sslmode=disable", "postgres://u@host:5432/db?schema=jobs"),
        ("postgres://host/db?user=u&password=geheim", "postgres://u@host:5432/db"),
    ] {
        let store = PostgresBackend::connect(url).unwrap_or_else(|e| panic!("{url}: {e}"));
        assert_eq!(store.describe(), shown);
        assert!(!format!("{store:?}").contains("geheim"), "{store:?}");
    }
    for (url, word) in [
        ("redis://u:geheim@host", "does not begin with postgres://"),
        ("postgres://u:geheim@host:port/db", "invalid port number"),
        ("postgres://u:geheim@host/db?sslmode=perhaps", "perhaps"),
        ("postgres://u:geheim@host/db?listen=yes", "listen=yes is neither true nor false"),
        ("postgres://u:geheim@host/db?pass=geheim", "parameter \"pass\" is none of"),
        ("postgres://u:geheim@host/db?schema=", "use 1 to 63 bytes"),
        ("postgres://u:geheim@host/db?schema=pg_jobs", "do not begin with pg_"),
        ("postgres://u:geheim@host/db?schema=a%20b", "PostgresBackend::schema"),
    ] {
        let error = PostgresBackend::connect(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        has(&error, &[word]);
        assert!(!error.to_string().contains("geheim"), "{error}");
    }
}

#[tokio::test]
async fn opening_creates_the_schema_and_may_be_repeated() {
    let database = Database::new().await;
    let store = database.opened().await;
    let guarantees = store.open(&ns()).await.unwrap();
    has(&guarantees.store, &["PostgreSQL 1"]);
    assert!(guarantees.loses_on_failover, "there is no synchronous replica");
    assert_eq!(database.number("SELECT count(*) FROM anarchon.meta").await, 1);
    let indexes = "SELECT count(*) FROM pg_index WHERE indrelid = 'anarchon.job'::regclass";
    assert_eq!(database.number(indexes).await, 1, "a second index would end HOT updates");
}

#[tokio::test]
async fn it_says_when_the_server_does_not_flush() {
    let guarantees = |server: Server| async move { backend(&url(server.port())).open(&ns()).await.unwrap() };
    let unsafe_one = guarantees(Release::System.with(["fsync=off"])).await;
    let Durability::Unsafe(reason) = unsafe_one.durability else { panic!("{:?}", unsafe_one.durability) };
    has(&reason, &["fsync = off"]);
    assert_eq!(guarantees(Release::System.with(["fsync=on"])).await.durability, Durability::Fsync);
}

#[tokio::test]
async fn a_write_is_flushed_before_its_answer_also_where_the_default_is_not_to_wait() {
    let server = Release::System.with(["fsync=on", "synchronous_commit=off", "wal_writer_delay=10s"]);
    let url = url(server.port());
    let store = opened(&url).await;
    register(&store, "j").await;
    let mut raw = raw(&url).await;
    for seq in 1..20 {
        let token = win(&store, "j", seq).await;
        let unflushed = "SELECT (pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn())::bigint";
        assert_eq!(ask(&mut raw, unflushed).await, 0, "acknowledged, and lost by a crash now");
        done(store.finish(&[finish("j", token)]).await);
    }
}

#[tokio::test]
async fn a_call_before_open_says_so() {
    let store = backend("postgres://nobody@127.0.0.1:1/none");
    let error = store.inspect(&[job("j")], 0).await.remove(0).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["call open first"]);
}

#[tokio::test]
async fn schemas_are_apart_and_a_hostile_name_is_only_a_name() {
    let database = Database::new().await;
    let hostile = "we\"ird $schema; DROP SCHEMA anarchon CASCADE; --'\\ $batch ü";
    let here = database.opened().await;
    let there = backend(&database.url).schema(hostile).unwrap();
    there.open(&ns()).await.unwrap();
    register(&here, "j").await;
    assert!(matches!(there.register(&[spec("j")]).await.remove(0).unwrap().value, Registered::Created(_)));
    win(&there, "j", 1).await;
    assert_eq!(here.inspect(&[job("j")], 5).await.remove(0).unwrap().value.unwrap().record.runs, 0);
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'";
    assert_eq!(database.number(schemas).await, 3, "public, anarchon and the hostile one");
}

#[tokio::test]
async fn a_pool_lends_its_settings_and_a_clone_has_connections_of_its_own() {
    let database = Database::new().await;
    let options = database.url.parse::<sqlx::postgres::PgConnectOptions>().unwrap().application_name("lent");
    let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy_with(options);
    let store = PostgresBackend::from_pool(&pool);
    store.open(&ns()).await.unwrap();
    register(&store, "j").await;
    assert_eq!(pool.size(), 0, "the pool's own connections are the application's");
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lent'";
    assert_eq!(database.number(ours).await, 1);
    // On another runtime, as another scheduler has it: a socket of ours would not answer there.
    let clone = store.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { win(&clone, "j", 1).await });
    })
    .join()
    .unwrap();
}

// Roles.

#[tokio::test]
async fn a_role_that_may_not_create_tables_is_told_the_sql_and_then_works_with_the_least_rights() {
    let database = Database::new().await;
    let store = backend(&database.role("LOGIN", "").await);
    let error = store.open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["may not create it", "run this SQL", "CREATE TABLE", "fillfactor = 50", "GRANT"]);
    let message = error.to_string();
    let (_, sql) = message.split_once("\n\n").unwrap();
    database.execute(sql).await;
    store.open(&ns()).await.unwrap();
    live(&store, &store, true).await.unwrap();

    for (taken, lacking) in [
        ("REVOKE DELETE ON anarchon.run FROM $role", "DELETE on run"),
        ("REVOKE SELECT ON anarchon.meta FROM $role", "SELECT on meta"),
        ("REVOKE USAGE ON SCHEMA anarchon FROM $role", "USAGE of the schema"),
    ] {
        database.execute(&taken.replace("$role", &database.role)).await;
        let error = store.open(&ns()).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured);
        has(&error, &[lacking, "GRANT"]);
        let message = error.to_string();
        database.execute(message.split_once("\n\n").unwrap().1).await;
        store.open(&ns()).await.unwrap();
    }
    database.execute(&format!("REVOKE UPDATE ON anarchon.job FROM {}", database.role)).await;
    let error = store.register(&[spec("new")]).await.remove(0).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
}

#[tokio::test]
async fn a_role_that_may_create_in_an_existing_schema_only_creates_its_tables_there() {
    let database = Database::new().await;
    let url = database.role("LOGIN", "").await;
    database
        .execute(&format!("CREATE SCHEMA jobs; GRANT CREATE, USAGE ON SCHEMA jobs TO {}", database.role))
        .await;
    let store = backend(&format!("{url}?schema=jobs"));
    store.open(&ns()).await.unwrap();
    live(&store, &store, true).await.unwrap();
}

#[tokio::test]
async fn the_roles_of_the_guide_can_do_everything_and_without_any_of_their_rights_not() {
    let server = Release::System.start();
    let superuser = url(server.port());
    let [before, after] = grants::postgres();
    execute(&superuser, &before).await;
    let of = |user: &str| superuser.replace("postgres@", &format!("{user}@"));
    let [store, other] = [(); 2].map(|()| backend(&of(USER)));
    has(&store.open(&ns()).await.unwrap_err(), &["run this SQL"]);
    opened(&of("payroll_owner")).await;
    execute(&superuser, &after).await;
    for handle in [&store, &other] {
        handle.open(&ns()).await.unwrap();
    }
    live(&store, &other, true).await.unwrap();

    let mut tried = 0;
    for grant in after.lines() {
        let (rights, rest) = grant.strip_prefix("GRANT ").and_then(|rest| rest.split_once(" ON ")).unwrap();
        let (places, _) = rest.split_once(" TO ").unwrap();
        for (place, right) in
            places.split(", ").flat_map(|place| rights.split(", ").map(move |right| (place, right)))
        {
            execute(&superuser, &format!("REVOKE {right} ON {place} FROM {USER}")).await;
            has(&backend(&of(USER)).open(&ns()).await.unwrap_err(), &["it lacks", right, "GRANT"]);
            // Nor can who has opened it before do without; the version was read by then.
            if place != "anarchon.meta" {
                let error = live(&store, &other, true).await.expect_err(grant);
                assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{right} ON {place}: {error}");
            }
            execute(&superuser, &after).await;
            tried += 1;
        }
    }
    assert_eq!(tried, 1 + 1 + 3 * 4);
    live(&store, &other, true).await.unwrap();

    // It owns nothing, makes nothing, and has nothing of another schema.
    opened(&format!("{superuser}?schema=other")).await;
    has(&backend(&format!("{}?schema=other", of(USER))).open(&ns()).await.unwrap_err(), &["it lacks"]);
    for sql in [
        "DROP TABLE anarchon.run",
        "ALTER TABLE anarchon.job ADD x int",
        "TRUNCATE anarchon.run",
        "UPDATE anarchon.meta SET version = 2",
        "CREATE TABLE anarchon.x ()",
        "CREATE SCHEMA x",
        "SELECT FROM other.job",
    ] {
        let error = sqlx::raw_sql(sql).execute(&mut raw(&of(USER)).await).await.unwrap_err().to_string();
        assert!(error.contains("permission denied") || error.contains("must be owner"), "{sql}: {error}");
    }
}

/// A server that wants passwords of all but its superuser, with the user of the guide.
async fn with_passwords(password: &str) -> Server {
    let rules = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    let server = Server::start(Postgres::new(Release::System, ["fsync=off"]).file("pg_hba.conf", rules));
    let role = format!(
        "CREATE ROLE {USER} LOGIN PASSWORD '{password}'; GRANT CREATE ON DATABASE postgres TO {USER}"
    );
    execute(&url(server.port()), &role).await;
    server
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_database_are_named_and_final() {
    let server = with_passwords("geheim").await;
    let port = server.port();
    opened(&format!("postgres://{USER}:geheim@127.0.0.1:{port}/postgres")).await;
    for (url, word) in [
        (format!("postgres://{USER}:falsch@127.0.0.1:{port}/postgres"), "user and password"),
        (format!("postgres://{USER}:geheim@127.0.0.1:{port}/lost"), "no such database"),
    ] {
        let error = backend(&url).open(&ns()).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        has(&error, &[word]);
        assert!(!error.to_string().contains("falsch"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_prints_a_password() {
    let password = secrets::password();
    let server = with_passwords(&password).await;
    let (worker, port) = (env!("CARGO_BIN_EXE_worker"), server.port());
    tokio::task::spawn_blocking(move || {
        let at = |login: &str| format!("postgres://{login}@127.0.0.1:{port}/postgres?sslmode=disable");
        secrets::are_kept(worker, port, |port, password| {
            format!("postgres://{USER}:{password}@127.0.0.1:{port}/postgres?sslmode=disable")
        });
        let marked = [secrets::MARK];
        let parameter = format!("{}&password={}", at(USER), secrets::encoded());
        secrets::is_let_in(worker, &parameter, &[], &marked);
        secrets::is_let_in(worker, &at(USER), &[("PGPASSWORD", &password)], &marked);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pgpass");
        fs::write(&file, format!("*:*:*:*:{}\n", password.replace(':', "\\:"))).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        secrets::is_let_in(worker, &at(USER), &[("PGPASSFILE", file.to_str().unwrap())], &marked);
    })
    .await
    .unwrap();
    drop(server);
}

// The schema.

#[tokio::test]
async fn a_newer_schema_and_somebody_elses_tables_are_refused_with_the_mend() {
    let database = Database::new().await;
    let store = database.opened().await;
    database.execute("UPDATE anarchon.meta SET version = 2").await;
    let error = store.open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["version 2", "update this program"]);
    database
        .execute("UPDATE anarchon.meta SET version = 1; ALTER TABLE anarchon.job ALTER attempt TYPE int")
        .await;
    let error = store.open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["column attempt of table job is integer, not bigint", "name another schema"]);
    database
        .execute("ALTER TABLE anarchon.run RENAME TO ring; CREATE VIEW anarchon.run AS SELECT * FROM anarchon.ring")
        .await;
    let error = store.open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["run is a view, not a table", "name another schema"]);
}

#[test]
fn twenty_processes_that_start_at_once_create_one_schema() {
    let site = Site::of(env!("CARGO_BIN_EXE_worker"), Release::System.store());
    let workers = site.start_all(20, &Orders::new(["tick,every=1s,lease=5s"]));
    for worker in &workers {
        until("it has started", || worker.log().contains("scheduler started").then_some(()));
        assert!(!worker.log().contains("cannot be opened yet"), "{}", worker.log());
    }
    site.run("tick", "has ended well", anarchon_tests::history::Run::is_done);
    drop(workers);
    site.verify();
}

#[tokio::test]
async fn dropped_tables_are_made_again_and_the_jobs_are_unregistered() {
    let database = Database::new().await;
    let store = database.opened().await;
    register(&store, "j").await;
    database.execute("DROP SCHEMA anarchon CASCADE").await;
    let verdict = store.claim(&[claim("j", Millis(1), 1)]).await.remove(0).unwrap().value;
    assert_eq!(verdict, Verdict::Unregistered);
    register(&store, "j").await;
    win(&store, "j", 2).await;
}

// Batches, texts, writes.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_costs_its_own_job_alone() {
    let database = Database::new().await;
    let store = database.opened().await;
    // What the table itself keeps out.
    let refused = [
        "kind = 'never'",
        "occurrence = NULL",
        "status = ''",
        "status = 'asleep'",
        "attempt = -1",
        "attempt = 4294967296",
        "crashes = NULL",
        "errors = 9223372036854775807",
        "token = -1",
        "token = NULL",
        "manual_asked = -9223372036854775808",
        "runs = -1",
    ];
    // What the next claim writes over.
    let borne = [
        "occurrence = -1, kind = 'manual'",
        "holder = ''",
        "holder = 'no name'",
        "holder = repeat('x', 1048576)",
        "cancel = -1",
        "token = 9223372036854775807",
        "until = -9223372036854775808",
        "until = -9223372036854775808, status = 'waiting'",
        "until = 9223372036854775807, status = 'running'",
        "until = 9223372036854775807, status = 'waiting'",
        "decided = -9223372036854775808",
        "decided = 9223372036854775807",
        "started = -9223372036854775808",
        "runs = 9223372036854775807",
        "errors = 4294967295",
        "manual_asked = 9223372036854775807",
        "occurrence = -9223372036854775808",
    ];
    let damages = borne.map(|damage| Damage::Borne(damage.to_owned()));
    register(&store, "j").await;
    let mut raw = raw(&database.url).await;
    for damage in refused {
        let statement = AssertSqlSafe(format!("UPDATE anarchon.job SET {damage} WHERE job = 'j'"));
        let answer = sqlx::raw_sql(statement).execute(&mut raw).await;
        assert!(answer.is_err(), "{damage} was taken");
    }
    costs_its_own_job_alone(&database.url, &damages, async |job, damage| {
        database.execute(&format!("UPDATE anarchon.job SET {damage} WHERE job = '{job}'")).await;
    })
    .await;
}

#[tokio::test]
async fn later_items_of_a_batch_see_what_earlier_ones_wrote() {
    let store = Database::new().await.opened().await;
    register(&store, "j").await;
    let order = |action| Control { job: job("j"), action };
    let orders = [
        ControlAction::Trigger,
        ControlAction::Trigger,
        ControlAction::Pause,
        ControlAction::Resume,
        ControlAction::Forget,
        ControlAction::Trigger,
    ];
    let answers = store.control(&orders.map(order)).await;
    let values: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().value).collect();
    assert_eq!(values[..5], [const { Controlled::Done }; 5]);
    assert_eq!(values[5], Controlled::Unregistered);
}

#[tokio::test]
async fn a_hostile_text_is_kept_and_is_only_a_text() {
    let store = Database::new().await.opened().await;
    // Out of the literal, out of the array, into another item, into a place that is filled in later.
    let hostile = [
        "'}', true) IS NULL; DROP SCHEMA anarchon CASCADE; --",
        "\\'}', true) IS NULL; DROP SCHEMA anarchon CASCADE; --",
        "\"}', true) IS NULL; DROP SCHEMA anarchon CASCADE; --",
        "\\\"}', true) IS NULL; DROP SCHEMA anarchon CASCADE; --",
        "NULL",
        "null",
        "",
        " ",
        "{}",
        "{a,b}",
        ",",
        "a\",\"b",
        "\\",
        "ends with \\",
        "ends with '",
        "ends with \"",
        "$parameters $items $schema $namespace $keep $name $1",
        "$$ $anarchon$ $a$",
        "*/ /* --",
        "\\u0024 \\x27 \\047 \\n",
        "\u{1} \r\n\t €😀",
        "a\0b",
    ];
    let names: Vec<String> = (0..hostile.len()).map(|n| format!("job-{n:02}")).collect();
    for name in &names {
        register(&store, name).await;
    }
    let mut finishes = Vec::new();
    for (name, text) in names.iter().zip(hostile) {
        let token = win(&store, name, 1).await;
        finishes.push(Finish { message: Some(text.into()), ..finish(name, token) });
    }
    // None at all, beside those that look like it.
    register(&store, "silent").await;
    finishes.push(finish("silent", win(&store, "silent", 1).await));
    done(store.finish(&finishes).await);
    let jobs: Vec<JobName> = finishes.iter().map(|finish| finish.job.clone()).collect();
    for (answer, finish) in store.inspect(&jobs, 1).await.into_iter().zip(&finishes) {
        let history = answer.unwrap().value.unwrap().history;
        let kept = finish.message.as_ref().map(|text| text.replace('\0', "\u{fffd}"));
        assert_eq!(history[0].message, kept);
    }
    for zones in hostile.into_iter().filter(|zones| !zones.contains('\0')) {
        let beat = Announcement::Present {
            instance: instance("a"),
            schedules: vec![],
            zones: zones.into(),
            contested: vec![],
        };
        assert_eq!(store.beat(&beat).await.unwrap().value.zones, [zones]);
    }
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_character_keeps_what_it_can() {
    let database = Database::with("ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'").await;
    let store = database.opened().await;
    register(&store, "j").await;
    let token = win(&store, "j", 1).await;
    done(store.finish(&[Finish { message: Some("10 €, naïve".into()), ..finish("j", token) }]).await);
    let history = store.inspect(&[job("j")], 1).await.remove(0).unwrap().value.unwrap().history;
    assert_eq!(history[0].message.as_deref(), Some("10 ?, na?ve"));
}

#[tokio::test]
async fn a_claim_that_changes_nothing_writes_nothing() {
    // Nothing of the server's own that writes: no replication, no vacuum.
    let quiet =
        ["fsync=off", "wal_level=minimal", "max_wal_senders=0", "autovacuum=off", "checkpoint_timeout=1d"];
    let server = Release::System.with(quiet);
    let url = url(server.port());
    let store = opened(&url).await;
    let names: Vec<String> = (0..50).map(|n| format!("job-{n:02}")).collect();
    let specs: Vec<JobSpec> = names.iter().map(|name| spec(name)).collect();
    done(store.register(&specs).await);
    let at = due(&store, &names[49]).await;
    let ask_for = |seq| names.iter().map(|name| claim(name, at, seq)).collect::<Vec<_>>();
    let won = store.claim(&ask_for(1)).await;
    assert!(
        won.iter().all(|answer| matches!(answer.as_ref().unwrap().value, Verdict::Awarded(_))),
        "{won:?}"
    );

    let mut raw = raw(&url).await;
    const WRITTEN: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    // Pages are pruned, and hints set, by the first that read them after a write.
    store.claim(&ask_for(2)).await;
    let before = ask(&mut raw, WRITTEN).await;
    for seq in 3..20 {
        for answer in store.claim(&ask_for(seq)).await {
            assert!(matches!(answer.unwrap().value, Verdict::AlreadyDecided(_)));
        }
    }
    let jobs: Vec<JobName> = names.iter().map(|name| job(name)).collect();
    done(store.inspect(&jobs, 20).await);
    done(store.register(&specs).await);
    assert_eq!(ask(&mut raw, WRITTEN).await, before, "bytes written to the log");
    done(store.control(&[Control { job: job("job-00"), action: ControlAction::Trigger }]).await);
    assert!(ask(&mut raw, WRITTEN).await > before, "the measure sees a write");
}

// Sessions.

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_has_at_most_two_sessions_and_none_is_ever_idle_in_a_transaction() {
    let database = Database::new().await;
    let store = Arc::new(database.opened().await);
    register(&*store, "j").await;
    let mut raw = raw(&database.url).await;
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for _ in 0..20 {
                    done(store.control(&[Control { job: job("j"), action: ControlAction::Trigger }]).await);
                }
            })
        })
        .collect();
    let mut most = 0;
    while tasks.iter().any(|task| !task.is_finished()) {
        let (sessions, idle) =
            (sessions(&mut raw, "true").await, sessions(&mut raw, "state LIKE 'idle in%'").await);
        assert!(sessions <= 2, "{sessions} sessions");
        assert_eq!(idle, 0, "waits for the client in the middle of a transaction");
        most = most.max(sessions);
    }
    assert_eq!(most, 2);
    for task in tasks {
        task.await.unwrap();
    }
    let record = store.inspect(&[job("j")], 0).await.remove(0).unwrap().value.unwrap().record;
    assert_eq!(record.manual_asked, 400);
}

#[tokio::test]
async fn a_synchronous_standby_that_is_gone_costs_two_sessions_and_is_named() {
    let server = Release::System.start();
    let url = url(server.port());
    let store = opened(&url).await;
    register(&store, "j").await;
    execute(&url, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await;
    execute(&url, "SELECT pg_reload_conf()").await;
    let error = refused_with_few_sessions(&store, &url).await;
    has(&error, &["busy with the last 2 calls", "synchronous standby", "synchronous_standby_names"]);
    let stuck = sessions(&mut raw(&url).await, "wait_event = 'SyncRep'").await;
    assert!((1..=2).contains(&stuck), "{stuck} wait for the standby, and others for what those hold");
    execute(&url, "ALTER SYSTEM RESET synchronous_standby_names").await;
    execute(&url, "SELECT pg_reload_conf()").await;
    works_again(&store).await;
}

#[tokio::test]
async fn a_table_that_somebody_locks_costs_two_sessions_and_the_holder_is_named() {
    let database = Database::new().await;
    let store = database.opened().await;
    register(&store, "j").await;
    let mut other = raw(&database.url).await;
    let mut lock = other.begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE anarchon.job").execute(&mut *lock).await.unwrap();
    let error = refused_with_few_sessions(&store, &database.url).await;
    has(&error, &["a lock (relation)", "process ", "of user \"postgres\"", "left open"]);
    lock.rollback().await.unwrap();
    works_again(&store).await;
}

/// Calls that are given up soon, again and again, until one is refused; and thirty more.
async fn refused_with_few_sessions(store: &PostgresBackend, url: &str) -> StoreError {
    let order = [Control { job: job("j"), action: ControlAction::Trigger }];
    let (mut raw, mut refusal) = (raw(url).await, None);
    let (begin, mut left) = (Instant::now(), 30);
    while left > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "no call was ever refused");
        let call = tokio::time::timeout(Duration::from_millis(200), store.control(&order));
        // Two at once, as there are two connections.
        let other = tokio::time::timeout(Duration::from_millis(200), store.control(&order));
        let (answer, _) = tokio::join!(call, other);
        // Those that only looked may just be on their way out.
        let busy = sessions(&mut raw, "state = 'active' AND query NOT LIKE '%pg_stat_activity%'").await;
        assert!(busy <= 2, "{busy} sessions");
        if let Ok(Err(error)) = answer.map(|mut answers| answers.remove(0)) {
            assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
            // Where the server ends a call itself, it says so.
            if error.to_string().contains("busy with") {
                refusal = Some(error);
            }
        }
        left -= i32::from(refusal.is_some());
    }
    eventually("who looked is gone", async || sessions(&mut raw, "true").await <= 2).await;
    refusal.unwrap()
}

/// The store needs no help, and is soon where it was.
async fn works_again(store: &PostgresBackend) {
    let begin = Instant::now();
    let order = [Control { job: job("j"), action: ControlAction::Trigger }];
    eventually("calls work again", async || {
        let call = tokio::time::timeout(Duration::from_millis(500), store.control(&order)).await;
        call.is_ok_and(|mut answers| answers.remove(0).is_ok())
    })
    .await;
    assert!(begin.elapsed() < Duration::from_secs(5), "after {:?}", begin.elapsed());
}

#[tokio::test]
async fn calls_of_one_kind_are_a_constant_number_of_statements_to_pg_stat_statements() {
    const STATEMENTS: &str = "SELECT count(*) FROM pg_stat_statements";
    for release in [Release::System, Release::Newer] {
        let server = release
            .with(["shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track_planning=off"]);
        let url = url(server.port());
        execute(&url, "CREATE EXTENSION pg_stat_statements").await;
        let store = opened(&url).await;
        let mut raw = raw(&url).await;
        let mut all = async |store: &PostgresBackend| {
            live(store, store, true).await.unwrap();
            ask(&mut raw, STATEMENTS).await
        };
        all(&store).await;
        let before = all(&store).await;
        for _ in 0..20 {
            all(&store).await;
        }
        // Another instance says the same.
        assert_eq!(all(&store.clone()).await, before, "{release:?}");
        assert!(before > 10, "{before} statements: the extension sees them");
    }
}

#[tokio::test]
async fn a_session_plans_a_statement_once() {
    for release in [Release::System, Release::Newer] {
        let server = release
            .with(["shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track_planning=on"]);
        let url = url(server.port());
        execute(&url, "CREATE EXTENSION pg_stat_statements").await;
        let store = opened(&url).await;
        register(&store, "j").await;
        for seq in 1..=20 {
            let token = win(&store, "j", seq).await;
            let renewal = Renewal { job: job("j"), token, lease: Duration::from_secs(30) };
            done(store.renew(&[renewal]).await);
            done(store.finish(&[finish("j", token)]).await);
        }
        let often = "SELECT calls, plans FROM pg_stat_statements WHERE query LIKE '%clock_timestamp%' AND calls >= 20";
        let counted: Vec<(i64, i64)> = sqlx::query_as(often).fetch_all(&mut raw(&url).await).await.unwrap();
        assert_eq!(counted.len(), 4, "{release:?}: claim, renew, finish, inspect: {counted:?}");
        for (calls, plans) in counted {
            assert!(plans <= 3, "{release:?}: {plans} plans for {calls} calls");
        }
    }
}

#[tokio::test]
async fn no_statement_is_compiled_however_dear_the_server_takes_it_to_be() {
    let server = Release::System.with(["shared_preload_libraries=pg_stat_statements", "jit_above_cost=1"]);
    let url = url(server.port());
    execute(&url, "CREATE EXTENSION pg_stat_statements").await;
    let mut raw = raw(&url).await;
    assert_eq!(ask(&mut raw, "SELECT pg_jit_available()::int::bigint").await, 1, "the server can compile");
    let store = opened(&url).await;
    execute(&url, "SELECT pg_stat_statements_reset()").await;
    live(&store, &store, true).await.unwrap();
    let ours = "SELECT count(*) FROM pg_stat_statements WHERE query LIKE '%anarchon%'";
    assert!(ask(&mut raw, ours).await > 3, "the extension sees them");
    let compiled = "SELECT query FROM pg_stat_statements WHERE query LIKE '%anarchon%' AND jit_functions > 0";
    let compiled: Vec<String> = sqlx::query_scalar(compiled).fetch_all(&mut raw).await.unwrap();
    assert!(compiled.is_empty(), "{compiled:#?}");
}

// Hints.

#[tokio::test]
async fn an_order_is_heard_at_once_by_those_who_listen_in_its_namespace() {
    let database = Database::new().await;
    let (orders, elsewhere) = (database.opened().await, backend(&database.url));
    elsewhere.open(&Namespace::new("elsewhere").unwrap()).await.unwrap();
    assert!(orders.changes().is_none(), "nobody asked to listen");
    let listens = opened(&format!("{}?listen=true", database.url)).await;
    let mut hints = listens.changes().unwrap();
    for store in [&orders, &elsewhere] {
        register(store, "j").await;
    }
    let trigger = [Control { job: job("j"), action: ControlAction::Trigger }];
    // The connection is made when it is first waited on: what was ordered before is heard by nobody.
    let mut heard = async |when: &str| {
        let mut all = Vec::new();
        eventually("an order is heard", async || {
            for store in [&elsewhere, &orders] {
                // An administrator may just have ended its session.
                drop(store.control(&trigger).await);
            }
            let hint = tokio::time::timeout(Duration::from_millis(100), hints.next()).await;
            all.extend(hint.ok().flatten().map(|job| job.to_string()));
            !all.is_empty()
        })
        .await;
        assert_eq!(all, ["j"], "{when}");
    };
    heard("at first").await;
    database.end_sessions().await;
    heard("after an administrator has ended the session").await;
    assert_eq!(sessions(&mut raw(&database.url).await, "query LIKE 'LISTEN%'").await, 1);
}

#[tokio::test]
async fn a_pooler_that_lets_no_notification_through_is_refused_where_it_is_asked_for() {
    let bouncer = bouncer(shared().port());
    let address = url(bouncer.port());
    opened(&address).await;
    let error = backend(&address).listen().open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    has(&error, &["pooler in transaction mode", "leave listen out"]);
}

#[tokio::test]
async fn sessions_that_a_pooler_exchanges_are_borne_from_the_first_call_on() {
    let bouncer = bouncer(shared().port());
    let database = Database::new().await;
    let address = url(bouncer.port()).replace("/postgres", &format!("/{}", database.name));
    // Of the same text, so that one finds what the other has prepared, or lacks what it has prepared itself.
    let (one, other) = (opened(&address).await, opened(&address).await);
    for store in [&one, &other] {
        register(store, "j").await;
    }
    for round in 0..20 {
        let jobs = [job("j")];
        let nobodys = [finish("j", Token(1))];
        let (a, b, c, d) = tokio::join!(
            one.inspect(&jobs, 1),
            other.inspect(&jobs, 1),
            one.finish(&nobodys),
            other.finish(&nobodys)
        );
        for read in [a, b] {
            done(read);
        }
        for refused in [c, d] {
            done(refused);
        }
        let token = win(if round % 2 == 0 { &one } else { &other }, "j", round).await;
        done(other.finish(&[finish("j", token)]).await);
        if round % 5 == 4 {
            // Whoever opens it again keeps statements again.
            one.open(&ns()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn closing_ends_the_sessions_and_a_later_call_opens_one() {
    let database = Database::new().await;
    let store = database.opened().await;
    register(&store, "j").await;
    let mut raw = raw(&database.url).await;
    assert_eq!(sessions(&mut raw, "true").await, 1);
    store.close().await;
    eventually("the session is gone", async || sessions(&mut raw, "true").await == 0).await;
    win(&store, "j", 1).await;
}

#[tokio::test]
async fn sessions_that_an_administrator_ends_come_back_by_themselves() {
    let database = Database::new().await;
    let store = database.opened().await;
    register(&store, "j").await;
    for seq in 1..10 {
        let token = win(&store, "j", seq).await;
        database.end_sessions().await;
        // Whether the call came before the end of its session is not to be known; the next one is sure.
        if let Err(error) = store.finish(&[finish("j", token)]).await.remove(0) {
            assert_eq!(error.kind, StoreErrorKind::Unknown, "{error}");
            let again = store.finish(&[finish("j", token)]).await.remove(0).unwrap().value;
            assert!(matches!(again, Finished::Closed(_)), "{again:?}");
        }
    }
}

#[tokio::test]
async fn a_call_cut_off_at_any_moment_leaves_no_session_and_no_lock_behind() {
    let database = Database::new().await;
    let store = database.opened().await;
    register(&store, "j").await;
    let mut raw = raw(&database.url).await;
    for polls in 1..12 {
        let order = [Control { job: job("j"), action: ControlAction::Trigger }];
        let mut call = std::pin::pin!(store.control(&order));
        let mut left = polls;
        std::future::poll_fn(|context| {
            left -= 1;
            match call.as_mut().poll(context) {
                Poll::Pending if left > 0 => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })
        .await;
    }
    done(store.control(&[Control { job: job("j"), action: ControlAction::Pause }]).await);
    eventually("only the session in use is there", async || sessions(&mut raw, "true").await <= 1).await;
    assert_eq!(
        ask(&mut raw, "SELECT count(*) FROM pg_locks WHERE relation = 'anarchon.job'::regclass").await,
        0
    );
}

#[tokio::test]
async fn a_call_cut_off_while_it_waits_for_a_row_is_gone_soon() {
    let database = Database::new().await;
    let store = database.opened().await;
    register(&store, "j").await;
    let mut raw = raw(&database.url).await;
    let mut other = self::raw(&database.url).await;
    let mut lock = other.begin().await.unwrap();
    sqlx::raw_sql("SELECT * FROM anarchon.job FOR UPDATE").execute(&mut *lock).await.unwrap();
    let order = [Control { job: job("j"), action: ControlAction::Trigger }];
    let cut = tokio::time::timeout(Duration::from_millis(300), store.control(&order)).await;
    assert!(cut.is_err(), "it did not wait for the row: {cut:?}");
    eventually("the server gave up the call that nobody waits for", async || {
        sessions(&mut raw, "wait_event_type = 'Lock'").await == 0
    })
    .await;
    lock.rollback().await.unwrap();
    let record = store.inspect(&[job("j")], 0).await.remove(0).unwrap().value.unwrap().record;
    assert_eq!(record.manual_asked, 0, "it came to pass after all");
}

#[tokio::test]
async fn a_row_that_somebody_keeps_locked_is_told_of_and_survived() {
    let database = Database::new().await;
    let store = database.opened().await;
    register(&store, "j").await;
    let mut other = raw(&database.url).await;
    let mut lock = other.begin().await.unwrap();
    sqlx::raw_sql("SELECT * FROM anarchon.job FOR UPDATE").execute(&mut *lock).await.unwrap();
    let order = [Control { job: job("j"), action: ControlAction::Trigger }];
    let error = store.control(&order).await.remove(0).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    has(&error, &["locked by somebody else for more than 2 s", "left open"]);
    lock.rollback().await.unwrap();
    done(store.control(&order).await);
}

/// What a call answers whose row another session holds, and ends its transaction after this.
async fn while_held<T>(database: &Database, sql: &'static str, call: impl AsyncFn() -> Vec<Answer<T>>) -> T {
    let (mut other, mut watch) = (raw(&database.url).await, raw(&database.url).await);
    let mut lock = other.begin().await.unwrap();
    sqlx::raw_sql("SELECT * FROM anarchon.job FOR UPDATE").execute(&mut *lock).await.unwrap();
    let change = async {
        eventually("our call waits for the row", async || {
            sessions(&mut watch, "wait_event_type = 'Lock'").await == 1
        })
        .await;
        sqlx::raw_sql(sql).execute(&mut *lock).await.unwrap();
        lock.commit().await.unwrap();
    };
    match tokio::join!(call(), change).0.remove(0) {
        // A busy machine took more than the 2 s that a call waits.
        Err(error) if error.to_string().contains("locked by somebody else") => {
            call().await.remove(0).unwrap().value
        }
        answer => answer.unwrap().value,
    }
}

#[tokio::test]
async fn a_record_that_changes_while_a_call_waits_for_it_is_decided_anew() {
    const NOTHING: &str = "SELECT 1";
    const ROLLED_BACK: &str = "SAVEPOINT s; UPDATE anarchon.job SET token = token + 7, nonce = \
                               '00000000-0000-0000-0000-000000000009'; ROLLBACK TO s";
    const SOMEBODY_ELSES: &str = "UPDATE anarchon.job SET status = 'running', token = token + 1, holder = 'b', until = \
                                  9223372036854775, nonce = '00000000-0000-0000-0000-000000000009'";
    const DECIDED: &str = "UPDATE anarchon.job SET decided = 9223372036854775";
    let database = Database::new().await;
    let store = database.opened().await;
    let fresh = async || {
        database.execute("DELETE FROM anarchon.job").await;
        register(&store, "j").await;
        due(&store, "j").await
    };
    for (sql, wins) in [(NOTHING, true), (ROLLED_BACK, true), (SOMEBODY_ELSES, false), (DECIDED, false)] {
        let claims = [claim("j", fresh().await, 1)];
        let verdict = while_held(&database, sql, async || store.claim(&claims).await).await;
        match (&verdict, wins) {
            (Verdict::Awarded(_), true) | (Verdict::Skipped(_) | Verdict::AlreadyDecided(_), false) => {}
            _ => panic!("{sql}: {verdict:?}"),
        }
    }
    for (sql, holds) in [(NOTHING, true), (ROLLED_BACK, true), (SOMEBODY_ELSES, false)] {
        fresh().await;
        let token = win(&store, "j", 1).await;
        let renewals = [Renewal { job: job("j"), token, lease: Duration::from_secs(30) }];
        let renewed = while_held(&database, sql, async || store.renew(&renewals).await).await;
        assert_eq!(matches!(renewed, Renewed::Extended { .. }), holds, "{sql}: {renewed:?}");
        fresh().await;
        let token = win(&store, "j", 1).await;
        let finishes = [finish("j", token)];
        let finished = while_held(&database, sql, async || store.finish(&finishes).await).await;
        assert_eq!(matches!(finished, Finished::Closed(_)), holds, "{sql}: {finished:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_somebody_keeps_locked_holds_up_no_claim_of_another() {
    let database = Database::new().await;
    let stores = [Arc::new(database.opened().await), Arc::new(database.opened().await)];
    for name in ["a", "b", "c"] {
        register(&*stores[0], name).await;
    }
    let at = due(&*stores[0], "c").await;
    let (mut other, mut watch) = (raw(&database.url).await, raw(&database.url).await);
    let mut lock = other.begin().await.unwrap();
    sqlx::raw_sql("SELECT * FROM anarchon.job WHERE job = 'a' FOR UPDATE").execute(&mut *lock).await.unwrap();
    let lease = Duration::from_secs(23);
    let (store, claims) = (Arc::clone(&stores[0]), [Claim { lease, ..claim("a", at, 1) }]);
    // As long as an instance waits for the answer.
    let locked = tokio::spawn(async move { tokio::time::timeout(lease / 6, store.claim(&claims)).await });
    eventually("its claim waits for the record", async || {
        sessions(&mut watch, "wait_event_type = 'Lock'").await == 1
    })
    .await;
    win(&*stores[0], "b", 1).await;
    win(&*stores[1], "c", 1).await;
    assert_eq!(
        sessions(&mut watch, "wait_event_type = 'Lock'").await,
        1,
        "they waited as long as the other one"
    );
    let error = locked.await.unwrap().expect("an answer in time").remove(0).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    has(&error, &["locked by somebody else for more than 2 s", "left open"]);
    lock.rollback().await.unwrap();
    win(&*stores[1], "a", 1).await;
}

#[tokio::test]
async fn a_plan_made_with_one_job_finds_its_rows_by_the_key_with_thousands() {
    for release in [Release::System, Release::Newer] {
        let server = release.with(["fsync=off", "autovacuum=off"]);
        let url = url(server.port());
        let store = opened(&url).await;
        register(&store, "j").await;
        execute(&url, "ANALYZE").await;
        let run = async |seq| {
            let token = win(&store, "j", seq).await;
            done(store.renew(&[Renewal { job: job("j"), token, lease: Duration::from_secs(30) }]).await);
            done(store.finish(&[finish("j", token)]).await);
            done(store.inspect(&[job("j")], 20).await);
        };
        // The session makes its plans.
        run(1).await;
        let other = opened(&url).await;
        done(other.register(&specs(3000)).await);
        other.close().await;
        let mut raw = raw(&url).await;
        let mut rows_read = async |more: i64| {
            eventually("the server has counted", async || sessions(&mut raw, "true").await == more).await;
            let read = "SELECT (sum(seq_tup_read) + sum(idx_tup_read))::bigint FROM pg_stat_user_tables t
                JOIN pg_stat_user_indexes i USING (relid) WHERE t.relname = 'job'";
            ask(&mut raw, read).await
        };
        let before = rows_read(1).await;
        run(2).await;
        store.close().await;
        let read = rows_read(0).await - before;
        assert!((5..500).contains(&read), "{release:?}: {read} rows read for one job");
    }
}

#[tokio::test]
async fn a_deadlock_with_somebody_else_is_tried_again() {
    let server = Release::System.with(["fsync=off", "deadlock_timeout=200ms"]);
    let url = url(server.port());
    let store = opened(&url).await;
    register(&store, "a").await;
    register(&store, "b").await;
    let (mut other, mut watch) = (raw(&url).await, raw(&url).await);
    let mut lock = other.begin().await.unwrap();
    let take =
        |name: &str| AssertSqlSafe(format!("SELECT * FROM anarchon.job WHERE job = '{name}' FOR UPDATE"));
    sqlx::raw_sql(take("b")).execute(&mut *lock).await.unwrap();
    let both = ["a", "b"].map(|name| Control { job: job(name), action: ControlAction::Trigger });
    let call = store.control(&both);
    let cross = async {
        eventually("our call waits for b", async || {
            sessions(&mut watch, "wait_event_type = 'Lock'").await == 1
        })
        .await;
        // One of the two is the victim.
        match sqlx::raw_sql(take("a")).execute(&mut *lock).await {
            Ok(_) => lock.commit().await.unwrap(),
            Err(_) => lock.rollback().await.unwrap(),
        }
    };
    let (answers, ()) = tokio::join!(call, cross);
    done(answers);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    eventually("the server counts it", async || ask(&mut watch, deadlocks).await >= 1).await;
    for name in ["a", "b"] {
        let record = store.inspect(&[job(name)], 0).await.remove(0).unwrap().value.unwrap().record;
        assert_eq!(record.manual_asked, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_of_serializable_transactions_changes_nothing() {
    let database = Database::new().await;
    database
        .execute(&format!(
            "ALTER DATABASE {} SET default_transaction_isolation = 'serializable'",
            database.name
        ))
        .await;
    let stores = [Arc::new(database.opened().await), Arc::new(database.opened().await)];
    register(&*stores[0], "j").await;
    let orders = stores.iter().map(|store| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            for _ in 0..100 {
                done(store.control(&[Control { job: job("j"), action: ControlAction::Trigger }]).await);
            }
        })
    });
    for order in orders.collect::<Vec<_>>() {
        order.await.unwrap();
    }
    let record = stores[0].inspect(&[job("j")], 0).await.remove(0).unwrap().value.unwrap().record;
    assert_eq!(record.manual_asked, 200);
    let rolled_back = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(database.number(rolled_back).await, 0, "conflicts of serializable transactions");
}

// Servers that fail.

#[tokio::test]
async fn a_database_that_becomes_read_only_is_told_of_and_survived() {
    let database = Database::new().await;
    let store = database.opened().await;
    register(&store, "j").await;
    let elsewhere = url(shared().port());
    let set = async |to: &str| {
        let sql = format!("ALTER DATABASE {} SET default_transaction_read_only = {to}", database.name);
        execute(&elsewhere, &sql).await;
    };
    set("on").await;
    // The setting is for new sessions.
    let fresh = backend(&database.url);
    let error = fresh.open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    has(&error, &["can only be read", "default_transaction_read_only", "name the primary"]);
    database.end_sessions().await;
    let _ = store.inspect(&[job("j")], 0).await;
    let error = store
        .control(&[Control { job: job("j"), action: ControlAction::Trigger }])
        .await
        .remove(0)
        .unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    has(&error, &["can only be read"]);
    set("off").await;
    database.end_sessions().await;
    let _ = store.inspect(&[job("j")], 0).await;
    done(store.control(&[Control { job: job("j"), action: ControlAction::Trigger }]).await);
    fresh.open(&ns()).await.unwrap();
}

#[tokio::test]
async fn a_replica_is_refused_as_unavailable() {
    // Nobody feeds it, which it does not mind.
    let replica = Postgres::new(Release::System, ["fsync=off"]).file("standby.signal", "");
    let server = Server::start(replica);
    let error = backend(&url(server.port())).open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    has(&error, &["can only be read", "it is a replica", "name the primary"]);
}

#[tokio::test]
async fn a_full_disk_is_reported_and_survived() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can mount a small disk");
        return;
    }
    let server = Release::System.start();
    let url = url(server.port());
    let small = Tmpfs::mount(server.place().folder().join("small"));
    let store = opened(&url).await;
    register(&store, "j").await;
    small.give_to_owner_of(&server.place().data());
    let ballast = small.0.join("ballast");
    std::fs::write(&ballast, vec![1; 400_000]).unwrap();
    execute(&url, &format!("CREATE TABLESPACE small LOCATION '{}'", small.0.display())).await;
    execute(&url, "ALTER TABLE anarchon.job SET TABLESPACE small").await;
    let mut error = None;
    for n in 0..200 {
        let specs: Vec<JobSpec> =
            (0..100).map(|m| spec(&format!("job-{n}-{m}-{}", "x".repeat(80)))).collect();
        if let Err(told) = store.register(&specs).await.remove(0) {
            error = Some(told);
            break;
        }
    }
    let error = error.expect("the disk is full at last");
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    has(&error, &["its disk is full; make room"]);
    let _ = store.inspect(&[job("j")], 0).await;
    std::fs::remove_file(ballast).unwrap();
    done(store.register(&[spec("new")]).await);
    win(&store, "j", 1).await;
    drop(server);
}

#[tokio::test]
async fn too_many_connections_are_told_of_and_survived() {
    let server = Release::System.with([
        "fsync=off",
        "max_connections=6",
        "superuser_reserved_connections=0",
        "max_wal_senders=0",
    ]);
    let url = url(server.port());
    let store = opened(&url).await;
    register(&store, "j").await;
    let mut held = Vec::new();
    while let Ok(connection) = PgConnection::connect(&url).await {
        held.push(connection);
    }
    let late = backend(&url);
    let error = late.open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    has(&error, &["too many connections already", "max_connections", "PgBouncer"]);
    // Who has a connection goes on.
    win(&store, "j", 1).await;
    drop(held);
    eventually("there is room again", async || late.open(&ns()).await.is_ok()).await;
}

#[tokio::test]
async fn nobody_and_a_mute_one_at_the_address_are_unavailable_in_time() {
    let port = Port::free();
    let error = backend(&url(port.number())).open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    has(&error, &["cannot be reached", "look at host and port"]);
    let _mute = std::net::TcpListener::bind(("127.0.0.1", port.number())).unwrap();
    let begin = Instant::now();
    let error = backend(&url(port.number())).open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    has(&error, &["did not answer within 5s", "host and port"]);
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_killed_server_is_used_again_once_it_is_back_and_an_empty_one_too() {
    let mut server = Release::System.with(["fsync=on"]);
    let store = opened(&url(server.port())).await;
    register(&store, "j").await;
    let token = win(&store, "j", 1).await;
    server.kill();
    let lost = store.finish(&[finish("j", token)]).await.remove(0).unwrap_err();
    assert_eq!(lost.kind, StoreErrorKind::Unknown, "sent on a connection that was still there: {lost}");
    let refused = store.finish(&[finish("j", token)]).await.remove(0).unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Unavailable, "never sent: {refused}");
    server.restart();
    done(store.finish(&[finish("j", token)]).await);
    server.restart_empty();
    let _ = store.inspect(&[job("j")], 0).await;
    assert_eq!(
        store.claim(&[claim("j", Millis(1), 2)]).await.remove(0).unwrap().value,
        Verdict::Unregistered
    );
    register(&store, "j").await;
    assert!(win(&store, "j", 3).await > token, "tokens grow over the loss of all data");
}

// Encryption.

#[tokio::test]
async fn sslmode_decides_whether_a_connection_is_encrypted_and_to_whom() {
    let authority = Authority::new();
    let server = authority.issue("a server", &["localhost"]);
    let rules = "hostssl all all 127.0.0.1/32 trust\nhostssl all all ::1/128 trust\n";
    let settings = ["fsync=off", "ssl=on", "ssl_cert_file=server.crt", "ssl_key_file=server.key"];
    let recipe = Postgres::new(Release::System, settings)
        .file("server.crt", &server.certificate)
        .file("server.key", &server.key)
        .file("pg_hba.conf", rules);
    let server = Server::start(recipe);
    let folder = TempDir::new().unwrap();
    let file = |name: &str, content: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, content).unwrap();
        file.display().to_string()
    };
    let right = file("right.pem", authority.certificate());
    let wrong = file("wrong.pem", Authority::new().certificate());
    let port = server.port();
    let open = |host: &str, mode: &str| {
        let url = format!("postgres://postgres@{host}:{port}/postgres?sslmode={mode}");
        async move { opened_or_not(&url).await }
    };

    for (host, mode) in [
        ("127.0.0.1", "prefer".to_owned()),
        ("127.0.0.1", "require".to_owned()),
        ("127.0.0.1", format!("verify-ca&sslrootcert={right}")),
        ("localhost", format!("verify-full&sslrootcert={right}")),
    ] {
        let store = open(host, &mode).await.unwrap_or_else(|error| panic!("{host} {mode}: {error}"));
        let mut raw = raw(&format!("{}?sslmode=require", url(port))).await;
        let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'anarchon' AND ssl";
        assert!(ask(&mut raw, encrypted).await >= 1, "{mode}");
        drop(store);
    }
    for (host, mode, word) in [
        ("127.0.0.1", "disable".to_owned(), "no encryption"),
        ("localhost", format!("verify-full&sslrootcert={wrong}"), "sslrootcert"),
        // The certificate is for the name, not for the address.
        ("127.0.0.1", format!("verify-full&sslrootcert={right}"), "sslrootcert"),
        // The system's roots do not know our authority.
        ("localhost", "verify-full".to_owned(), "sslrootcert"),
    ] {
        let error = open(host, &mode).await.expect_err(&mode);
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{mode}: {error}");
        has(&error, &[word]);
    }
    let plain = Release::System.start();
    let error = opened_or_not(&format!("{}?sslmode=require", url(plain.port()))).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    has(&error, &["cannot be reached over TLS", "sslmode"]);
}

// Helpers.

/// One server for the tests that do it no harm. It ends with this process.
fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Release::System.start())
}

/// A database of its own on the shared server.
struct Database {
    name: String,
    role: String,
    url: String,
}

impl Database {
    async fn new() -> Self {
        Self::with("").await
    }

    async fn with(options: &str) -> Self {
        let port = shared().port();
        let name = format!("test_{:016x}", fastrand::u64(..));
        execute(&url(port), &format!("CREATE DATABASE {name} TEMPLATE template0 {options}")).await;
        let url = format!("postgres://postgres@127.0.0.1:{port}/{name}");
        Self { role: format!("role_{name}"), name, url }
    }

    /// Creates its role, and returns the URL for it.
    async fn role(&self, options: &str, more: &str) -> String {
        self.execute(&format!("CREATE ROLE {} {options};{more}", self.role)).await;
        self.url.replace("postgres@", &format!("{}@", self.role))
    }

    async fn opened(&self) -> PostgresBackend {
        opened(&self.url).await
    }

    async fn execute(&self, sql: &str) {
        execute(&self.url, sql).await;
    }

    async fn number(&self, sql: &'static str) -> i64 {
        ask(&mut raw(&self.url).await, sql).await
    }

    async fn end_sessions(&self) {
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name = 'anarchon' AND datname = current_database()",
        )
        .await;
        let mut raw = raw(&self.url).await;
        eventually("they are gone", async || sessions(&mut raw, "true").await == 0).await;
    }
}

/// A small disk. Dropping it unmounts it.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn mount(place: std::path::PathBuf) -> Self {
        std::fs::create_dir(&place).unwrap();
        mount("tmpfs", &place, "tmpfs", MountFlags::empty(), Some(c"size=1m")).unwrap();
        Self(place)
    }

    fn give_to_owner_of(&self, other: &Path) {
        use std::os::unix::fs::{MetadataExt as _, chown};
        let other = std::fs::metadata(other).unwrap();
        chown(&self.0, Some(other.uid()), Some(other.gid())).unwrap();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // The server may still have files open in it.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn backend(url: &str) -> PostgresBackend {
    PostgresBackend::connect(url).unwrap()
}
async fn opened(url: &str) -> PostgresBackend {
    opened_or_not(url).await.unwrap()
}
async fn opened_or_not(url: &str) -> Result<PostgresBackend, StoreError> {
    let store = backend(url);
    store.open(&ns()).await?;
    Ok(store)
}
fn done<T: std::fmt::Debug>(answers: Vec<Answer<T>>) {
    for answer in answers {
        answer.unwrap();
    }
}
/// Every call once, each with a write.
async fn raw(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}
async fn execute(url: &str, sql: &str) {
    let mut connection = raw(url).await;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    connection.close().await.unwrap();
}
async fn ask(connection: &mut PgConnection, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(connection).await.unwrap()
}
/// How many sessions of ours the server has in this database.
async fn sessions(connection: &mut PgConnection, condition: &str) -> i64 {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'anarchon' AND datname = current_database() AND {condition}"
    );
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await.unwrap()
}
async fn eventually(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !look().await {
        assert!(Instant::now() < limit, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
fn has(message: &dyn std::fmt::Display, words: &[&str]) {
    let message = message.to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}
