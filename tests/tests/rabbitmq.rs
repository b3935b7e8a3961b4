//! What is special to RabbitMQ: births, connections and channels that end, alarms, logins, TLS, tokens that are lost.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anarchon::{
    RabbitMqBackend,
    protocol::{
        Claim, Control, ControlAction, Controlled, Finished, JobName, Millis, Namespace, Outcome, Registered,
        Renewal, Renewed, Status, Token, Verdict, What,
    },
    store::{Durability, LeaseScope, Snapshot, Store, StoreError, StoreErrorKind},
};
use anarchon_tests::{
    calls::{award, claim, due, finish, job, live, ns, one, register, spec, specs, win},
    certificates::Authority,
    damage::{self, costs_its_own_job_alone},
    grants::{self, USER},
    history::Run,
    process::Orders,
    secrets,
    servers::{
        port::Port,
        rabbitmq::{Broker, RabbitMq, url},
    },
    site::{Outage, Site, TestStore},
    wait::{repeated, until_so},
};
use lapin::{
    Connection, ConnectionProperties,
    options::{BasicGetOptions, BasicNackOptions},
};
use tokio::time::timeout;

fn backend(broker: &Broker) -> RabbitMqBackend {
    RabbitMqBackend::connect(&url(broker.server.port())).unwrap()
}

async fn opened(store: RabbitMqBackend) -> RabbitMqBackend {
    store.open(&ns()).await.unwrap();
    store
}

async fn refused(store: &dyn Store) -> StoreError {
    store.open(&ns()).await.unwrap_err()
}

async fn renew(store: &dyn Store, name: &str, token: Token) -> Result<Renewed, StoreError> {
    let renewal = Renewal { job: job(name), token, lease: Duration::from_secs(600) };
    one(store.renew(&[renewal]).await)
}

async fn snapshot(store: &dyn Store, name: &str) -> Result<Option<Snapshot>, StoreError> {
    one(store.inspect(&[job(name)], 20).await)
}

async fn order(store: &dyn Store, name: &str, action: ControlAction) -> Result<Controlled, StoreError> {
    one(store.control(&[Control { job: job(name), action }]).await)
}

/// Extends a lease as soon as the store can.
async fn extended(store: &dyn Store, name: &str, token: Token) {
    let renewed = repeated("the renewal is answered", async || renew(store, name, token).await.ok()).await;
    assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
}

/// A claim for longer than any operator's command takes on a busy machine.
fn long_claim(name: &str, at: Millis, seq: u64) -> Claim {
    Claim { lease: Duration::from_secs(600), ..claim(name, at, seq) }
}

/// Wins a run with a lease that a test need not hurry for.
async fn win_for_long(store: &dyn Store, name: &str, seq: u64) -> Token {
    let at = due(store, name).await;
    award(one(store.claim(&[long_claim(name, at, seq)]).await).unwrap()).token
}

/// The names and messages of all queues.
fn queues(broker: &Broker, column: &str) -> Vec<(String, String)> {
    let told = broker.ctl(&["list_queues", "--silent", "name", column]);
    let line = |line: &str| line.split_once('\t').map(|(name, value)| (name.to_owned(), value.to_owned()));
    told.lines().filter_map(line).collect()
}

/// Ends all connections, as an operator does.
fn close_connections(broker: &Broker) {
    let told = broker.ctl(&["list_connections", "--silent", "pid"]);
    for pid in told.lines().filter(|line| line.starts_with('<')) {
        broker.ctl(&["close_connection", pid, "an operator ends it"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_that_make_a_job_at_once_one_does_and_there_is_one_token() {
    let broker = Broker::start();
    for round in 0..5 {
        let name = format!("job-{round}");
        let births: Vec<_> = (0..20)
            .map(|_| {
                let (store, name) = (backend(&broker), name.clone());
                tokio::spawn(async move {
                    store.open(&ns()).await.unwrap();
                    one(store.register(&[spec(&name)]).await).unwrap()
                })
            })
            .collect();
        let mut created = 0;
        for birth in births {
            match birth.await.unwrap() {
                Registered::Created(_) => created += 1,
                Registered::InForce(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(created, 1, "of {name}");
    }
    let mut told = queues(&broker, "messages");
    told.sort();
    let want: Vec<_> = (0..5)
        .flat_map(|n| {
            let queue = format!("anarchon/tests/job-{n}");
            [(queue.clone(), "1".to_owned()), (format!("{queue}:mark"), "0".to_owned())]
        })
        .collect();
    assert_eq!(told, want);
}

/// A broker that nobody takes away.
#[derive(Debug)]
struct Reached(String);

impl TestStore for Reached {
    fn url(&self) -> String {
        self.0.clone()
    }

    fn stop(&mut self, _how: Outage) {
        unreachable!("its test does not stop it");
    }

    fn resume(&mut self) {
        unreachable!("its test does not stop it");
    }
}

#[test]
fn twenty_processes_that_start_at_once_make_each_job_once_and_run_it_once() {
    let broker = Broker::start();
    let store = Reached(url(broker.server.port()));
    let site = Site::new(Path::new(env!("CARGO_BIN_EXE_worker")), |_| Box::new(store));
    let jobs: Vec<String> = (0..5).map(|n| format!("job-{n}")).collect();
    let orders = Orders::new(jobs.iter().map(|job| format!("{job},every=3s,run=100ms")));
    let workers = site.start_all(20, &orders);
    for job in &jobs {
        site.run(job, "has ended", Run::is_done);
    }
    drop(workers);
    site.verify();
    until_so("each job has one token", || {
        let told = queues(&broker, "messages");
        let tokens: Vec<_> = told.iter().filter(|(name, _)| !name.ends_with(":mark")).collect();
        tokens.len() == jobs.len() && tokens.iter().all(|(_, messages)| messages == "1")
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_birth_that_broke_off_is_done_anew() {
    let broker = Broker::start();
    let store = opened(backend(&broker)).await;
    register(&store, "job").await;
    let other = raw(&broker).await;
    let channel = other.create_channel().await.unwrap();
    channel.queue_delete("anarchon/tests/job:mark".into(), Default::default()).await.unwrap();
    let fresh = opened(backend(&broker)).await;
    assert_eq!(snapshot(&fresh, "job").await.unwrap(), None, "nobody uses a token without a mark");
    let registered = one(fresh.register(&[spec("job")]).await).unwrap();
    assert!(matches!(registered, Registered::Created(_)), "{registered:?}");
    win(&fresh, "job", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_birth_that_broke_off_before_its_token_is_done_anew_by_who_knew_the_job() {
    let broker = Broker::start();
    let store = opened(backend(&broker)).await;
    register(&store, "job").await;
    let other = raw(&broker).await;
    let channel = other.create_channel().await.unwrap();
    // Forgotten by somebody, whose birth ended with the queue.
    channel.queue_delete("anarchon/tests/job:mark".into(), Default::default()).await.unwrap();
    channel.queue_purge("anarchon/tests/job".into(), Default::default()).await.unwrap();
    assert_eq!(snapshot(&store, "job").await.unwrap(), None);
    let registered = one(store.register(&[spec("job")]).await).unwrap();
    assert!(matches!(registered, Registered::Created(_)), "{registered:?}");
    win(&store, "job", 1).await;
}

async fn raw(broker: &Broker) -> Connection {
    let url = format!("amqp://127.0.0.1:{}", broker.server.port());
    Connection::connect(&url, ConnectionProperties::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_keep_a_run_beyond_the_consumer_timeout() {
    let broker = RabbitMq::new(["consumer_timeout = 6000"]).start();
    // Looked after once a second instead of once a minute.
    broker.ctl(&["eval", "application:set_env(rabbit, channel_tick_interval, 1000)."]);
    let shared = Arc::new(opened(backend(&broker)).await);
    let store = &*shared;
    register(store, "kept").await;
    register(store, "left").await;
    // The end of a lease gives its token back as well.
    let (kept, left) = (win(store, "kept", 1).await, win_for_long(store, "left", 2).await);
    // By then the broker has taken away what was not renewed: a lease goes on, and nobody has its token.
    let holder = Arc::clone(&shared);
    let renewing = tokio::spawn(async move {
        loop {
            if let Ok(renewed) = renew(&*holder, "kept", kept).await {
                assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    repeated("the token of the run without renewals is back", async || {
        assert!(!renewing.is_finished(), "the run that is renewed was lost");
        let told = queues(&broker, "messages_ready");
        told.contains(&("anarchon/tests/left".to_owned(), "1".to_owned())).then_some(())
    })
    .await;
    assert!(
        broker.server.place().log().contains("delivery acknowledgement on channel"),
        "the time-out did not act"
    );
    let told = queues(&broker, "messages_ready");
    assert!(told.contains(&("anarchon/tests/kept".to_owned(), "0".to_owned())), "{told:?}");
    renewing.abort();
    // And it is had again: nobody may take it before its lease is over.
    extended(store, "left", left).await;
    for (name, token) in [("kept", kept), ("left", left)] {
        assert!(matches!(one(store.finish(&[finish(name, token)]).await).unwrap(), Finished::Closed(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_connection_an_operator_closes_goes_on_and_nobody_takes_it_over() {
    let broker = Broker::start();
    let (store, other) = (opened(backend(&broker)).await, opened(backend(&broker)).await);
    register(&store, "job").await;
    let token = win_for_long(&store, "job", 1).await;
    let at = due(&other, "job").await;
    close_connections(&broker);
    let takeover = Claim { what: What::Takeover { token, observed: None }, ..claim("job", at, 2) };
    let verdict = repeated("the other one is answered", async || {
        one(other.claim(std::slice::from_ref(&takeover)).await).ok()
    })
    .await;
    assert!(matches!(verdict, Verdict::Held(_)), "the handler still runs: {verdict:?}");
    extended(&store, "job", token).await;
    let finished = one(store.finish(&[finish("job", token)]).await).unwrap();
    assert!(matches!(finished, Finished::Closed(_)), "{finished:?}");
    assert_eq!(snapshot(&other, "job").await.unwrap().unwrap().record.attempt, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_ends_takes_no_other_run_along() {
    let broker = Broker::start();
    let store = opened(backend(&broker)).await;
    let names: Vec<String> = (0..3).map(|n| format!("job-{n}")).collect();
    let mut tokens = Vec::new();
    for (seq, name) in (1..).zip(&names) {
        register(&store, name).await;
        tokens.push(win(&store, name, seq).await);
    }
    // Whoever deletes a queue ends its consumer.
    let other = raw(&broker).await;
    let channel = other.create_channel().await.unwrap();
    channel.queue_delete("anarchon/tests/job-1".into(), Default::default()).await.unwrap();
    assert!(renew(&store, "job-1", tokens[1]).await.is_err());
    for n in [0, 2] {
        extended(&store, &names[n], tokens[n]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_is_told_and_over_when_it_is_over() {
    let broker = Broker::start();
    let store = opened(backend(&broker)).await;
    for (name, alarm, end) in [
        (
            "memory",
            &["set_vm_memory_high_watermark", "absolute", "1"][..],
            &["set_vm_memory_high_watermark", "0.4"][..],
        ),
        ("disk", &["set_disk_free_limit", "100000GB"], &["set_disk_free_limit", "1MB"]),
    ] {
        register(&store, name).await;
        let token = win(&store, name, 1).await;
        broker.ctl(alarm);
        let told = repeated("the alarm is told", async || {
            let error = renew(&store, name, token).await.err()?;
            // What is on its way when it begins may have arrived.
            (error.kind == StoreErrorKind::Unavailable).then_some(error)
        })
        .await;
        assert!(told.to_string().contains("has run low"), "{told}");
        assert!(told.to_string().contains(name), "{told}");
        broker.ctl(end);
        extended(&store, name, token).await;
    }
}

/// How many messages were sent to the broker since it started, whatever became of them.
fn received(broker: &Broker) -> u64 {
    let counters = "maps:get([{protocol,amqp091}], rabbit_global_counters:overview())";
    let told = broker.ctl(&["eval", &format!("maps:get(messages_received_total, {counters}).")]);
    told.trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_nothing_sends_no_message() {
    let broker = Broker::start();
    let (store, other) = (opened(backend(&broker)).await, opened(backend(&broker)).await);
    register(&store, "job").await;
    // Both have seen the record.
    let at = due(&store, "job").await.max(due(&other, "job").await);
    let claimed = long_claim("job", at, 1);
    let token = award(one(store.claim(std::slice::from_ref(&claimed)).await).unwrap()).token;
    let takeover = Claim { what: What::Takeover { token, observed: None }, ..claim("job", at, 2) };
    let stale = Token(token.0 - 1);

    let before = received(&broker);
    assert!(before > 0, "what it counts is not what is sent");
    for _ in 0..5 {
        // While it runs, where it runs and elsewhere.
        for holder in [&store, &other] {
            // Elsewhere it is one that nobody there has seen.
            let verdict = one(holder.claim(std::slice::from_ref(&takeover)).await);
            assert!(matches!(verdict, Ok(Verdict::Held(_) | Verdict::AlreadyDone(_))), "{verdict:?}");
            assert_eq!(renew(holder, "job", stale).await, Ok(Renewed::Lost));
            assert_eq!(one(holder.finish(&[finish("job", stale)]).await), Ok(Finished::Refused));
            assert!(snapshot(holder, "job").await.unwrap().is_some());
            assert!(matches!(one(holder.register(&[spec("job")]).await), Ok(Registered::InForce(_))));
        }
        let repeated = one(store.claim(std::slice::from_ref(&claimed)).await);
        assert!(matches!(repeated, Ok(Verdict::Awarded(_))), "{repeated:?}");
    }
    assert_eq!(received(&broker), before);

    extended(&store, "job", token).await;
    let closed = one(store.finish(&[finish("job", token)]).await);
    assert!(matches!(closed, Ok(Finished::Closed(_))), "{closed:?}");
    assert_eq!(received(&broker), before + 2, "one message a change");
    for _ in 0..5 {
        for handle in [&store, &other] {
            let late = claim("job", at, 3);
            let verdict = one(handle.claim(&[late]).await);
            assert!(matches!(verdict, Ok(Verdict::AlreadyDecided(_))), "{verdict:?}");
            let verdict = one(handle.claim(std::slice::from_ref(&takeover)).await);
            assert!(matches!(verdict, Ok(Verdict::AlreadyDone(_))), "{verdict:?}");
            assert_eq!(renew(handle, "job", token).await, Ok(Renewed::Lost));
            assert!(matches!(one(handle.finish(&[finish("job", token)]).await), Ok(Finished::Closed(_))));
            assert_eq!(order(handle, "job", ControlAction::Cancel(token)).await, Ok(Controlled::NoSuchRun));
        }
    }
    assert_eq!(received(&broker), before + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_somebody_took_is_told_with_its_mend_and_never_made_anew() {
    let broker = Broker::start();
    let store = backend(&broker);
    // The shortest lease: what a frozen process may have is missing for a shorter time.
    store.shortest_lease(Duration::from_secs(5));
    let store = opened(store).await;
    register(&store, "job").await;
    let other = raw(&broker).await;
    let channel = other.create_channel().await.unwrap();
    let taken =
        channel.basic_get("anarchon/tests/job".into(), BasicGetOptions { no_ack: true }).await.unwrap();
    assert!(taken.is_some());
    let error = snapshot(&store, "job").await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "somebody may look at it: {error}");
    let error = repeated("the loss is told", async || {
        snapshot(&store, "job").await.err().filter(|error| error.kind == StoreErrorKind::Misconfigured)
    })
    .await;
    assert!(error.to_string().contains("forget the job"), "{error}");
    let error = one(store.register(&[spec("job")]).await).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    assert_eq!(order(&store, "job", ControlAction::Forget).await.unwrap(), Controlled::Done);
    let registered = one(store.register(&[spec("job")]).await).unwrap();
    assert!(matches!(registered, Registered::Created(_)), "{registered:?}");
    win(&store, "job", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_token_cannot_be_had_does_not_hold_up_the_others() {
    let broker = Broker::start();
    let store = opened(backend(&broker)).await;
    for answer in store.register(&specs(20)).await {
        answer.unwrap();
    }
    let at = due(&store, "job-0").await;
    let other = raw(&broker).await;
    let channel = other.create_channel().await.unwrap();
    channel.basic_get("anarchon/tests/job-7".into(), BasicGetOptions::default()).await.unwrap().unwrap();
    let claims: Vec<_> = (0..20).map(|n| claim(&format!("job-{n}"), at, n)).collect();
    // Nobody waits longer for the claims of a usual lease.
    let verdicts = timeout(Duration::from_secs(2), store.claim(&claims)).await.expect("answers in time");
    for (n, verdict) in verdicts.into_iter().enumerate() {
        match verdict {
            Ok(verdict) if n != 7 => _ = award(verdict.value),
            Err(error) if n == 7 => assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}"),
            other => panic!("job-{n}: {other:?}"),
        }
    }
    drop(channel);
    let verdict = repeated("its token is back", async || one(store.claim(&claims[7..8]).await).ok()).await;
    award(verdict);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_somebody_deleted_is_told_at_once_and_can_be_forgotten() {
    let broker = Broker::start();
    let store = opened(backend(&broker)).await;
    register(&store, "job").await;
    let other = raw(&broker).await;
    let channel = other.create_channel().await.unwrap();
    channel.queue_delete("anarchon/tests/job".into(), Default::default()).await.unwrap();
    let closed = || broker.server.place().log().matches("channel exception not_found").count();
    for _ in 0..20 {
        let error = snapshot(&store, "job").await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("is gone; look who deleted it, then forget the job"), "{error}");
    }
    assert!((1..=8).contains(&closed()), "each look ends a channel: {}", closed());
    assert_eq!(order(&store, "job", ControlAction::Forget).await.unwrap(), Controlled::Done);
    assert!(matches!(one(store.register(&[spec("job")]).await).unwrap(), Registered::Created(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_message_beside_the_record_is_told_before_anything_is_awarded() {
    let broker = Broker::start();
    for kind in ["classic", "quorum"] {
        let store = format!("{}?queues={kind}", url(broker.server.port()));
        let store = opened(RabbitMqBackend::connect(&store).unwrap()).await;
        register(&store, kind).await;
        let at = due(&store, kind).await;
        let other = raw(&broker).await;
        let channel = other.create_channel().await.unwrap();
        let queue = format!("anarchon/tests/{kind}");
        let record = channel.basic_get((&*queue).into(), BasicGetOptions::default()).await.unwrap().unwrap();
        let copy = &record.delivery.data;
        channel
            .basic_publish("".into(), (&*queue).into(), Default::default(), copy, Default::default())
            .await
            .unwrap();
        record.acker.nack(BasicNackOptions { requeue: true, multiple: false }).await.unwrap();
        let both = (queue, "2".to_owned());
        repeated("both are there", async || queues(&broker, "messages_ready").contains(&both).then_some(()))
            .await;
        let error = repeated("it is told", async || {
            let error = one(store.claim(&[claim(kind, at, 1)]).await).unwrap_err();
            (error.kind == StoreErrorKind::Misconfigured).then_some(error)
        })
        .await;
        assert!(error.to_string().contains("holds 2 messages"), "{error}");
        assert_eq!(order(&store, kind, ControlAction::Forget).await.unwrap(), Controlled::Done);
        register(&store, kind).await;
        win(&store, kind, 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_token_makes_no_second_run_beside_the_one_that_has_the_record() {
    let broker = Broker::start();
    let kind = "classic";
    let store = url(broker.server.port());
    let store = opened(RabbitMqBackend::connect(&store).unwrap()).await;
    register(&store, kind).await;
    let at = due(&store, kind).await;
    // Another run, which has the record while the copy alone is in the queue.
    let other = raw(&broker).await;
    let channel = other.create_channel().await.unwrap();
    let (queue, mark) = (format!("anarchon/tests/{kind}"), format!("anarchon/tests/{kind}:mark"));
    let record = channel.basic_get((&*queue).into(), BasicGetOptions::default()).await.unwrap().unwrap();
    let sign = channel
        .basic_consume((&*mark).into(), "".into(), Default::default(), Default::default())
        .await
        .unwrap();
    let copy = &record.delivery.data;
    channel.tx_select().await.unwrap();
    channel
        .basic_publish("".into(), (&*queue).into(), Default::default(), copy, Default::default())
        .await
        .unwrap();
    channel.tx_commit().await.unwrap();
    let error = one(store.claim(&[long_claim(kind, at, 1)]).await).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unknown, "{error}");
    assert!(error.to_string().contains("another run of job"), "{error}");
    // Once the other run is gone both records are seen, and told.
    drop(sign);
    other.close(200, "the other run ends".into()).await.unwrap();
    let both = (queue, "2".to_owned());
    repeated("both are there", async || queues(&broker, "messages_ready").contains(&both).then_some(()))
        .await;
    let error = one(store.claim(&[long_claim(kind, at, 1)]).await).unwrap_err();
    assert!(error.to_string().contains("holds 2 messages"), "{error}");
    assert_eq!(order(&store, kind, ControlAction::Forget).await.unwrap(), Controlled::Done);
    register(&store, kind).await;
    win(&store, kind, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_somebody_else_wrote_is_told_and_can_be_forgotten() {
    let broker = Broker::start();
    let store = opened(backend(&broker)).await;
    register(&store, "job").await;
    let other = raw(&broker).await;
    let channel = other.create_channel().await.unwrap();
    let queue = "anarchon/tests/job";
    channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await.unwrap().unwrap();
    channel
        .basic_publish("".into(), queue.into(), Default::default(), b"hello", Default::default())
        .await
        .unwrap();
    let error = repeated("it is told", async || {
        snapshot(&store, "job").await.err().filter(|error| error.kind == StoreErrorKind::Misconfigured)
    })
    .await;
    assert!(error.to_string().contains("delete it with forget"), "{error}");
    repeated("it is back in its queue", async || {
        channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await.unwrap()
    })
    .await;
    let newer = br#"{"form":2}"#;
    channel
        .basic_publish("".into(), queue.into(), Default::default(), newer, Default::default())
        .await
        .unwrap();
    repeated("a newer record is told", async || {
        let error = snapshot(&store, "job").await.err()?.to_string();
        error
            .ends_with("a newer anarchon: its form is 2, and this program reads 1; update this program")
            .then_some(())
    })
    .await;
    assert_eq!(order(&store, "job", ControlAction::Forget).await.unwrap(), Controlled::Done);
    assert!(matches!(one(store.register(&[spec("job")]).await).unwrap(), Registered::Created(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_costs_its_own_job_alone() {
    let broker = Broker::start();
    let other = raw(&broker).await;
    let channel = other.create_channel().await.unwrap();
    let damages = damage::of_json();
    costs_its_own_job_alone(&url(broker.server.port()), &damages, async |job, damage| {
        let queue = format!("anarchon/{}/{job}", ns());
        repeated("nobody runs it", async || {
            channel.basic_get((&*queue).into(), BasicGetOptions { no_ack: true }).await.unwrap()
        })
        .await;
        let body = damage.as_bytes();
        channel
            .basic_publish("".into(), (&*queue).into(), Default::default(), body, Default::default())
            .await
            .unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_waits_for_the_end_of_a_run_elsewhere() {
    let broker = Broker::start();
    let (store, operator) = (opened(backend(&broker)).await, opened(backend(&broker)).await);
    register(&store, "job").await;
    let token = win(&store, "job", 1).await;
    let waiting = tokio::spawn(async move {
        let triggered = order(&operator, "job", ControlAction::Trigger).await;
        (triggered, operator)
    });
    extended(&store, "job", token).await;
    assert!(!waiting.is_finished());
    assert!(matches!(one(store.finish(&[finish("job", token)]).await).unwrap(), Finished::Closed(_)));
    let (triggered, operator) = waiting.await.unwrap();
    assert_eq!(triggered.unwrap(), Controlled::Done);
    assert_eq!(snapshot(&store, "job").await.unwrap().unwrap().record.manual_asked, 1);
    // One that goes on for longer than an operator waits.
    win(&store, "job", 2).await;
    let error = order(&operator, "job", ControlAction::Pause).await.unwrap_err();
    assert!(
        error.kind == StoreErrorKind::Unavailable && error.to_string().contains("try again then"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_starts_during_a_run_elsewhere_is_told_of_no_other_schedule_than_its_own() {
    let broker = Broker::start();
    let (store, newcomer) = (opened(backend(&broker)).await, opened(backend(&broker)).await);
    register(&store, "job").await;
    win_for_long(&store, "job", 1).await;
    let spec = spec("job");
    let registered = one(newcomer.register(std::slice::from_ref(&spec)).await).unwrap();
    assert!(matches!(registered, Registered::InForce(_)), "{registered:?}");
    let told = snapshot(&newcomer, "job").await.unwrap().unwrap().record;
    assert_eq!((told.status, told.schedule), (Status::Running, spec.schedule));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_occurrence_due_during_a_run_elsewhere_stays_decided_when_its_holder_dies() {
    let broker = Broker::start();
    let (store, other) = (opened(backend(&broker)).await, opened(backend(&broker)).await);
    register(&store, "job").await;
    let short = Claim { lease: Duration::from_secs(3), ..claim("job", due(&store, "job").await, 1) };
    let token = award(one(store.claim(&[short]).await).unwrap()).token;
    let at = due(&other, "job").await;
    // Not skipped, as far as anybody but its holder can see: that the run is of this very occurrence is far more common.
    let decided = one(other.claim(&[claim("job", at, 2)]).await).unwrap();
    let Verdict::AlreadyDecided(told) = decided else { panic!("{decided:?}") };
    assert_eq!((told.decided, told.status), (at, Status::Running));
    drop(store);
    let takeover = Claim { what: What::Takeover { token, observed: None }, ..claim("job", at, 3) };
    let again = repeated("the record is back", async || {
        let verdict = one(other.claim(std::slice::from_ref(&takeover)).await).ok()?;
        match verdict {
            Verdict::Awarded(award) => Some(award),
            Verdict::Held(_) | Verdict::AlreadyDone(_) => None,
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert_eq!(again.attempt, 2);
    let record = snapshot(&other, "job").await.unwrap().unwrap().record;
    assert_eq!((record.status, record.decided), (Status::Running, at));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_occurrence_whose_winner_dies_before_it_is_written_is_not_lost() {
    let broker = Broker::start();
    let (winner, other) = (Arc::new(opened(backend(&broker)).await), opened(backend(&broker)).await);
    register(&*winner, "job").await;
    let at = due(&*winner, "job").await.max(due(&other, "job").await);
    // In the middle of the award: the broker takes the token's new message no more.
    broker.ctl(&["set_vm_memory_high_watermark", "absolute", "1"]);
    let winning = tokio::spawn(async move { one(winner.claim(&[long_claim("job", at, 1)]).await) });
    let taken = ("anarchon/tests/job".to_owned(), "1".to_owned());
    repeated("the winner has the token", async || {
        queues(&broker, "messages_unacknowledged").contains(&taken).then_some(())
    })
    .await;
    let error = one(other.claim(&[claim("job", at, 2)]).await).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "nothing is decided yet: {error}");
    assert!(!winning.is_finished(), "it was to be asked meanwhile");
    close_connections(&broker);
    broker.ctl(&["set_vm_memory_high_watermark", "0.4"]);
    winning.await.unwrap().unwrap_err();
    let verdict =
        repeated("the other one is answered", async || one(other.claim(&[claim("job", at, 3)]).await).ok())
            .await;
    assert_eq!(award(verdict).attempt, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_heartbeat_is_half_of_the_shortest_lease_as_far_as_the_server_agrees() {
    let broker = RabbitMq::new(["heartbeat = 20"]).start();
    for (shortest, heartbeat) in [(5, 2), (30, 15), (600, 20)] {
        let store = backend(&broker);
        store.shortest_lease(Duration::from_secs(shortest));
        let told = store.open(&ns()).await.unwrap();
        let want = Duration::from_secs(2 * heartbeat)..=Duration::from_secs(3 * heartbeat);
        assert_eq!(told.lease, LeaseScope::PerConnection(want));
        assert_eq!((told.durability, told.beat), (Durability::Fsync, false));
        let version = broker.ctl(&["eval", "rabbit_misc:version()."]);
        assert_eq!(told.store, format!("RabbitMQ {}, classic queues", version.trim().trim_matches('"')));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_queue_survives_more_returns_than_its_limit() {
    let broker = Broker::start();
    // What RabbitMQ 4 sets by itself.
    let limit = r#"{"delivery-limit":20}"#;
    broker.ctl(&["set_policy", "limit", "^anarchon/", limit, "--apply-to", "queues"]);
    let quorum = format!("{}?queues=quorum", url(broker.server.port()));
    let store = RabbitMqBackend::connect(&quorum).unwrap();
    let told = store.open(&ns()).await.unwrap();
    assert_eq!(told.durability, Durability::Replicated);
    assert!(told.store.ends_with(", quorum queues"), "{}", told.store);
    register(&store, "job").await;
    let other = opened(backend(&broker)).await;
    let at = due(&store, "job").await;
    let before = received(&broker);
    for n in 0..30 {
        let handle = if n % 2 == 0 { &store } else { &other };
        assert!(snapshot(handle, "job").await.unwrap().is_some(), "look {n}");
        let missing = Claim { what: What::Manual(1), ..claim("job", at, n) };
        let verdict = one(handle.claim(&[missing]).await).unwrap();
        assert!(matches!(verdict, Verdict::AlreadyDone(_)), "claim {n}: {verdict:?}");
    }
    let written = received(&broker) - before;
    assert!((1..=10).contains(&written), "of 60 returns {written} wrote the token anew");
    let told = queues(&broker, "type");
    assert!(!told.is_empty() && told.iter().all(|(_, kind)| kind == "quorum"), "{told:?}");
    let told = queues(&broker, "policy");
    assert!(told.iter().all(|(_, policy)| policy == "limit"), "{told:?}");
    win(&store, "job", 1).await;
}

// ---- who is let in ----

/// Users that lack one of the rights each, and the guest with all of them: to call `rabbitmqctl` for each takes a second and more.
fn users_that_lack_something(broker: &Broker, rights: [&str; 3]) -> [&'static str; 3] {
    let module = "rabbit_auth_backend_internal";
    let binary = |text: &str| format!("<<\"{}\">>", text.replace('\\', "\\\\"));
    let permit = |user: &str, rights: [&str; 3]| {
        let rights = rights.map(binary).join(", ");
        format!(
            "ok = {module}:set_permissions({}, {}, {rights}, {})",
            binary(user),
            binary(USER),
            binary("test")
        )
    };
    let users = ["configure", "write", "read"];
    let mut orders = vec![permit("guest", [".*"; 3])];
    for (n, user) in users.into_iter().enumerate() {
        let arguments = [user, "geheim", "test"].map(binary).join(", ");
        orders.push(format!("ok = {module}:add_user({arguments})"));
        let mut rights = rights;
        rights[n] = "^$";
        orders.push(permit(user, rights));
    }
    broker.ctl(&["eval", &format!("{}.", orders.join(", "))]);
    users
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_of_the_guide_can_do_everything_in_its_namespace_and_without_any_right_not() {
    let broker = Broker::start();
    let lines = grants::rabbitmq(USER);
    for line in &lines {
        broker.ctl(&line.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let port = broker.server.port();
    let of =
        |login: &str| RabbitMqBackend::connect(&format!("amqp://{login}@127.0.0.1:{port}/{USER}")).unwrap();
    let (me, own) = (format!("{USER}:{}", grants::PASSWORD), Namespace::new(USER).unwrap());
    let [store, other] = [of(&me), of(&me)];
    for handle in [&store, &other] {
        handle.open(&own).await.unwrap();
    }
    live(&store, &other, false).await.unwrap();

    let [.., configure, write, read] = &lines[2][..] else { panic!("{lines:?}") };
    let lacking = users_that_lack_something(&broker, [configure, write, read]);
    for user in lacking {
        let error = of(&format!("{user}:geheim")).open(&own).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "without {user}: {error}");
    }
    // Another virtual host is another store, which it is not let into; in its own it has one namespace.
    let elsewhere = RabbitMqBackend::connect(&format!("amqp://{me}@127.0.0.1:{port}/%2F")).unwrap();
    for (handle, namespace) in [(&elsewhere, &own), (&store, &ns())] {
        let error = handle.open(namespace).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    }

    // What the guide warns of: into the queues of others it cannot look, but write.
    let theirs = RabbitMqBackend::connect(&format!("amqp://127.0.0.1:{port}/{USER}")).unwrap();
    let theirs = opened(theirs).await;
    register(&theirs, "job").await;
    let url = format!("amqp://{me}@127.0.0.1:{port}/{USER}");
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let queue = "anarchon/tests/job";
    let channel = connection.create_channel().await.unwrap();
    channel.tx_select().await.unwrap();
    channel
        .basic_publish("".into(), queue.into(), Default::default(), b"x", Default::default())
        .await
        .unwrap();
    channel.tx_commit().await.unwrap();
    for what in ["get", "delete"] {
        let channel = connection.create_channel().await.unwrap();
        let error = match what {
            "get" => channel.basic_get(queue.into(), BasicGetOptions::default()).await.err(),
            _ => channel.queue_delete(queue.into(), Default::default()).await.err(),
        };
        assert!(error.unwrap().to_string().contains("ACCESS_REFUSED"), "{what}");
    }
    let error = repeated("it is noticed", async || snapshot(&theirs, "job").await.err()).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_prints_a_password_and_a_login_that_is_refused_is_told() {
    let settings = [
        format!("default_user = {USER}"),
        format!("default_pass = {}", secrets::password()),
        "default_vhost = a/b".to_owned(),
    ];
    let broker = RabbitMq::new(settings).start();
    let port = broker.server.port();
    let encoded = secrets::encoded();
    for (url, mend) in [
        (format!("amqp://{USER}:{}@127.0.0.1:{port}/a%2Fb", secrets::MARK), "correct user and password"),
        (format!("amqp://{USER}:{encoded}@127.0.0.1:{port}/nowhere"), "correct it in the URL, or make it"),
        (format!("amqp://{USER}:{encoded}@127.0.0.1:{port}"), "correct it in the URL, or make it"),
    ] {
        let store = RabbitMqBackend::connect(&url).unwrap();
        let error = refused(&store).await;
        assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
        let all = format!("{error} {store:?} {}", store.describe());
        assert!(all.contains(mend) && !all.contains(secrets::MARK), "{all}");
    }
    let worker = env!("CARGO_BIN_EXE_worker");
    tokio::task::spawn_blocking(move || {
        secrets::are_kept(worker, port, |port, password| {
            format!("amqp://{USER}:{password}@127.0.0.1:{port}/a%2Fb")
        });
    })
    .await
    .unwrap();
    drop(broker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_that_is_refused_is_told_and_survived() {
    let broker = Broker::start();
    broker.ctl(&["add_user", "jobs", "geheim"]);
    let url = format!("amqp://jobs:geheim@127.0.0.1:{}", broker.server.port());
    broker.ctl(&["set_permissions", "jobs", "^anarchon/tests/", ".*", "^anarchon/tests/"]);
    let store = RabbitMqBackend::connect(&url).unwrap();
    let other = Namespace::new("other").unwrap();
    let error = store.open(&other).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    assert!(
        error.to_string().contains("set_permissions") && !error.to_string().contains("geheim"),
        "{error}"
    );
    let store = opened(store).await;
    register(&store, "job").await;
    broker.ctl(&["set_permissions", "jobs", "^anarchon/tests/", ".*", "^nothing$"]);
    // The broker remembers for a connection what it was allowed.
    close_connections(&broker);
    let error = repeated("it is told", async || {
        snapshot(&store, "job").await.err().filter(|error| error.kind == StoreErrorKind::Misconfigured)
    })
    .await;
    assert!(error.to_string().contains("set_permissions"), "{error}");
    broker.ctl(&["set_permissions", "jobs", "^anarchon/tests/", ".*", "^anarchon/tests/"]);
    repeated("it is let in again", async || snapshot(&store, "job").await.ok().flatten()).await;
    win(&store, "job", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_needs_a_trusted_server_and_where_it_asks_our_certificate() {
    let (authority, port) = (Authority::new(), Port::free());
    let broker = RabbitMq::new([""; 0]).tls(port.number(), &authority, true).start();
    let folder = tempfile::TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let client = authority.issue("client", &[]);
    let (ca, cert, key) =
        (write("ca", authority.certificate()), write("cert", &client.certificate), write("key", &client.key));
    let with = |parameters: &str| {
        RabbitMqBackend::connect(&format!("amqps://127.0.0.1:{}{parameters}", port.number())).unwrap()
    };
    let store = with(&format!("?ca={ca}&cert={cert}&key={key}"));
    let told = store.open(&ns()).await.unwrap().store;
    assert!(told.starts_with("RabbitMQ 3.") || told.starts_with("RabbitMQ 4."), "{told}");
    register(&store, "job").await;
    win(&store, "job", 1).await;
    assert!(!store.describe().contains(key.as_str()), "{}", store.describe());

    for (parameters, mend) in [
        (String::new(), "?ca=FILE"),
        (format!("?ca={ca}"), "cert=FILE&key=FILE"),
        (format!("?ca={ca}.gone"), ".gone"),
    ] {
        // The end of the connection, right behind the broker's alert, may be heard in its place.
        let error = repeated("it is told what is wrong", async || {
            let error = refused(&with(&parameters)).await;
            (error.kind == StoreErrorKind::Misconfigured).then_some(error)
        });
        let error = error.await;
        assert!(error.to_string().contains(mend), "{error}");
    }
    drop(broker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_the_application_serves_as_long_as_it_lasts() {
    let broker = Broker::start();
    let connection = Arc::new(raw(&broker).await);
    let store = opened(RabbitMqBackend::from_client(Arc::clone(&connection))).await;
    register(&store, "job").await;
    win(&store, "job", 1).await;
    store.close().await;
    assert!(connection.status().connected(), "it is the application's");
    let store = opened(RabbitMqBackend::from_client(Arc::clone(&connection))).await;
    // An error says that it ends already: so does a channel of the store at this moment.
    let _ = connection.close(200, "done".into()).await;
    repeated("it has ended", async || (!connection.status().connected()).then_some(())).await;
    let error = snapshot(&store, "job").await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.to_string().contains("name the server by URL"), "{error}");
}

#[tokio::test]
async fn a_clone_that_is_opened_for_another_namespace_leaves_this_one_alone() {
    let broker = Broker::start();
    let store = opened(backend(&broker)).await;
    register(&store, "job").await;
    let token = win_for_long(&store, "job", 1).await;
    let other = store.clone();
    other.open(&Namespace::new("other").unwrap()).await.unwrap();
    register(&other, "job").await;
    assert_eq!(snapshot(&other, "job").await.unwrap().unwrap().record.token, Token(0));
    other.close().await;
    extended(&store, "job", token).await;
    let close = finish("job", token);
    assert!(matches!(one(store.finish(&[close]).await).unwrap(), Finished::Closed(_)));
}

#[tokio::test]
async fn what_does_not_speak_amqp_is_told_at_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            // Closed with something unread, the connection would be reset, and the answer with it.
            let _ = client.read(&mut [0; 64]);
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = refused(&RabbitMqBackend::connect(&url(port)).unwrap()).await;
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("does not speak AMQP"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_unavailable() {
    let store = RabbitMqBackend::connect("amqp://127.0.0.1:1").unwrap();
    let error = refused(&store).await;
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("amqp://127.0.0.1:{}", silent.local_addr().unwrap().port());
    let error = refused(&RabbitMqBackend::connect(&url).unwrap()).await;
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("does not answer"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_broker_is_given_up_and_serves_again_when_it_goes_on() {
    let broker = Broker::start();
    let store = backend(&broker);
    store.shortest_lease(Duration::from_secs(5));
    let store = opened(store).await;
    register(&store, "job").await;
    let token = win(&store, "job", 1).await;
    broker.server.freeze();
    let error = renew(&store, "job", token).await.unwrap_err();
    assert!(error.to_string().contains("did not answer"), "{error}");
    let error = repeated("it is not even connected to", async || {
        renew(&store, "job", token).await.err().filter(|error| error.to_string().contains("does not answer"))
    })
    .await;
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    broker.server.thaw();
    extended(&store, "job", token).await;
    let finished = one(store.finish(&[finish("job", token)]).await).unwrap();
    assert!(matches!(finished, Finished::Closed(_)), "{finished:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_decided_survives_a_killed_broker() {
    let mut broker = Broker::start();
    let store = opened(backend(&broker)).await;
    for answer in store.register(&specs(20)).await {
        answer.unwrap();
    }
    let mut tokens = Vec::new();
    for n in 0..20 {
        tokens.push(win(&store, &format!("job-{n}"), n + 1).await);
    }
    broker.server.restart();
    for (n, token) in tokens.iter().enumerate() {
        let name = format!("job-{n}");
        extended(&store, &name, *token).await;
        let closed = anarchon::protocol::Finish { outcome: Outcome::Failed, ..finish(&name, *token) };
        assert!(matches!(one(store.finish(&[closed]).await).unwrap(), Finished::Closed(_)));
    }
    let names: Vec<JobName> = specs(20).into_iter().map(|spec| spec.job).collect();
    for (answer, token) in store.inspect(&names, 20).await.into_iter().zip(tokens) {
        let snapshot = answer.unwrap().value.unwrap();
        assert_eq!((snapshot.record.token, snapshot.history.len()), (token, 1));
    }
}
