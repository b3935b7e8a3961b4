//! What is special to NATS: buckets, logins, TLS, connections that break, a watch that stands still, and a dead leader.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{fs, path::Path, time::Duration};

use anarchon::{
    NatsBackend,
    protocol::{
        Announcement, Claim, Control, ControlAction, Controlled, Finished, Millis, Namespace, Occurrence,
        Outcome, Registered, Renewal, Renewed, RunOutcome, Status, Token, Verdict, What,
    },
    store::{Durability, Store, StoreError, StoreErrorKind},
};
use anarchon_tests::{
    calls::{award, claim, due, finish, instance, job, live, ns, one, register, schedule, win},
    certificates::Authority,
    damage::{self, costs_its_own_job_alone},
    grants::{self, USER},
    proxy::{Mode, Proxy},
    secrets,
    servers::{
        Server,
        nats::{Nats, Release, request, url},
        nats_cluster::Cluster,
    },
    wait::{PATIENCE, repeated, until, until_so},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures_util::future::join_all;
use nkeys::KeyPair;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

const STREAM: &str = "KV_anarchon_tests";

fn nats(server: &Server) -> NatsBackend {
    NatsBackend::connect(&url(server.port())).unwrap()
}

async fn opened(store: NatsBackend) -> NatsBackend {
    store.open(&ns()).await.unwrap();
    store
}

async fn refused(url: &str) -> StoreError {
    let error = NatsBackend::connect(url).unwrap().open(&ns()).await.unwrap_err();
    assert!(!error.to_string().contains("geheim"), "{error}");
    error
}

async fn misconfigured(url: &str) -> String {
    let error = refused(url).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    error.to_string()
}

/// What is said of a certificate that nobody here has signed.
async fn distrusted(url: &str) -> String {
    for _ in 0..20 {
        let error = refused(url).await;
        if error.kind == StoreErrorKind::Misconfigured {
            return error.to_string();
        }
        // The server may hang up before the client has said why.
        assert!(error.to_string().contains("tls handshake"), "{error}");
    }
    panic!("{url} is never told why");
}

/// Asks JetStream.
fn ask(port: u16, what: &str, question: &Value) -> Value {
    let answer = request(port, &format!("$JS.API.{what}"), &question.to_string()).unwrap();
    serde_json::from_str(&answer).unwrap()
}

fn done(port: u16, what: &str, question: &Value) -> Value {
    let answer = ask(port, what, question);
    assert!(answer.get("error").is_none(), "{answer}");
    answer
}

/// What the bucket holds, by key.
fn keys(port: u16) -> Vec<String> {
    let all = json!({"subjects_filter": ">"});
    let info = done(port, &format!("STREAM.INFO.{STREAM}"), &all);
    let subjects = info["state"]["subjects"].as_object().cloned().unwrap_or_default();
    subjects.into_iter().map(|(subject, _)| subject).collect()
}

fn key_of(port: u16, end: &str) -> String {
    keys(port).into_iter().find(|key| key.ends_with(end)).unwrap()
}

async fn renew(store: &dyn Store, token: Token, lease: Duration) -> Result<Renewed, StoreError> {
    one(store.renew(&[Renewal { job: job("job"), token, lease }]).await)
}

fn takeover(token: Token, seq: u64) -> Claim {
    Claim { what: What::Takeover { token, observed: None }, ..claim("job", Millis(0), seq) }
}

// ---- the bucket ----

#[tokio::test]
async fn a_bucket_is_made_that_keeps_all_and_what_survives_is_told() {
    for (release, version) in [(Release::System, "NATS 2.9"), (Release::Newer, "NATS 2.1")] {
        let server = release.start();
        let told = nats(&server).open(&ns()).await.unwrap();
        assert!(told.store.starts_with(version), "{}", told.store);
        assert_eq!((told.durability, told.loses_on_failover), (Durability::Periodic, false));
        let config = done(server.port(), &format!("STREAM.INFO.{STREAM}"), &json!({}))["config"].clone();
        for (name, value) in [
            ("storage", json!("file")),
            ("max_msgs_per_subject", json!(1)),
            ("max_age", json!(0)),
            ("max_bytes", json!(-1)),
            ("num_replicas", json!(1)),
            ("discard", json!("new")),
        ] {
            assert_eq!(config[name], value, "{name}");
        }
    }
}

#[tokio::test]
async fn a_bucket_that_would_lose_records_is_refused_until_it_is_mended() {
    for release in Release::ALL {
        let server = release.start();
        let good = json!({
            "name": STREAM, "subjects": ["$KV.anarchon_tests.>"], "storage": "file", "max_msgs_per_subject": 1,
            "discard": "new", "allow_rollup_hdrs": true,
        });
        let with = |name: &str, value: Value| {
            let mut config = good.clone();
            config[name] = value;
            config
        };
        for (name, value, mend) in [
            ("max_age", json!(60_000_000_000_u64), "nats stream edit KV_anarchon_tests --max-age 0s"),
            ("max_msgs_per_subject", json!(5), "--max-msgs-per-subject 1"),
        ] {
            done(server.port(), &format!("STREAM.CREATE.{STREAM}"), &with(name, value));
            let told = misconfigured(&url(server.port())).await;
            assert!(told.contains(mend), "{told}");
            done(server.port(), &format!("STREAM.UPDATE.{STREAM}"), &good);
            nats(&server).open(&ns()).await.unwrap();
            done(server.port(), &format!("STREAM.DELETE.{STREAM}"), &json!({}));
        }
        done(server.port(), &format!("STREAM.CREATE.{STREAM}"), &with("storage", json!("memory")));
        let told = misconfigured(&url(server.port())).await;
        assert!(told.contains("in memory") && told.contains("nats stream rm"), "{told}");
        done(server.port(), &format!("STREAM.DELETE.{STREAM}"), &json!({}));
        nats(&server).open(&ns()).await.unwrap();
    }
}

#[tokio::test]
async fn more_replicas_than_there_are_servers_are_refused() {
    for release in Release::ALL {
        let server = release.start();
        let error = nats(&server).replicas(3).open(&ns()).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        let mend = match release {
            Release::System => "update its servers to 2.11",
            Release::Newer => "fewer with replicas()",
        };
        assert!(error.to_string().contains(mend), "{error}");
        for wrong in [0, 6, 255] {
            let error = nats(&server).replicas(wrong).open(&ns()).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
            assert!(error.to_string().contains(&format!("replicas({wrong}) is no number")), "{error}");
        }
        nats(&server).open(&ns()).await.unwrap();
        let error = nats(&server).replicas(3).open(&ns()).await.unwrap_err();
        assert!(error.to_string().contains("it has 1 of 3 replicas"), "{error}");
    }
}

#[tokio::test]
async fn an_account_without_jetstream_is_told() {
    let server = Release::Newer.with(["accounts { A { users [{ user: a, password: geheim }] } }".to_owned()]);
    let told = misconfigured(&format!("nats://a:geheim@127.0.0.1:{}", server.port())).await;
    assert!(told.contains("no JetStream for this account"), "{told}");
}

#[tokio::test]
async fn a_cached_record_of_a_lost_bucket_wins_nothing_in_the_new_one() {
    for release in Release::ALL {
        let server = release.start();
        let store = opened(nats(&server)).await;
        register(&store, "job").await;
        let lost = win(&store, "job", 1).await;
        done(server.port(), &format!("STREAM.DELETE.{STREAM}"), &json!({}));
        // Revisions begin anew, and the second handle has more of them than the first one knows.
        let other = opened(nats(&server)).await;
        register(&other, "job").await;
        let now = win(&other, "job", 2).await;
        assert!(now > lost, "tokens grow all the same");
        for seq in 3..6 {
            let answer = store.claim(&[takeover(lost, seq)]).await.remove(0);
            if let Ok(verdict) = answer {
                let lost = matches!(verdict.value, Verdict::Unregistered | Verdict::AlreadyDone(_));
                assert!(lost, "{verdict:?}");
            }
        }
        let renewed = repeated("the first handle reads the new bucket", async || {
            renew(&store, lost, Duration::from_secs(30)).await.ok()
        });
        assert_eq!(renewed.await, Renewed::Lost);
        assert_eq!(one(store.finish(&[finish("job", lost)]).await).unwrap(), Finished::Refused);
        let record = one(store.inspect(&[job("job")], 0).await).unwrap().unwrap().record;
        assert_eq!((record.token, record.attempt), (now, 1));
        assert!(keys(server.port()).iter().filter(|key| key.ends_with(".job.job")).count() == 1);
    }
}

#[tokio::test]
async fn a_job_that_is_new_to_a_lost_bucket_is_made_in_the_new_one() {
    let server = Release::Newer.start();
    let store = opened(nats(&server)).await;
    register(&store, "job").await;
    done(server.port(), &format!("STREAM.DELETE.{STREAM}"), &json!({}));
    let other = opened(nats(&server)).await;
    let made = repeated("the first handle has noticed", async || {
        one(store.register(&[anarchon_tests::calls::spec("new")]).await).ok()
    });
    assert!(matches!(made.await, Registered::Created(_)));
    let there = one(other.inspect(&[job("new")], 0).await).unwrap();
    assert!(there.is_some(), "it was made where nobody looks");
}

#[tokio::test]
async fn a_damaged_record_costs_its_own_job_alone_and_forget_mends_it() {
    let server = Release::System.start();
    let store = opened(nats(&server)).await;
    for name in ["job", "other"] {
        register(&store, name).await;
    }
    let key = key_of(server.port(), ".job.job");
    request(server.port(), &key, "no record").unwrap();
    let error = one(store.inspect(&[job("job")], 0).await).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("delete it with forget"), "{error}");
    request(server.port(), &key, r#"{"form":2}"#).unwrap();
    repeated("a newer record is told", async || {
        let error = one(store.inspect(&[job("job")], 0).await).unwrap_err().to_string();
        error
            .ends_with("a newer anarchon: its form is 2, and this program reads 1; update this program")
            .then_some(())
    })
    .await;
    let answers = store.inspect(&[job("job"), job("other")], 0).await;
    assert!(answers[0].is_err() && answers[1].is_ok());
    let claims = [claim("job", Millis(1), 1), claim("other", due(&store, "other").await, 2)];
    let answers = store.claim(&claims).await;
    assert_eq!(answers[0].as_ref().unwrap_err().kind, StoreErrorKind::Misconfigured);
    assert!(matches!(answers[1].as_ref().unwrap().value, Verdict::Awarded(_)));
    let forget = Control { job: job("job"), action: ControlAction::Forget };
    assert_eq!(one(store.control(&[forget]).await).unwrap(), Controlled::Done);
    register(&store, "job").await;
    win(&store, "job", 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_costs_its_own_job_alone() {
    let server = Release::System.start();
    let damages = damage::of_json();
    costs_its_own_job_alone(&url(server.port()), &damages, async |job, damage| {
        let key = key_of(server.port(), &format!(".job.{job}"));
        request(server.port(), &key, damage).unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_key_of_an_instance_that_is_gone_for_long_is_removed() {
    let server = Release::System.start();
    let store = opened(nats(&server)).await;
    let present = |name: &str| Announcement::Present {
        instance: instance(name),
        schedules: vec![(job("job"), schedule())],
        zones: String::new(),
        contested: Vec::new(),
    };
    for name in ["gone", "here"] {
        assert!(!store.beat(&present(name)).await.unwrap().value.known);
    }
    let gone = key_of(server.port(), ".beat.gone");
    request(server.port(), &gone, r#"{"at":0,"left":false,"zones":"","schedules":{}}"#).unwrap();
    let members = repeated("its key is away", async || {
        let members = store.beat(&present("here")).await.unwrap().value;
        (!keys(server.port()).contains(&gone)).then_some(members)
    });
    assert_eq!(members.await.instances, [instance("here")]);
    // It was frozen all the while, and comes back.
    let other = opened(nats(&server)).await;
    assert!(!other.beat(&present("gone")).await.unwrap().value.known);
    assert!(other.beat(&present("gone")).await.unwrap().value.known);
    assert!(!store.beat(&present("gone")).await.unwrap().value.instances.is_empty());
}

// ---- logins ----

async fn is_let_in(url: &str) {
    let store = NatsBackend::connect(url).unwrap();
    store.open(&ns()).await.unwrap();
    assert!(!format!("{store:?} {}", store.describe()).contains("geheim"));
    register(&store, &format!("job-{}", fastrand::u32(..))).await;
}

#[tokio::test]
async fn users_tokens_and_keys_let_in_who_has_them_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let user = KeyPair::new_user();
    let file = folder.path().join("user.nk");
    fs::write(&file, user.seed().unwrap()).unwrap();
    let other = folder.path().join("other.nk");
    fs::write(&other, KeyPair::new_user().seed().unwrap()).unwrap();
    for release in Release::ALL {
        let server = release.with(["authorization { user: me, password: \"ge:heim@\" }"]);
        let at = format!("127.0.0.1:{}", server.port());
        is_let_in(&format!("nats://me:ge%3Aheim%40@{at}")).await;
        for wrong in [format!("nats://me:geheim@{at}"), format!("nats://{at}"), format!("nats://geheim@{at}")]
        {
            assert!(misconfigured(&wrong).await.contains("does not let us in"), "{wrong}");
        }

        let server = release.with(["authorization { token: \"to/geheim\" }"]);
        let at = format!("127.0.0.1:{}", server.port());
        is_let_in(&format!("nats://to%2Fgeheim@{at}")).await;
        misconfigured(&format!("nats://geheim@{at}")).await;

        let server =
            release.with([format!("authorization {{ users: [{{ nkey: {} }}] }}", user.public_key())]);
        let at = format!("127.0.0.1:{}", server.port());
        is_let_in(&format!("nats://{at}?nkey={}", file.display())).await;
        misconfigured(&format!("nats://{at}?nkey={}", other.display())).await;
        let told = misconfigured(&format!("nats://{at}?nkey={}", folder.path().join("none").display())).await;
        assert!(told.contains("cannot be read"), "{told}");
    }
}

/// A JSON web token, as NATS has them.
fn signed(by: &KeyPair, of: &KeyPair, name: &str, nats: &Value) -> String {
    let head = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let claims = json!({
        "jti": name, "iat": 1_700_000_000, "iss": by.public_key(), "sub": of.public_key(), "name": name, "nats": nats,
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&head), part(&claims));
    let signature = by.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn credentials(file: &Path, token: &str, user: &KeyPair) {
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        user.seed().unwrap()
    );
    fs::write(file, text).unwrap();
}

#[tokio::test]
async fn credentials_of_an_account_let_in() {
    let (operator, system, account, user) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account(), KeyPair::new_user());
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let of_account = |limits: &Value| json!({"limits": limits, "default_permissions": {"pub": {}, "sub": {}}, "type": "account", "version": 2});
    let system_limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
    });
    let of_user =
        json!({"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2});
    let root = signed(
        &operator,
        &operator,
        "operator",
        &json!({"type": "operator", "version": 2, "system_account": system.public_key()}),
    );
    let lines = [
        format!("operator: {root}"),
        format!("system_account: {}", system.public_key()),
        "resolver: MEMORY".to_owned(),
        format!(
            "resolver_preload: {{ {}: {}, {}: {} }}",
            system.public_key(),
            signed(&operator, &system, "system", &of_account(&system_limits)),
            account.public_key(),
            signed(&operator, &account, "account", &of_account(&limits)),
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let (good, wrong) = (folder.path().join("good.creds"), folder.path().join("wrong.creds"));
    credentials(&good, &signed(&account, &user, "user", &of_user), &user);
    credentials(&wrong, &signed(&KeyPair::new_account(), &user, "user", &of_user), &user);
    for release in Release::ALL {
        let server = release.with(lines.clone());
        let with = |file: &Path| format!("nats://127.0.0.1:{}?creds={}", server.port(), file.display());
        is_let_in(&with(&good)).await;
        assert!(misconfigured(&with(&wrong)).await.contains("does not let us in"));
        fs::write(folder.path().join("none"), "no credentials").unwrap();
        assert!(misconfigured(&with(&folder.path().join("none"))).await.contains("is none with credentials"));
    }
}

#[tokio::test]
async fn a_user_that_may_not_do_all_is_told_what_it_needs() {
    let server = Release::Newer.with([
        "authorization { users: [{ user: me, password: geheim, permissions: { publish: { deny: \"$KV.>\" } } }] }",
    ]);
    let told = misconfigured(&format!("nats://me:geheim@127.0.0.1:{}", server.port())).await;
    assert!(
        told.contains("anarchon::guide::security") && told.contains("to publish to $KV.anarchon_"),
        "{told}"
    );
}

#[tokio::test]
async fn what_a_user_may_no_longer_do_is_one_reason_for_all_jobs_and_past_complaints_are_none() {
    let users = |publish: &str| {
        format!(
            "authorization {{ users: [{{ user: me, password: geheim, permissions: {{ publish: {publish} }} }}] }}"
        )
    };
    let server = Release::Newer.with([users("\">\"")]);
    let store =
        opened(NatsBackend::connect(&format!("nats://me:geheim@127.0.0.1:{}", server.port())).unwrap()).await;
    for name in ["job", "other"] {
        register(&store, name).await;
    }
    let configure = |server: &Server, line: &str| {
        let file = server.place().folder().join("nats.conf");
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> =
            text.lines().map(|old| if old.starts_with("authorization") { line } else { old }).collect();
        fs::write(&file, lines.join("\n")).unwrap();
        kill_process(server.pid(), Signal::HUP).unwrap();
    };
    configure(&server, &users("{ deny: \"$KV.>\" }"));
    let pause = |name| Control { job: job(name), action: ControlAction::Pause };
    let told = repeated("it is told what is forbidden", async || {
        let answers = store.control(&[pause("job"), pause("other")]).await;
        let told: Vec<String> =
            answers.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
        (told.len() == 2 && told.iter().all(|told| told.contains("publish to $KV is forbidden")))
            .then_some(told)
    })
    .await;
    assert_eq!(told[0], told[1], "one reason");
    configure(&server, &users("\">\""));
    repeated("it is let in again", async || one(store.control(&[pause("job")]).await).ok()).await;
    server.freeze();
    let error = one(store.control(&[pause("other")]).await).unwrap_err();
    assert_ne!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    server.thaw();
}

/// A bucket that is larger than what a watch brings before it waits for an answer.
async fn filled(server: &Server) {
    let admin = async_nats::ConnectOptions::with_user_and_password("admin".into(), "geheim".into());
    let admin = admin.connect(format!("127.0.0.1:{}", server.port())).await.unwrap();
    for n in 0..400 {
        let subject = format!("$KV.anarchon_tests.other.{n}");
        admin.request(subject, vec![b'x'; 10_000].into()).await.unwrap();
    }
}

/// The same users, and one more.
fn and_user(users: &str, user: &str) -> String {
    let (before, after) = users.rsplit_once(']').unwrap();
    format!("{before}{user}\n]{after}")
}

/// What the guide allows to publish to.
fn subjects(users: &str) -> Vec<&str> {
    users.split('"').filter(|text| text.starts_with('$')).collect()
}

#[tokio::test]
async fn what_the_guide_allows_is_enough_also_for_a_large_bucket() {
    let users = and_user(&grants::nats(ns().as_str()), "{ user: admin, password: geheim }");
    assert!(users.contains("\"$JS.FC."), "{users}");
    for release in Release::ALL {
        for (users, is_enough) in [(users.clone(), true), (users.replace("\"$JS.FC.", "\"other."), false)] {
            let server = release.with([users]);
            let at = |login: &str| format!("nats://{login}@127.0.0.1:{}", server.port());
            is_let_in(&at("admin:geheim")).await;
            filled(&server).await;
            let me = grants::login(&url(server.port()));
            if is_enough {
                is_let_in(&me).await;
            } else {
                assert!(misconfigured(&me).await.contains("$JS.FC.KV_"));
            }
        }
    }
}

#[tokio::test]
async fn the_user_of_the_guide_can_do_everything_in_its_namespace_and_no_more() {
    let own = Namespace::new("pay_ro.ll").unwrap();
    // As the guide says that it is written.
    let users = grants::nats("pay__ro_dll");
    let allowed = subjects(&users);
    assert!(allowed.len() > 5, "{allowed:?}");
    let but = |left_out: &str| allowed.iter().filter(|subject| **subject != left_out).collect::<Vec<_>>();
    let mut all = and_user(&users, "{ user: admin, password: geheim }");
    for (n, subject) in allowed.iter().enumerate() {
        let permissions =
            format!("publish: {{ allow: {:?} }}, subscribe: {{ allow: \"_INBOX.>\" }}", but(subject));
        all = and_user(
            &all,
            &format!("{{ user: without-{n}, password: geheim, permissions: {{ {permissions} }} }}"),
        );
    }
    let deaf = format!("publish: {{ allow: {allowed:?} }}, subscribe: {{ deny: \">\" }}");
    all = and_user(&all, &format!("{{ user: deaf, password: geheim, permissions: {{ {deaf} }} }}"));
    for release in Release::ALL {
        let server = release.with([all.clone()]);
        let of = |login: &str| {
            NatsBackend::connect(&format!("nats://{login}@127.0.0.1:{}", server.port())).unwrap()
        };
        let me = format!("{USER}:{}", grants::PASSWORD);
        // The first opens a bucket that is not there.
        let [store, other] = [of(&me), of(&me)];
        for handle in [&store, &other] {
            handle.open(&own).await.unwrap();
        }
        live(&store, &other, true).await.unwrap();

        let tried = (0..allowed.len()).map(|n| format!("without-{n}")).chain(["deaf".to_owned()]);
        let tried = tried.map(async |user| {
            let store = of(&format!("{user}:geheim"));
            let lived = match store.open(&own).await {
                Ok(_) => live(&store, &other, true).await,
                Err(error) => Err(error),
            };
            let subject =
                user.strip_prefix("without-").map_or("_INBOX.>", |n| allowed[n.parse::<usize>().unwrap()]);
            // For the first start, for what nobody has used for long, and for large buckets.
            let is_spared =
                ["CREATE.KV", "PURGE", "MSG.GET", "$JS.FC"].iter().any(|part| subject.contains(part))
                    && !subject.contains("CONSUMER");
            match lived {
                Ok(()) => assert!(is_spared, "not needed: {subject}"),
                Err(error) => {
                    assert!(!is_spared, "{subject}: {error}");
                    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{subject}: {error}");
                }
            }
        });
        join_all(tried).await;

        of("admin:geheim").open(&ns()).await.unwrap();
        let error = of(&me).open(&ns()).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_prints_a_password_a_token_or_a_key() {
    let (password, worker, marked) = (secrets::password(), env!("CARGO_BIN_EXE_worker"), [secrets::MARK]);
    let with_user =
        Release::Newer.with([format!("authorization {{ user: {USER}, password: {password:?} }}")]);
    let with_token = Release::Newer.with([format!("authorization {{ token: {password:?} }}")]);
    let user = KeyPair::new_user();
    let with_key =
        Release::Newer.with([format!("authorization {{ users: [{{ nkey: {} }}] }}", user.public_key())]);
    tokio::task::spawn_blocking(move || {
        secrets::are_kept(worker, with_user.port(), |port, password| {
            format!("nats://{USER}:{password}@127.0.0.1:{port}")
        });
        let at = |server: &Server, login: &str| format!("nats://{login}127.0.0.1:{}", server.port());
        secrets::is_let_in(worker, &at(&with_token, &format!("{}@", secrets::encoded())), &[], &marked);
        secrets::is_refused(worker, &at(&with_token, &format!("{}-wrong@", secrets::MARK)), &marked);
        let folder = tempfile::tempdir().unwrap();
        for (name, key, is_let_in) in [("good.nk", user, true), ("wrong.nk", KeyPair::new_user(), false)] {
            let (file, seed) = (folder.path().join(name), key.seed().unwrap());
            fs::write(&file, &seed).unwrap();
            let url = format!("{}?nkey={}", at(&with_key, ""), file.display());
            match is_let_in {
                true => secrets::is_let_in(worker, &url, &[], &[&seed]),
                false => secrets::is_refused(worker, &url, &[&seed]),
            }
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn connections_are_encrypted_for_who_trusts_the_server_and_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let write = |name: &str, content: &str| {
        let file = folder.path().join(name);
        fs::write(&file, content).unwrap();
        file.display().to_string()
    };
    let ca = write("ca.pem", authority.certificate());
    let me = authority.issue("me", &[]);
    let (cert, key) = (write("me.pem", &me.certificate), write("me.key", &me.key));
    for release in Release::ALL {
        let server = Server::start(Nats::new(release, [""; 0]).tls(&authority, false));
        let at = format!("localhost:{}", server.port());
        is_let_in(&format!("tls://{at}?ca={ca}")).await;
        for kind in ["tls", "nats"] {
            let told = distrusted(&format!("{kind}://{at}")).await;
            assert!(told.contains("?ca=FILE"), "{told}");
        }

        let server = Server::start(Nats::new(release, [""; 0]).tls(&authority, true));
        let at = format!("localhost:{}", server.port());
        is_let_in(&format!("tls://{at}?ca={ca}&cert={cert}&key={key}")).await;
        refused(&format!("tls://{at}?ca={ca}")).await;
    }
    let plain = Release::Newer.start();
    let told = misconfigured(&format!("tls://localhost:{}?ca={ca}", plain.port())).await;
    assert!(told.contains("speaks no TLS"), "{told}");
}

// ---- connections ----

#[tokio::test]
async fn a_server_that_is_gone_and_comes_back_has_all_and_answers_on() {
    for release in Release::ALL {
        let mut server = release.start();
        let store = opened(nats(&server)).await;
        register(&store, "job").await;
        let token = win(&store, "job", 1).await;
        server.kill();
        let error = renew(&store, token, Duration::from_secs(30)).await.unwrap_err();
        assert_ne!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        let error = one(store.inspect(&[job("job")], 0).await).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        server.restart();
        let renewed =
            repeated("it is renewed", async || renew(&store, token, Duration::from_secs(30)).await.ok());
        assert!(matches!(renewed.await, Renewed::Extended { .. }));
        let finished = one(store.finish(&[finish("job", token)]).await).unwrap();
        assert!(matches!(finished, Finished::Closed(_)), "{finished:?}");
    }
}

#[tokio::test]
async fn the_first_host_that_can_be_reached_will_do() {
    let (mut gone, server) = (Release::Newer.start(), Release::Newer.start());
    gone.kill();
    for _ in 0..5 {
        let urls = format!("nats://127.0.0.1:{},127.0.0.1:{}", gone.port(), server.port());
        opened(NatsBackend::connect(&urls).unwrap()).await;
    }
}

#[tokio::test]
async fn a_claim_that_a_hole_in_the_network_held_up_is_won_once() {
    let server = Release::System.start();
    let proxy = Proxy::to(server.port());
    let store = opened(NatsBackend::connect(&url(proxy.port())).unwrap()).await;
    register(&store, "job").await;
    let asked = claim("job", due(&store, "job").await, 1);
    proxy.set(Mode::Hole);
    let began = Instant::now();
    let error = one(store.claim(std::slice::from_ref(&asked)).await).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unknown, "{error}");
    assert!(began.elapsed() < Duration::from_secs(30), "it came to no end: {:?}", began.elapsed());
    proxy.set(Mode::Pass);
    let verdict =
        repeated("there is an answer", async || one(store.claim(std::slice::from_ref(&asked)).await).ok());
    let won = award(verdict.await);
    let direct = opened(nats(&server)).await;
    let record = one(direct.inspect(&[job("job")], 20).await).unwrap().unwrap().record;
    assert_eq!((record.token, record.attempt, record.runs), (won.token, 1, 0));
}

#[tokio::test]
async fn a_trigger_that_may_have_happened_is_told_as_unknown_and_never_doubled() {
    let server = Release::System.start();
    let proxy = Proxy::to(server.port());
    let store = opened(NatsBackend::connect(&url(proxy.port())).unwrap()).await;
    register(&store, "job").await;
    proxy.set(Mode::Hole);
    let order = Control { job: job("job"), action: ControlAction::Trigger };
    let error = one(store.control(std::slice::from_ref(&order)).await).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unknown, "{error}");
    proxy.set(Mode::Pass);
    let direct = opened(nats(&server)).await;
    repeated("what was held up has arrived", async || one(store.inspect(&[job("job")], 0).await).ok()).await;
    let record = one(direct.inspect(&[job("job")], 0).await).unwrap().unwrap().record;
    assert!(record.manual_asked <= 1, "{record:?}");
}

#[tokio::test]
async fn a_watch_whose_consumer_is_gone_tells_nothing_old() {
    for release in Release::ALL {
        let server = release.start();
        let (store, other) = (opened(nats(&server)).await, opened(nats(&server)).await);
        register(&store, "job").await;
        let names = done(server.port(), &format!("CONSUMER.NAMES.{STREAM}"), &json!({}));
        for name in names["consumers"].as_array().unwrap() {
            let name = name.as_str().unwrap();
            done(server.port(), &format!("CONSUMER.DELETE.{STREAM}.{name}"), &json!({}));
        }
        // Without a watch of its own, the first handle must not say what was true before.
        let token = repeated("the other handle wins", async || {
            let at = one(other.inspect(&[job("job")], 0).await)
                .ok()??
                .record
                .decided
                .plus(Duration::from_millis(1));
            match one(other.claim(&[claim("job", at, 1)]).await).ok()? {
                Verdict::Awarded(award) => Some(award.token),
                _ => None,
            }
        })
        .await;
        let seen =
            repeated("the first handle answers", async || one(store.inspect(&[job("job")], 0).await).ok());
        let record = seen.await.unwrap().record;
        assert_eq!((record.token, record.status), (token, Status::Running));
    }
}

#[tokio::test]
async fn a_client_of_the_application_is_used_as_it_is_and_comes_back() {
    let mut server = Release::Newer.start();
    let client = async_nats::connect(url(server.port())).await.unwrap();
    let store = opened(NatsBackend::from_client(client)).await;
    assert!(store.describe().starts_with("nats://"), "{}", store.describe());
    register(&store, "job").await;
    let token = win(&store, "job", 1).await;
    server.restart();
    let renewed =
        repeated("it is renewed", async || renew(&store, token, Duration::from_secs(30)).await.ok());
    assert!(matches!(renewed.await, Renewed::Extended { .. }));
}

#[tokio::test]
async fn what_was_read_before_a_disconnect_is_read_anew() {
    let mut server = Release::System.start();
    let store = opened(nats(&server)).await;
    register(&store, "job").await;
    let token = win(&store, "job", 1).await;
    server.restart_empty();
    let verdict = repeated("it answers", async || one(store.claim(&[takeover(token, 2)]).await).ok());
    assert_eq!(verdict.await, Verdict::Unregistered);
    assert_eq!(renew(&store, token, Duration::from_secs(30)).await.unwrap(), Renewed::Lost);
}

// ---- leases ----

#[tokio::test]
async fn who_has_just_started_takes_over_a_lease_that_is_over_for_two_seconds_at_once() {
    let server = Release::System.start();
    let holder = opened(nats(&server)).await;
    register(&holder, "job").await;
    let lease = Duration::from_secs(1);
    let asked = Claim { lease, ..claim("job", due(&holder, "job").await, 1) };
    let lost = award(one(holder.claim(&[asked]).await).unwrap());
    // It does not look at the record again: nobody watches.
    let clock = opened(nats(&server)).await;
    register(&clock, "clock").await;
    let limit = lost.until.plus(Duration::from_millis(2_500));
    repeated("the lease is over for long", async || {
        let now = clock.inspect(&[job("clock")], 0).await.remove(0).ok()?.now;
        (now.millis() > limit).then_some(())
    })
    .await;
    let starter = opened(nats(&server)).await;
    let next = award(one(starter.claim(&[takeover(lost.token, 2)]).await).unwrap());
    assert_eq!((next.attempt, next.crashes), (2, 1));
    let history = one(starter.inspect(&[job("job")], 5).await).unwrap().unwrap().history;
    assert_eq!(history[0].outcome, RunOutcome::Lost);
}

#[tokio::test]
async fn a_claim_that_lay_in_a_frozen_server_holds_up_no_newer_occurrence() {
    let server = Release::System.start();
    let (store, other) = (opened(nats(&server)).await, opened(nats(&server)).await);
    register(&store, "job").await;
    let at = due(&store, "job").await;
    server.freeze();
    let frozen = Instant::now();
    let expires = at.plus(Duration::from_secs(1));
    let error = one(store.claim(&[Claim { expires, ..claim("job", at, 1) }]).await).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unknown, "{error}");
    tokio::time::sleep_until(frozen + Duration::from_secs(4)).await;
    server.thaw();
    repeated("the claim has arrived, or its connection is gone", async || {
        let read = other.inspect(&[job("job")], 0).await.remove(0).ok()?;
        (read.now.millis() > expires.plus(Duration::from_secs(1))).then_some(())
    })
    .await;
    let newer = due(&other, "job").await;
    let won = award(one(other.claim(&[claim("job", newer, 2)]).await).unwrap());
    assert_eq!((won.occurrence, won.attempt), (Occurrence::Planned(newer), 1));
}

#[tokio::test]
async fn what_somebody_purged_is_missed_at_the_next_write_and_begins_anew() {
    for release in Release::ALL {
        let server = release.start();
        let store = opened(nats(&server)).await;
        for all in [true, false] {
            // On a busy machine the watch may end just then, and the next one begins with what is left.
            while !a_purge_is_missed(&server, &store, all).await {}
        }
    }
}

/// Whether it could be tried.
async fn a_purge_is_missed(server: &Server, store: &NatsBackend, all: bool) -> bool {
    for name in ["job", "other"] {
        register(store, name).await;
    }
    win(store, "job", 1).await;
    let which = if all { json!({}) } else { json!({"filter": key_of(server.port(), ".job.job")}) };
    let asked = || done(server.port(), "INFO", &json!({}))["api"]["total"].as_u64().unwrap();
    done(server.port(), &format!("STREAM.PURGE.{STREAM}"), &which);
    let has_watch = store.inspect(&[job("job")], 0).await.remove(0).is_ok();
    if has_watch {
        let (at, before) = (due(store, "job").await, asked());
        let error = one(store.claim(&[claim("job", at, 2)]).await).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("purged the record of job \"job\""), "{error}");
        assert!(asked() - before < 10, "it asked {} times", asked() - before);
        assert_eq!(one(store.claim(&[claim("job", at, 2)]).await).unwrap(), Verdict::Unregistered);
        register(store, "job").await;
        win(store, "job", 3).await;
    }
    let forget = |name| Control { job: job(name), action: ControlAction::Forget };
    let forgotten = store.control(&[forget("job"), forget("other")]).await;
    assert!(forgotten.iter().all(Result::is_ok), "{forgotten:?}");
    has_watch
}

#[tokio::test]
async fn hints_tell_what_waits_for_a_run_and_no_renewals() {
    use futures_util::StreamExt as _;
    let server = Release::Newer.start();
    let (store, listener) = (opened(nats(&server)).await, opened(nats(&server)).await);
    for name in ["job", "other"] {
        register(&store, name).await;
    }
    let token = win(&store, "job", 1).await;
    // All that was before is read.
    listener.inspect(&[job("job")], 0).await.remove(0).unwrap();
    let mut hints = listener.changes().unwrap();
    for _ in 0..3 {
        renew(&store, token, Duration::from_secs(30)).await.unwrap();
    }
    let trigger = Control { job: job("other"), action: ControlAction::Trigger };
    one(store.control(&[trigger]).await).unwrap();
    assert_eq!(timeout(PATIENCE, hints.next()).await.unwrap(), Some(job("other")));
    let release = anarchon::protocol::Finish { outcome: Outcome::Released, ..finish("job", token) };
    one(store.finish(&[release]).await).unwrap();
    assert_eq!(timeout(PATIENCE, hints.next()).await.unwrap(), Some(job("job")));
}

// ---- a cluster ----

#[tokio::test]
async fn a_cluster_whose_replicas_would_let_two_claims_win_keeps_one() {
    let cluster = Cluster::start(Release::System);
    let store = || NatsBackend::connect(&cluster.url()).unwrap();
    let told = store().open(&ns()).await.unwrap();
    assert_eq!(told.durability, Durability::Periodic);
    let port = cluster.nodes[0].port();
    let mut config = done(port, &format!("STREAM.INFO.{STREAM}"), &json!({}))["config"].clone();
    assert_eq!(config["num_replicas"], json!(1));
    config["num_replicas"] = json!(3);
    // The answer may take longer than it is waited for.
    let _ = request(port, &format!("$JS.API.STREAM.UPDATE.{STREAM}"), &config.to_string());
    until_so("it has three replicas", || {
        let info = request(port, &format!("$JS.API.STREAM.INFO.{STREAM}"), "{}").unwrap_or_default();
        info.contains("\"num_replicas\":3")
    });
    let error = store().open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    assert!(error.to_string().contains("nats stream edit KV_anarchon_tests --replicas 1"), "{error}");
    let _ = request(port, &format!("$JS.API.STREAM.DELETE.{STREAM}"), "{}");
    until_so("it is away", || {
        let info = request(port, &format!("$JS.API.STREAM.INFO.{STREAM}"), "{}").unwrap_or_default();
        info.contains("stream not found")
    });
    let error = store().replicas(3).open(&ns()).await.unwrap_err();
    assert!(error.to_string().contains("update its servers to 2.11"), "{error}");
}

#[tokio::test]
async fn a_cluster_keeps_three_replicas_and_a_lease_outlives_the_death_of_its_leader() {
    let mut cluster = Cluster::start(Release::Newer);
    let store = NatsBackend::connect(&cluster.url()).unwrap();
    let told = store.open(&ns()).await.unwrap();
    assert_eq!((told.durability, told.loses_on_failover), (Durability::Replicated, false));
    assert_eq!(told.shortest_lease, Duration::from_secs(15));
    register(&store, "job").await;
    let token = win(&store, "job", 1).await;
    let leader = until("the stream has a leader", || cluster.leader(STREAM));
    cluster.nodes[leader].kill();
    let killed = Instant::now();
    let renewed =
        repeated("it is renewed", async || renew(&store, token, Duration::from_secs(30)).await.ok());
    assert!(matches!(renewed.await, Renewed::Extended { .. }));
    eprintln!("renewed {:?} after the death of the leader", killed.elapsed());
    assert!(killed.elapsed() < Duration::from_secs(15), "it took {:?}", killed.elapsed());
    let seen = repeated("all is there", async || one(store.inspect(&[job("job")], 0).await).ok());
    let record = seen.await.unwrap().record;
    assert_eq!((record.token, record.attempt), (token, 1));
    cluster.nodes[leader].restart();
    cluster.wait_until_whole();
    let finished = repeated("it is closed", async || one(store.finish(&[finish("job", token)]).await).ok());
    assert!(matches!(finished.await, Finished::Closed(_)));
}

/// Several at once, each through a handle of its own, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn of_simultaneous_claims_one_wins_on_every_server() {
    let single = Release::System.start();
    let (older, newer) = (Cluster::start(Release::System), Cluster::start(Release::Newer));
    for url in [url(single.port()), older.url(), newer.url()] {
        let mut stores = Vec::new();
        for _ in 0..4 {
            stores.push(opened(NatsBackend::connect(&url).unwrap()).await);
        }
        register(&stores[0], "job").await;
        for round in 0..100 {
            let at = due(&stores[0], "job").await;
            for store in &stores {
                // Their clocks are estimated.
                repeated("it is due", async || {
                    let now = store.inspect(&[job("job")], 0).await.remove(0).ok()?.now;
                    (now.millis() >= at).then_some(())
                })
                .await;
            }
            let claims = stores.iter().enumerate().map(|(n, store)| async move {
                let asked = [claim("job", at, 10 * round + n as u64)];
                one(store.claim(&asked).await).unwrap()
            });
            let verdicts = futures_util::future::join_all(claims).await;
            let won: Vec<_> = verdicts.iter().filter(|one| matches!(one, Verdict::Awarded(_))).collect();
            assert_eq!(won.len(), 1, "{url}, round {round}: {verdicts:?}");
            let Verdict::Awarded(award) = won[0] else { unreachable!() };
            one(stores[0].finish(&[finish("job", award.token)]).await).unwrap();
        }
    }
}
