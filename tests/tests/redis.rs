//! What is special to Redis and Valkey: settings, logins, TLS, replicas, and connections that break.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anarchon::{
    RedisBackend, ValkeyBackend,
    protocol::{
        Announcement, Award, Claim, Control, ControlAction, Controlled, Finish, Finished, Millis, Namespace,
        Outcome, Registered, Verdict, What,
    },
    store::{Durability, Guarantees, Store, StoreError, StoreErrorKind},
};
use anarchon_tests::{
    calls::{award, claim, due, finish, instance, job, live, ns, one, specs},
    certificates::Authority,
    damage::{Damage, costs_its_own_job_alone},
    grants::{self, USER},
    proxy::{Mode, Proxy},
    secrets,
    servers::{
        Server,
        port::Port,
        redis::{Kind, command, connections, record_key, set_record},
    },
    wait::{repeated, until_so},
};
use tokio::time::timeout;

fn redis(server: &Server) -> RedisBackend {
    RedisBackend::connect(&Kind::Redis.url(server.port())).unwrap()
}

async fn opened(store: RedisBackend) -> RedisBackend {
    store.open(&ns()).await.unwrap();
    store
}

async fn refused(store: &dyn Store) -> StoreError {
    store.open(&ns()).await.unwrap_err()
}

async fn guarantees(server: &Server) -> Guarantees {
    redis(server).open(&ns()).await.unwrap()
}

fn ask(server: &Server, line: &str) -> String {
    command(server.port(), line).unwrap()
}

async fn register(store: &dyn Store, jobs: usize) {
    let answers = store.register(&specs(jobs)).await.into_iter().map(Result::unwrap);
    let newest = answers.map(|answer| answer.now.millis()).max();
    // A batch is seen to in no order: what is due for one job from now on is due for all.
    while Some(due(store, "job-0").await) <= newest {}
}

/// Claims of the newest instant that is due for all jobs, a millisecond after their last.
async fn claims(store: &dyn Store, jobs: usize, seq: u64) -> Vec<Claim> {
    // All were registered, and are claimed, together.
    let at = due(store, "job-0").await;
    (0..jobs).map(|n| claim(&format!("job-{n}"), at, seq)).collect()
}

async fn claim_one(store: &dyn Store) -> Claim {
    claims(store, 1, fastrand::u64(1..)).await.remove(0)
}

// ---- settings ----

#[tokio::test]
async fn a_policy_that_evicts_claims_is_refused_unless_the_user_insists() {
    let server = Kind::Redis.with(["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let error = refused(&redis(&server)).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("allkeys-lru") && error.to_string().contains("noeviction"), "{error}");
    let insisted = redis(&server).allow_eviction().open(&ns()).await.unwrap();
    assert!(
        matches!(&insisted.durability, Durability::Unsafe(why) if why.contains("allkeys-lru")),
        "{insisted:?}"
    );
    ask(&server, "CONFIG SET maxmemory-policy volatile-lru");
    redis(&server).open(&ns()).await.unwrap();
}

#[tokio::test]
async fn what_survives_a_crash_is_told_as_the_server_is_set() {
    let server = Kind::Redis.start();
    let told = guarantees(&server).await;
    assert_eq!((told.durability, told.loses_on_failover), (Durability::Fsync, false));
    assert!(told.store.starts_with("Redis "), "{}", told.store);
    ask(&server, "CONFIG SET appendfsync everysec");
    assert_eq!(guarantees(&server).await.durability, Durability::Periodic);
    ask(&server, "CONFIG SET appendonly no");
    assert!(
        matches!(guarantees(&server).await.durability, Durability::Unsafe(why) if why.contains("nothing is kept"))
    );
    let valkey = Kind::Valkey.start();
    let store = ValkeyBackend::connect(&Kind::Valkey.url(valkey.port())).unwrap();
    assert!(store.open(&ns()).await.unwrap().store.starts_with("Valkey 8"));
    assert!(store.describe().starts_with("valkey://"));
}

/// One of the user that the guide has, and another one.
fn of_the_guide(server: &Server) -> [RedisBackend; 2] {
    let url = grants::login(&Kind::Redis.url(server.port()));
    [(); 2].map(|()| RedisBackend::connect(&url).unwrap())
}

#[tokio::test]
async fn the_user_of_the_guide_can_do_everything_and_without_any_of_its_rights_not() {
    let server = Kind::Redis.start();
    let all = grants::redis(USER);
    ask(&server, &all);
    let namespace = Namespace::new(USER).unwrap();
    let [store, other] = of_the_guide(&server);
    // CONFIG is forbidden: it works, and says what is unknown.
    let told = store.open(&namespace).await.unwrap();
    assert!(matches!(&told.durability, Durability::Unsafe(why) if why.contains("CONFIG GET")), "{told:?}");
    other.open(&namespace).await.unwrap();
    live(&store, &other, true).await.unwrap();

    let rights: Vec<&str> = all.split_whitespace().filter(|word| word.starts_with(['~', '+'])).collect();
    assert_eq!(rights.len(), 11, "{rights:?}");
    for right in rights {
        let others: Vec<&str> = all.split_whitespace().filter(|word| *word != right).collect();
        assert_eq!(ask(&server, &others.join(" ")), "+OK\r\n", "without {right}");
        if right == "+info" {
            let told = store.open(&namespace).await.unwrap();
            assert!(matches!(&told.durability, Durability::Unsafe(why) if why.contains("whether it keeps")));
        } else {
            // So that its scripts are sent in full, as after a restart.
            ask(&server, "SCRIPT FLUSH");
            let error = live(&store, &other, true).await.expect_err(right);
            assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
            assert!(
                error.to_string().contains("~anarchon:{NAMESPACE/*")
                    && error.to_string().contains("+evalsha"),
                "{error}"
            );
        }
    }
    ask(&server, &all);
    live(&store, &other, true).await.unwrap();
}

#[tokio::test]
async fn the_user_of_the_guide_has_its_namespace_alone() {
    let server = Kind::Redis.start();
    ask(&server, &grants::redis(USER));
    let theirs = opened(redis(&server)).await;
    register(&theirs, 1).await;
    let [store, _] = of_the_guide(&server);
    // That of the others, and one that begins like its own.
    for namespace in [ns(), Namespace::new("payroll2").unwrap()] {
        let error = store.open(&namespace).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    }
    let url = grants::login(&Kind::Redis.url(server.port()));
    let mut user = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    for line in [
        "HGETALL anarchon:{tests/0}",
        "EVAL return(redis.call('HGETALL','anarchon:{tests/0}')) 0",
        "HGETALL anarchon:{tests}:members",
        "DEL other",
        "KEYS *",
        "PUBLISH anarchon x",
        "CONFIG GET requirepass",
        "FLUSHALL",
        "ACL WHOAMI",
    ] {
        let mut words = line.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        words.for_each(|word| _ = command.arg(word));
        let answer = command.query_async::<redis::Value>(&mut user).await;
        let error = answer.expect_err(line).to_string();
        let is_refusal =
            ["no permissions", "can't run", "can't access"].iter().any(|words| error.contains(words));
        assert!(is_refusal, "{line}: {error}");
    }
}

#[tokio::test]
async fn something_foreign_under_a_key_is_told_with_it() {
    let server = Kind::Redis.start();
    let store = opened(redis(&server)).await;
    let own = Announcement::Withdrawn { instance: instance("a") };
    for key in ["anarchon:{tests}:members", "anarchon:{tests}:schedules"] {
        ask(&server, &format!("SET {key} foreign"));
        let error = store.beat(&own).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured);
        assert!(error.to_string().contains(&format!("WRONGTYPE of {key}")), "{error}");
        ask(&server, &format!("DEL {key}"));
        store.beat(&own).await.unwrap();
    }
    register(&store, 1).await;
    let key = record_key(server.port(), &ns(), "job-0");
    ask(&server, &format!("SET {key} foreign"));
    for error in [one(store.register(&specs(1)).await).unwrap_err(), store.open(&ns()).await.unwrap_err()] {
        assert_eq!(error.kind, StoreErrorKind::Misconfigured);
        assert!(error.to_string().contains(&format!("WRONGTYPE of {key}")), "{error}");
    }
    ask(&server, &format!("DEL {key}"));
    register(&store, 1).await;
}

#[tokio::test]
async fn a_database_and_replicas_take_the_rights_that_the_guide_adds_for_them() {
    let server = Kind::Redis.start();
    let all = grants::redis("*");
    let url = grants::login(&Kind::Redis.url(server.port()));
    let number = RedisBackend::connect(&format!("{url}/3")).unwrap();
    let waiting = RedisBackend::connect(&url).unwrap().wait_replicas(1);
    ask(&server, &all);
    let error = refused(&number).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("allow it +select"), "{error}");
    ask(&server, &format!("{all} +select"));
    number.open(&ns()).await.unwrap();
    let waiting = opened(waiting).await;
    register(&waiting, 1).await;
    let claim = claim_one(&waiting).await;
    let error = one(waiting.claim(std::slice::from_ref(&claim)).await).unwrap_err();
    assert!(error.to_string().contains("an unknown number of"), "{error}");
    ask(&server, &format!("{all} +wait"));
    let error = one(waiting.claim(&[claim]).await).unwrap_err();
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_prints_a_password() {
    let server = Kind::Redis.start();
    let password = secrets::password();
    ask(&server, &grants::redis("*").replace(grants::PASSWORD, &password));
    let worker = env!("CARGO_BIN_EXE_worker");
    tokio::task::spawn_blocking(move || {
        secrets::are_kept(worker, server.port(), |port, password| {
            format!("redis://{USER}:{password}@127.0.0.1:{port}")
        });
        // What it names as a sentinel is none.
        let sentinel = format!(
            "redis+sentinel://{}@127.0.0.1:{}/main?sentinel_user=payroll&sentinel_password={}",
            secrets::MARK,
            server.port(),
            secrets::encoded()
        );
        secrets::is_refused(worker, &sentinel, &[secrets::MARK]);
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_wrong_password_is_told_without_it() {
    let server = Kind::Redis.start();
    ask(&server, "ACL SETUSER jobs on >right ~* +@all");
    let wrong = RedisBackend::connect(&format!("redis://jobs:geheim@127.0.0.1:{}", server.port())).unwrap();
    let error = refused(&wrong).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("user and password"), "{error}");
    let all = format!("{error} {wrong:?} {}", wrong.describe());
    assert!(!all.contains("geheim"), "{all}");
    ask(&server, "ACL SETUSER default resetpass >secret");
    let error = refused(&redis(&server)).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    let default = format!("redis://:secret@127.0.0.1:{}", server.port());
    RedisBackend::connect(&default).unwrap().open(&ns()).await.unwrap();
}

#[tokio::test]
async fn databases_are_apart_and_one_that_is_not_there_is_told() {
    let server = Kind::Redis.start();
    let at = |number: &str| {
        RedisBackend::connect(&format!("{}/{number}", Kind::Redis.url(server.port()))).unwrap()
    };
    let (three, four) = (opened(at("3")).await, opened(at("4")).await);
    register(&three, 1).await;
    assert!(matches!(one(four.register(&specs(1)).await).unwrap(), Registered::Created(_)));
    assert!(matches!(one(three.register(&specs(1)).await).unwrap(), Registered::InForce(_)));
    let error = refused(&at("99")).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
}

#[tokio::test]
async fn the_settings_of_a_client_are_used_and_its_connections_are_not() {
    let server = Kind::Redis.start();
    let client = redis::Client::open(format!("{}/5", Kind::Redis.url(server.port()))).unwrap();
    let store = opened(RedisBackend::from_client(&client)).await;
    register(&store, 1).await;
    assert!(ask(&server, "INFO keyspace").contains("db5:keys=1"));
}

#[tokio::test]
async fn a_resp2_connection_will_do() {
    let server = Kind::Redis.start();
    let url = format!("{}?protocol=resp2", Kind::Redis.url(server.port()));
    let store = opened(RedisBackend::connect(&url).unwrap()).await;
    register(&store, 3).await;
    for (answer, claim) in store.claim(&claims(&store, 3, 1).await).await.into_iter().zip(specs(3)) {
        assert!(award(answer.unwrap().value).attempt == 1, "{}", claim.job);
    }
}

#[tokio::test]
async fn what_is_no_primary_is_told_with_its_mend() {
    // Its own choice would be a port that the system may have given to an outgoing connection.
    let bus = Port::free();
    let bus = bus.number().to_string();
    let node = Kind::Redis.with(["--cluster-enabled", "yes", "--cluster-port", &bus]);
    let error = refused(&redis(&node)).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
    let single = Kind::Redis.start();
    let as_cluster = RedisBackend::connect(&format!("redis+cluster://127.0.0.1:{}", single.port())).unwrap();
    let error = refused(&as_cluster).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("write redis://"), "{error}");
    let of = format!("127.0.0.1 {}", single.port());
    let replica = Kind::Redis.with(["--replicaof", &of]);
    let error = refused(&redis(&replica)).await;
    assert!(error.to_string().contains("is a replica"), "{error}");
}

// ---- TLS ----

struct Certificates {
    _folder: tempfile::TempDir,
    ca: String,
    server: (String, String),
    client: (String, String),
}

fn certificates() -> Certificates {
    let folder = tempfile::TempDir::new().unwrap();
    let write = |name: &str, text: String| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let authority = Authority::new();
    let ca = write("ca.pem", authority.certificate().to_owned());
    let issue = |name: &str| {
        let issued = authority.issue(name, &["localhost", "127.0.0.1"]);
        (write(&format!("{name}.pem"), issued.certificate), write(&format!("{name}.key"), issued.key))
    };
    let (server, client) = (issue("server"), issue("client"));
    Certificates { _folder: folder, ca, server, client }
}

#[tokio::test]
async fn tls_needs_a_trusted_server_and_where_it_asks_our_certificate() {
    let certificates = certificates();
    let (cert, key) = &certificates.server;
    let port = Port::free();
    let tls = port.number().to_string();
    let server = Kind::Redis.with([
        "--tls-port",
        &tls,
        "--tls-cert-file",
        cert,
        "--tls-key-file",
        key,
        "--tls-ca-cert-file",
        &certificates.ca,
        "--tls-auth-clients",
        "yes",
    ]);
    let with =
        |parameters: &str| RedisBackend::connect(&format!("rediss://127.0.0.1:{tls}{parameters}")).unwrap();
    let Certificates { ca, client: (cert, key), .. } = &certificates;
    let store = with(&format!("?ca={ca}&cert={cert}&key={key}"));
    store.open(&ns()).await.unwrap();
    register(&store, 1).await;
    assert!(!store.describe().contains(key.as_str()), "{}", store.describe());

    let error = refused(&with("")).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("?ca=FILE"), "{error}");
    let error = refused(&with(&format!("?ca={ca}"))).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("cert=FILE&key=FILE"), "{error}");
    let error = refused(&with(&format!("?ca={ca}.gone"))).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains(".gone"), "{error}");
    drop(server);
}

// ---- replicas ----

#[tokio::test]
async fn a_claim_that_too_few_replicas_have_is_not_won_yet_whatever_connection_repeats_it() {
    let primary = Kind::Redis.start();
    let of = format!("127.0.0.1 {}", primary.port());
    let replica = Kind::Redis.with(["--replicaof", &of]);
    until_so("the replica follows", || ask(&replica, "INFO replication").contains("master_link_status:up"));
    assert!(guarantees(&primary).await.loses_on_failover);
    let store = redis(&primary).wait_replicas(1);
    assert!(!store.open(&ns()).await.unwrap().loses_on_failover);
    register(&store, 1).await;
    let short = Claim { lease: Duration::from_secs(3), ..claim_one(&store).await };
    let won =
        repeated("the replica has it", async || one(store.claim(std::slice::from_ref(&short)).await).ok());
    let first = award(won.await);
    one(store.finish(&[finish(short.job.as_str(), first.token)]).await).unwrap();

    replica.freeze();
    let short = Claim { lease: Duration::from_secs(3), ..claim_one(&store).await };
    let error = one(store.claim(std::slice::from_ref(&short)).await).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unknown);
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    // On a connection of its own, which has written nothing yet.
    let other = redis(&primary).wait_replicas(1);
    other.open(&ns()).await.unwrap();
    let error = one(other.claim(std::slice::from_ref(&short)).await).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unknown, "{error}");
    replica.thaw();
    let repeat = async || one(other.claim(std::slice::from_ref(&short)).await).ok();
    let won = repeated("the replica has it", repeat).await;
    assert_eq!(award(won).attempt, 1);
}

#[tokio::test]
async fn a_primary_without_the_replicas_it_needs_takes_no_claim() {
    let server = Kind::Redis.start();
    let store = opened(redis(&server)).await;
    register(&store, 1).await;
    let claim = claim_one(&store).await;
    ask(&server, "CONFIG SET min-replicas-to-write 1");
    let error = one(store.claim(std::slice::from_ref(&claim)).await).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("min-replicas-to-write"), "{error}");
    ask(&server, "CONFIG SET min-replicas-to-write 0");
    assert_eq!(award(one(store.claim(&[claim]).await).unwrap()).attempt, 1);
}

#[tokio::test]
async fn a_full_memory_is_unavailable_and_over_when_there_is_room() {
    let server = Kind::Redis.start();
    let store = opened(redis(&server)).await;
    register(&store, 1).await;
    let claim = claim_one(&store).await;
    ask(&server, "CONFIG SET maxmemory 1");
    let error = one(store.claim(std::slice::from_ref(&claim)).await).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("maxmemory"), "{error}");
    ask(&server, "CONFIG SET maxmemory 0");
    assert_eq!(award(one(store.claim(&[claim]).await).unwrap()).attempt, 1);
}

// ---- data ----

/// What a record consists of, in this order.
const FIELDS: [&str; 18] = [
    "form",
    "schedule",
    "nonce",
    "decided",
    "occurrence",
    "status",
    "attempt",
    "crashes",
    "errors",
    "started",
    "until",
    "token",
    "holder",
    "paused",
    "cancel",
    "manual_asked",
    "manual_done",
    "runs",
];

/// Puts a text in the place of a job's record, or, by `field NAME VALUE`, something else in the place of a field of it, or by `field
/// NAME` nothing at all.
fn do_to(server: &Server, job: &str, damage: &str) {
    let key = record_key(server.port(), &ns(), job);
    let text = match damage.strip_prefix("field ") {
        None => damage.to_owned(),
        Some(told) => {
            let (name, value) =
                told.split_once(' ').map_or((told, None), |(name, value)| (name, Some(value)));
            let at = FIELDS.iter().position(|field| *field == name).unwrap();
            let kept = ask(server, &format!("HGET {key} {job}"));
            let mut fields: Vec<&str> = kept.lines().nth(1).unwrap().split(' ').collect();
            assert_eq!(fields.len(), FIELDS.len(), "{kept}");
            fields.splice(at..=at, value);
            fields.join(" ").replace("HUGE", &"1".repeat(1 << 20))
        }
    };
    set_record(server.port(), &key, job, &text);
}

#[tokio::test]
async fn a_foreign_or_damaged_record_is_told_and_forget_mends_it() {
    let server = Kind::Redis.start();
    let store = opened(redis(&server)).await;
    let job = job("job-0");
    let damages = [
        "x",
        "{\"color\":\"red\"}",
        "field until soon",
        "field holder {}",
        "field token 9007199254740993",
        "field decided 99999999999999999",
        "field until -9007199254740993",
    ];
    for (place, damage) in damages.into_iter().enumerate() {
        register(&store, 1).await;
        do_to(&server, "job-0", damage);
        for answer in [
            one(store.register(&specs(1)).await).map(|_| ()),
            one(store.inspect(std::slice::from_ref(&job), 1).await).map(|_| ()),
        ] {
            let error = answer.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{damage}: {error}");
            assert!(error.to_string().contains("forget"), "{damage}: {error}");
            let is_beyond = place > 3;
            assert_eq!(error.to_string().contains("is beyond 2^53"), is_beyond, "{damage}: {error}");
        }
        let forget = Control { job: job.clone(), action: ControlAction::Forget };
        assert_eq!(one(store.control(&[forget]).await).unwrap(), Controlled::Done);
    }
    assert!(matches!(one(store.register(&specs(1)).await).unwrap(), Registered::Created(_)));
    do_to(&server, "job-0", "field form 2");
    let newer = one(store.register(&specs(1)).await).unwrap_err().to_string();
    assert!(
        newer.ends_with("a newer anarchon: its form is 2, and this program reads 1; update this program"),
        "{newer}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_costs_its_own_job_alone() {
    let server = Kind::Redis.start();
    let told = [
        "x",
        "",
        "1 ",
        "field token",
        "field status asleep",
        "field status ",
        "field occurrence never",
        "field occurrence planned:99999999999999999999",
        "field occurrence pxyz:1",
        "field occurrence manual:-1",
        "field token -1",
        "field token 1e3",
        "field token 18446744073709551616",
        "field attempt 4294967296",
        "field holder no name",
        "field nonce \u{fffd}\0",
        "field paused maybe",
        "field cancel -1",
        "field schedule x",
        "field form x",
        "field form HUGE",
        "field status HUGE",
        "field until HUGE",
    ];
    let borne = [
        "field token 9007199254740991",
        "field until -9007199254740991",
        "field decided 9007199254740991",
        "field decided -9007199254740991",
        "field runs 9007199254740991",
        "field manual_asked 9007199254740991",
    ];
    let told = told.map(|line| Damage::Told(line.to_owned())).into_iter();
    let damages: Vec<_> = told.chain(borne.map(|line| Damage::Borne(line.to_owned()))).collect();
    let url = Kind::Redis.url(server.port());
    costs_its_own_job_alone(&url, &damages, async |job, damage| do_to(&server, job, damage)).await;
}

#[tokio::test]
async fn a_server_in_the_place_of_a_sentinel_is_told_at_once() {
    let server = Kind::Redis.start();
    let url = format!("redis+sentinel://127.0.0.1:{}/mymaster", server.port());
    let store = RedisBackend::connect(&url).unwrap();
    let error = store.open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    for words in ["knows no commands of sentinels", "write redis:// in place of redis+sentinel://"] {
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn hostile_text_is_kept_as_it_is_and_never_carried_out() {
    let server = Kind::Redis.start();
    let store = opened(redis(&server)).await;
    register(&store, 1).await;
    let texts = [
        "\r\n$5\r\nPWNED\r\n",
        "'); redis.call('FLUSHALL') --",
        "]] .. redis.call('FLUSHALL') .. [[",
        "\0\u{feff}😀",
        "",
        "+",
        "-",
    ];
    for text in texts {
        let claim = claim_one(&store).await;
        let award = award(one(store.claim(std::slice::from_ref(&claim)).await).unwrap());
        let failed = Finish {
            outcome: Outcome::Failed,
            message: Some(text.to_owned()),
            ..finish(claim.job.as_str(), award.token)
        };
        assert!(matches!(one(store.finish(&[failed]).await).unwrap(), Finished::Closed(_)));
        let kept = one(store.inspect(&[claim.job], 1).await).unwrap().unwrap();
        assert_eq!(kept.history[0].message.as_deref(), Some(text));
        let here = Announcement::Present {
            instance: instance("a"),
            schedules: vec![],
            zones: text.to_owned(),
            contested: vec![],
        };
        assert_eq!(store.beat(&here).await.unwrap().value.zones, [text]);
        let elsewhere = Announcement::Withdrawn { instance: instance("other") };
        assert_eq!(store.beat(&elsewhere).await.unwrap().value.zones, [text], "as others hear it");
    }
    // The records with their histories, and the two of the members.
    assert_eq!(ask(&server, "DBSIZE"), ":3\r\n");
    let key = record_key(server.port(), &ns(), "job-0");
    assert_eq!(ask(&server, &format!("HLEN {key}")), format!(":{}\r\n", 1 + texts.len()));
}

#[tokio::test]
async fn a_damaged_run_and_a_foreign_field_cost_a_line_of_history_and_nothing() {
    let server = Kind::Redis.start();
    let store = opened(redis(&server)).await;
    register(&store, 1).await;
    for _ in 0..2 {
        let claim = claim_one(&store).await;
        let award = award(one(store.claim(&[claim]).await).unwrap());
        one(store.finish(&[finish("job-0", award.token)]).await).unwrap();
    }
    let key = record_key(server.port(), &ns(), "job-0");
    ask(&server, &format!("HSET {key} job-0/0 x color red"));
    let kept = one(store.inspect(&[job("job-0")], 20).await).unwrap().unwrap();
    assert_eq!((kept.record.runs, kept.history.len()), (2, 1));
}

/// Of a claim that comes second a script reads the first fields alone.
#[tokio::test]
async fn a_late_claim_tells_of_a_damaged_record_as_every_call_does() {
    let server = Kind::Redis.start();
    let store = opened(redis(&server)).await;
    register(&store, 1).await;
    let won = claim_one(&store).await;
    award(one(store.claim(std::slice::from_ref(&won)).await).unwrap());
    let late = Claim { nonce: claim("job-0", Millis(0), 77).nonce, ..won };
    let verdict = one(store.claim(std::slice::from_ref(&late)).await).unwrap();
    assert!(matches!(verdict, Verdict::AlreadyDecided(_)), "{verdict:?}");
    for damage in
        ["field paused maybe", "field token 9007199254740993", "field runs +5", "field attempt 4294967296"]
    {
        let key = record_key(server.port(), &ns(), "job-0");
        let good = ask(&server, &format!("HGET {key} job-0")).lines().nth(1).unwrap().to_owned();
        do_to(&server, "job-0", damage);
        let error = one(store.claim(std::slice::from_ref(&late)).await).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{damage}: {error}");
        assert!(error.to_string().contains("forget"), "{damage}: {error}");
        set_record(server.port(), &key, "job-0", &good);
    }
}

/// Orders for one job in one call are carried out in their order.
#[tokio::test]
async fn what_is_asked_of_a_job_before_it_is_forgotten_is_forgotten_with_it() {
    let server = Kind::Redis.start();
    let store = opened(redis(&server)).await;
    register(&store, 1).await;
    let orders = [ControlAction::Trigger, ControlAction::Forget, ControlAction::Pause]
        .map(|action| Control { job: job("job-0"), action });
    let told: Vec<Controlled> =
        store.control(&orders).await.into_iter().map(|answer| answer.unwrap().value).collect();
    assert_eq!(told, [Controlled::Done, Controlled::Done, Controlled::Unregistered]);
    assert_eq!(one(store.inspect(&[job("job-0")], 0).await).unwrap(), None);
}

/// 100,000 of them: 50 jobs, 2,000 times.
#[tokio::test]
async fn record_and_history_stay_as_large_as_they_are_over_100000_runs() {
    const JOBS: usize = 50;
    let server = Kind::Redis.start();
    ask(&server, "CONFIG SET appendfsync no");
    let store = opened(redis(&server)).await;
    register(&store, JOBS).await;
    let sizes = || {
        let key = record_key(server.port(), &ns(), "job-7");
        (ask(&server, &format!("MEMORY USAGE {key} SAMPLES 0")), ask(&server, "DBSIZE"))
    };
    let mut before = None;
    for round in 0..2000 {
        let claims = claims(&store, JOBS, round + 1).await;
        let awards = store.claim(&claims).await.into_iter().map(|answer| award(answer.unwrap().value));
        let finishes: Vec<Finish> =
            claims.iter().zip(awards).map(|(claim, award)| finish(claim.job.as_str(), award.token)).collect();
        for answer in store.finish(&finishes).await {
            assert!(matches!(answer.unwrap().value, Finished::Closed(_)));
        }
        // From the hundredth on the counter has as many digits as at the 999th.
        if round == 1100 {
            before = Some(sizes());
        }
    }
    assert_eq!(before, Some(sizes()));
    println!("record and history: {:?}", sizes());
    let kept = one(store.inspect(&[job("job-7")], u8::MAX).await).unwrap().unwrap();
    assert_eq!((kept.record.runs, kept.history.len()), (2000, 20));
}

// ---- connections ----

#[tokio::test]
async fn an_instance_has_one_connection_whatever_is_asked_at_once_and_whatever_is_cut_off() {
    let server = Kind::Redis.start();
    let store = Arc::new(opened(redis(&server)).await);
    register(&*store, 100).await;
    let at_once = (0..20).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { register(&*store, 100).await })
    });
    for task in at_once.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(connections(server.port()), 1);
    server.freeze();
    for _ in 0..5 {
        timeout(Duration::from_millis(50), store.register(&specs(100))).await.unwrap_err();
    }
    server.thaw();
    register(&*store, 100).await;
    until_so("those that were given up are closed", || connections(server.port()) == 1);
}

#[tokio::test]
async fn closing_ends_the_connection_also_of_other_handles_and_a_later_call_makes_a_new_one() {
    let server = Kind::Redis.start();
    let store = opened(redis(&server)).await;
    let other = store.clone();
    register(&other, 1).await;
    for _ in 0..2 {
        assert_eq!(connections(server.port()), 1);
        // A call in flight still gets its answer.
        let jobs = specs(100);
        let (answers, ()) = tokio::join!(other.register(&jobs), store.close());
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        repeated("the server sees none of ours", async || (connections(server.port()) == 0).then_some(()))
            .await;
        register(&store, 1).await;
    }
}

#[tokio::test]
async fn a_call_to_a_server_that_is_away_did_not_happen_and_the_first_after_its_return_does() {
    let mut server = Kind::Redis.start();
    let store = opened(redis(&server)).await;
    register(&store, 1).await;
    server.kill();
    repeated("the end of the connection is seen", async || {
        let error = one(store.register(&specs(1)).await).unwrap_err();
        (error.kind == StoreErrorKind::Unavailable).then_some(())
    })
    .await;
    server.restart();
    assert!(
        matches!(one(store.register(&specs(1)).await).unwrap(), Registered::InForce(_)),
        "its data is there"
    );
    // Restarted between two calls: the end of the connection is seen before the next one is sent over it.
    for _ in 0..3 {
        server.restart();
        tokio::time::sleep(Duration::from_millis(100)).await;
        one(store.register(&specs(1)).await).unwrap();
    }
    server.restart_empty();
    let nobodys = Claim { what: What::Manual(1), ..claim("job-0", Millis(0), 1) };
    let ask = async || one(store.claim(std::slice::from_ref(&nobodys)).await).ok();
    let verdict = repeated("it answers again", ask).await;
    assert_eq!(verdict, Verdict::Unregistered);
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_reply_leaves_the_call_unknown_and_its_repetition_finds_the_award()
 {
    let server = Kind::Redis.start();
    let proxy = Proxy::to(server.port());
    let store = RedisBackend::connect(&Kind::Redis.url(proxy.port())).unwrap();
    store.open(&ns()).await.unwrap();
    register(&store, 1).await;
    let claim = claim_one(&store).await;
    // The reply comes later than the cut.
    proxy.set(Mode::Delay(Duration::from_secs(1)));
    let call = store.claim(std::slice::from_ref(&claim));
    let cut = async {
        let direct = redis(&server);
        direct.open(&ns()).await.unwrap();
        loop {
            let kept = one(direct.inspect(std::slice::from_ref(&claim.job), 0).await).unwrap().unwrap();
            if kept.record.nonce == claim.nonce {
                break;
            }
            tokio::task::yield_now().await;
        }
        proxy.set(Mode::Cut);
    };
    let (answers, ()) = tokio::join!(call, cut);
    assert_eq!(one(answers).unwrap_err().kind, StoreErrorKind::Unknown);
    assert_eq!(
        one(store.claim(std::slice::from_ref(&claim)).await).unwrap_err().kind,
        StoreErrorKind::Unavailable
    );
    proxy.set(Mode::Pass);
    assert_eq!(award(one(store.claim(&[claim]).await).unwrap()).attempt, 1);
}

#[tokio::test]
async fn a_hole_in_the_network_costs_the_calls_in_it_and_no_later_one() {
    let server = Kind::Redis.start();
    let proxy = Proxy::to(server.port());
    let store = RedisBackend::connect(&Kind::Redis.url(proxy.port())).unwrap();
    store.open(&ns()).await.unwrap();
    register(&store, 1).await;
    proxy.set(Mode::Hole);
    for _ in 0..3 {
        timeout(Duration::from_millis(200), store.register(&specs(1))).await.unwrap_err();
    }
    proxy.set(Mode::Pass);
    timeout(Duration::from_secs(5), register(&store, 1)).await.unwrap();
}

#[tokio::test]
async fn batches_survive_scripts_that_are_flushed_all_the_time() {
    // Several calls for each of the hashes.
    const JOBS: usize = 1600;
    let server = Kind::Redis.start();
    ask(&server, "CONFIG SET appendfsync no");
    let store = opened(redis(&server)).await;
    register(&store, JOBS).await;
    let (port, done) = (server.port(), Arc::new(AtomicBool::new(false)));
    let flush = std::thread::spawn({
        let done = Arc::clone(&done);
        move || {
            let mut flushes = 0;
            while !done.load(Ordering::Relaxed) {
                assert_eq!(command(port, "SCRIPT FLUSH").unwrap(), "+OK\r\n");
                flushes += 1;
                std::thread::sleep(Duration::from_micros(500));
            }
            flushes
        }
    });
    for round in 0..30 {
        let claims = claims(&store, JOBS, round + 1).await;
        for answer in store.claim(&claims).await {
            award(answer.unwrap().value);
        }
        let tokens: Vec<Award> =
            store.claim(&claims).await.into_iter().map(|a| award(a.unwrap().value)).collect();
        let finishes: Vec<Finish> = claims
            .iter()
            .zip(&tokens)
            .map(|(claim, award)| finish(claim.job.as_str(), award.token))
            .collect();
        for answer in store.finish(&finishes).await {
            answer.unwrap();
        }
    }
    done.store(true, Ordering::Relaxed);
    let flushes = flush.join().unwrap();
    assert!(flushes > 30, "{flushes} flushes");
    let missed = ask(&server, "INFO errorstats");
    assert!(missed.contains("errorstat_NOSCRIPT"), "no flush hit a batch: {missed}");
}
