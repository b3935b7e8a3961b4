//! Several servers: a Cluster one of whose nodes dies or hangs, and a primary that is replaced by its replica.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anarchon::{
    RedisBackend, ValkeyBackend,
    protocol::{Claim, JobName, JobSpec, Registered, Renewal, Renewed, Verdict},
    store::{Snapshot, Store, StoreErrorKind},
};
use anarchon_tests::{
    calls::{award, claim, due, job, live, ns, one, specs},
    grants,
    servers::{
        Server,
        redis::{Kind, command, connections, has_followed, is_primary, make_user, wait_until_level},
        redis_cluster::{Cluster, id, record_key, slot},
        redis_sentinel::Watched,
    },
    site::Outage,
    wait::{PATIENCE, until_so},
};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

const JOBS: usize = 60;

async fn open(kind: Kind, url: &str) -> Arc<dyn Store> {
    let store = kind.backend(url);
    store.open(&ns()).await.unwrap();
    store
}

/// How many of a batch are answered, and what the others' errors are; with the deadline that a run of 15 s gives a call.
async fn answered(store: &dyn Store) -> (usize, Vec<StoreErrorKind>) {
    let answers = timeout(Duration::from_millis(2500), store.register(&specs(JOBS))).await;
    let answers =
        answers.unwrap_or_else(|_| vec![Err(anarchon::store::StoreError::unknown("too late")); JOBS]);
    let errors: Vec<_> =
        answers.iter().filter_map(|answer| answer.as_ref().err()).map(|error| error.kind).collect();
    (JOBS - errors.len(), errors)
}

/// How long until a whole batch is answered again.
async fn recovery(store: &dyn Store) -> Duration {
    let begin = Instant::now();
    while answered(store).await.0 < JOBS {
        assert!(begin.elapsed() < PATIENCE, "no recovery: {:?}", answered(store).await);
        sleep(Duration::from_millis(50)).await;
    }
    begin.elapsed()
}

#[tokio::test]
async fn a_dead_or_hanging_node_of_a_cluster_costs_only_its_own_jobs_and_is_found_again() {
    let mut cluster = Cluster::start(Kind::Redis);
    for node in &cluster.nodes {
        // Else the others refuse too.
        command(node.port(), "CONFIG SET cluster-require-full-coverage no").unwrap();
    }
    let store = open(Kind::Redis, &cluster.url()).await;
    assert_eq!(answered(&*store).await.0, JOBS);

    cluster.nodes[1].kill();
    let (others, errors) = answered(&*store).await;
    assert!((JOBS / 3..JOBS).contains(&others), "{others} of {JOBS} were answered");
    let (others, later) = answered(&*store).await;
    assert!(
        (JOBS / 3..JOBS).contains(&others) && !later.contains(&StoreErrorKind::Misconfigured),
        "{errors:?} {later:?}"
    );
    cluster.nodes[1].restart();
    let took = recovery(&*store).await;
    assert!(took < Duration::from_secs(5), "{took:?} after the node was back");
    println!("a node of a Cluster was found again {took:?} after it was back");

    cluster.wait_until_whole();
    cluster.nodes[2].freeze();
    let (others, errors) = answered(&*store).await;
    assert!((JOBS / 3..JOBS).contains(&others), "{others} of {JOBS} were answered, {errors:?}");
    cluster.nodes[2].thaw();
    let took = recovery(&*store).await;
    assert!(took < Duration::from_secs(5), "{took:?} after the node went on");
}

#[tokio::test]
async fn a_replica_that_a_cluster_promotes_is_followed_while_only_the_jobs_of_its_node_wait() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let mut cluster = Cluster::with_replicas(kind);
        for node in cluster.all() {
            // Else the others refuse too.
            command(node.port(), "CONFIG SET cluster-require-full-coverage no").unwrap();
        }
        let store = open(kind, &cluster.url()).await;
        assert_eq!(answered(&*store).await.0, JOBS);
        for (place, outage) in [(1, Outage::Vanishes), (0, Outage::Hangs)] {
            let of_node = |job: &JobName| Cluster::slots(place).contains(&slot_of(&cluster.nodes[2], job));
            let of_node: Vec<JobName> =
                specs(JOBS).into_iter().map(|spec| spec.job).filter(of_node).collect();
            let (old, new) = (cluster.nodes[place].port(), cluster.replicas[place].port());
            let (unanswered, before) = records(&*store).await;
            assert_eq!(unanswered, []);
            wait_until_level(&cluster.nodes[place], &cluster.replicas[place]);
            match outage {
                Outage::Vanishes => cluster.nodes[place].kill(),
                Outage::Hangs => cluster.nodes[place].freeze(),
            }
            let promoted = promotion(new);
            let (gone, mut waited) = (Instant::now(), false);
            let after = loop {
                assert!(gone.elapsed() < PATIENCE, "it is not followed");
                let (unanswered, after) = records(&*store).await;
                assert!(unanswered.iter().all(|job| of_node.contains(job)), "others waited: {unanswered:?}");
                if unanswered.is_empty() {
                    break after;
                }
                waited = true;
                sleep(Duration::from_millis(50)).await;
            };
            let took = promoted.await.unwrap().elapsed();
            assert!(waited, "the node was gone, and nobody noticed");
            assert!(took < Duration::from_secs(5), "{took:?} after the promotion");
            println!("{kind:?}, {outage:?}: found {took:?} after the promotion");
            assert_eq!(after, before, "what the replica had");
            match outage {
                Outage::Vanishes => cluster.nodes[place].restart(),
                Outage::Hangs => cluster.nodes[place].thaw(),
            }
            until_so("the old primary follows the new one", || has_followed(old));
            assert_eq!(records(&*store).await, (Vec::new(), before));
            cluster.wait_until_whole();
        }
    }
}

/// When the server of a port becomes a primary.
fn promotion(port: u16) -> JoinHandle<Instant> {
    tokio::task::spawn_blocking(move || {
        until_so("the replica is promoted", || is_primary(port));
        Instant::now()
    })
}

/// The jobs that got no answer, and the records of the others; with the deadline that a run of 15 s gives a call.
async fn records(store: &dyn Store) -> (Vec<JobName>, Vec<Snapshot>) {
    let jobs: Vec<JobName> = specs(JOBS).into_iter().map(|spec| spec.job).collect();
    let Ok(answers) = timeout(Duration::from_millis(2500), store.inspect(&jobs, 0)).await else {
        return (jobs, Vec::new());
    };
    let (mut unanswered, mut records) = (Vec::new(), Vec::new());
    for (job, answer) in jobs.into_iter().zip(answers) {
        match answer {
            Ok(stamped) => records.push(stamped.value.unwrap()),
            Err(_) => unanswered.push(job),
        }
    }
    (unanswered, records)
}

async fn register_one(store: &dyn Store, spec: &JobSpec) -> Registered {
    store.register(std::slice::from_ref(spec)).await.remove(0).unwrap().value
}

fn slot_of(node: &Server, job: &JobName) -> u16 {
    slot(node, &record_key(node, &ns(), job))
}

#[tokio::test]
async fn slots_that_move_to_another_node_are_followed() {
    let cluster = Cluster::start(Kind::Valkey);
    for node in cluster.all() {
        // Of no more than the guide has.
        make_user(node.port(), "+cluster|slots +asking");
    }
    let store = open(Kind::Valkey, &grants::login(&cluster.url())).await;
    assert_eq!(answered(&*store).await.0, JOBS);
    // All keys of the last node, to the first.
    let ids: Vec<String> = cluster.nodes.iter().map(id).collect();
    let (from, to) = (&cluster.nodes[2], &cluster.nodes[0]);
    let all = specs(JOBS);
    let mut moved = BTreeSet::new();
    for job in &all {
        let key = record_key(to, &ns(), &job.job);
        let slot = slot(to, &key);
        if !Cluster::slots(2).contains(&slot) || !moved.insert(slot) {
            continue;
        }
        let ok = |port: u16, line: String| assert_eq!(command(port, &line).unwrap(), "+OK\r\n", "to {line}");
        ok(to.port(), format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[2]));
        ok(from.port(), format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[0]));
        // Between the two the old node says ASK, and the new one serves only whom it sent.
        assert!(matches!(register_one(&*store, job).await, Registered::InForce(_)), "on the old node");
        ok(from.port(), format!("MIGRATE 127.0.0.1 {} \"\" 0 5000 KEYS {key}", to.port()));
        assert!(matches!(register_one(&*store, job).await, Registered::InForce(_)), "between the two");
        for node in [to, from] {
            ok(node.port(), format!("CLUSTER SETSLOT {slot} NODE {}", ids[0]));
        }
    }
    assert!(moved.len() > 1, "{moved:?}");
    for job in &specs(JOBS) {
        assert!(matches!(register_one(&*store, job).await, Registered::InForce(_)), "after the move");
    }
    assert_eq!(answered(&*store).await.0, JOBS);
}

#[tokio::test]
async fn a_dead_primary_is_followed_by_the_one_that_the_sentinels_promote() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let mut watched = Watched::start(kind);
        let store = open(kind, &watched.url()).await;
        assert_eq!(answered(&*store).await.0, JOBS);
        let old = watched.servers[0].port();
        assert_eq!(watched.primary(), Some(old));
        watched.servers[0].kill();
        let new = watched.servers[1].port();
        until_so("the sentinels promote the replica", || is_primary(new) && watched.primary() == Some(new));
        let took = recovery(&*store).await;
        assert!(took < Duration::from_secs(5), "{took:?} after the fail-over");
        println!("{kind:?}: found {took:?} after the fail-over");
        // The old one comes back as a replica, which nobody writes to.
        watched.servers[0].restart();
        watched.wait_until_whole();
        let took = recovery(&*store).await;
        assert!(took < Duration::from_secs(5), "{took:?} after the old one is back");
    }
}

/// The old primary believes to be one until the sentinels demote it, 10 to 20 s after it goes on. Whoever called it
/// meanwhile has asked the sentinels again; whoever did not is still connected to it.
#[tokio::test]
async fn a_frozen_primary_that_goes_on_awards_only_to_those_who_did_not_notice_and_wait_for_no_replica() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let watched = Watched::start(kind);
        let (old, new) = (watched.servers[0].port(), watched.servers[1].port());
        let store = open(kind, &watched.url()).await;
        let (idle, careful) = (open(kind, &watched.url()).await, open_careful(kind, &watched.url()).await);
        assert_eq!(answered(&*store).await.0, JOBS);
        let at = due(&*store, &format!("job-{}", JOBS - 1)).await;
        let lease = Duration::from_secs(5);
        let of = |n: usize, seq| Claim { lease, ..claim(&format!("job-{n}"), at, seq) };
        let all = |seq| (0..JOBS).map(|n| of(n, seq)).collect::<Vec<_>>();
        let renewal = |n: usize, token| Renewal { job: job(&format!("job-{n}")), token, lease };
        let of_idle = award(one(idle.claim(&[of(0, 1)]).await).unwrap()).token;
        let of_careful = award(one(careful.claim(&[of(1, 2)]).await).unwrap()).token;
        wait_until_level(&watched.servers[0], &watched.servers[1]);

        watched.servers[0].freeze();
        let promoted = promotion(new);
        // The first of these lie in its socket, to be carried out when it goes on. Others are kept for later.
        let verdicts = loop {
            let asked = timeout(Duration::from_millis(800), store.claim(&all(3)[4..])).await;
            match asked.unwrap_or_default().into_iter().collect::<Result<Vec<_>, _>>() {
                Ok(verdicts) if !verdicts.is_empty() => break verdicts,
                Ok(_) | Err(_) => sleep(Duration::from_millis(50)).await,
            }
        };
        let took = promoted.await.unwrap().elapsed();
        assert!(took < Duration::from_secs(5), "{took:?} after the promotion");
        println!("{kind:?}: found {took:?} after the promotion");
        for verdict in verdicts {
            award(verdict.value);
        }
        for n in [0, 1] {
            let verdict = one(store.claim(&[of(n, 3)]).await).unwrap();
            assert!(matches!(verdict, Verdict::AlreadyDecided(_)), "the replica had it: {verdict:?}");
        }
        let first = award(one(store.claim(&[of(2, 3)]).await).unwrap()).token;
        award(one(store.claim(&[of(3, 3)]).await).unwrap());
        until_so("each sentinel names the new one", || watched.is_named_by_all(new));

        watched.servers[0].thaw();
        let second = award(one(idle.claim(&[of(2, 4)]).await).unwrap()).token;
        assert!(second > first, "the later of the two has the higher token");
        let renewed = one(idle.renew(&[renewal(0, of_idle)]).await).unwrap();
        assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
        let unheard = one(careful.claim(&[of(3, 5)]).await).unwrap_err();
        assert_eq!(unheard.kind, StoreErrorKind::Unknown, "{unheard}");
        let unheard = one(careful.renew(&[renewal(1, of_careful)]).await).unwrap_err();
        assert_eq!(unheard.kind, StoreErrorKind::Unknown, "{unheard}");
        assert!(is_primary(old), "it was demoted before it was asked");
        let fresh = open(kind, &watched.url()).await;
        let thawed = Instant::now();
        for seq in 6.. {
            for store in [&store, &fresh] {
                for answer in store.claim(&all(seq)).await {
                    let verdict = answer.unwrap().value;
                    assert!(matches!(verdict, Verdict::AlreadyDecided(_)), "{verdict:?}");
                }
            }
            if has_followed(old) {
                break;
            }
            assert!(thawed.elapsed() < PATIENCE, "it is not demoted");
            sleep(Duration::from_millis(50)).await;
        }
        println!("{kind:?}: demoted {:?} after it went on", thawed.elapsed());

        // Their connections were cut when it was demoted.
        for (store, claim) in [(&idle, of(2, 4)), (&careful, of(3, 5))] {
            let begin = Instant::now();
            let verdict = loop {
                if let Ok(verdict) = one(store.claim(std::slice::from_ref(&claim)).await) {
                    break verdict;
                }
                assert!(begin.elapsed() < PATIENCE, "it does not find the new one");
                sleep(Duration::from_millis(50)).await;
            };
            assert!(matches!(verdict, Verdict::AlreadyDecided(_)), "{verdict:?}");
        }
        assert_eq!(one(idle.renew(&[renewal(2, second)]).await).unwrap(), Renewed::Lost);
        let begin = Instant::now();
        let renewed = loop {
            match one(careful.renew(&[renewal(1, of_careful)]).await) {
                Ok(renewed) => break renewed,
                // The old primary has to get as far as a replica of the new one.
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
        };
        assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
    }
}

/// The same, but whatever it is granted is on the replica as well.
async fn open_careful(kind: Kind, url: &str) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = match kind {
        Kind::Redis => Arc::new(RedisBackend::connect(url).unwrap().wait_replicas(1)),
        Kind::Valkey => Arc::new(ValkeyBackend::connect(url).unwrap().wait_replicas(1)),
    };
    store.open(&ns()).await.unwrap();
    store
}

#[tokio::test]
async fn sentinels_have_a_login_of_their_own_and_a_name_that_they_do_not_know_is_told() {
    let watched = Watched::start(Kind::Redis);
    watched.servers.iter().for_each(|server| make_user(server.port(), "+role"));
    for sentinel in &watched.sentinels {
        let line = "ACL SETUSER asker reset on >geheim +sentinel|get-master-addr-by-name";
        assert_eq!(command(sentinel.port(), line).unwrap(), "+OK\r\n");
    }
    let login = "?sentinel_user=asker&sentinel_password=geheim";
    let [store, other] =
        [(); 2].map(|()| Kind::Redis.backend(&format!("{}{login}", grants::login(&watched.url()))));
    for handle in [&store, &other] {
        handle.open(&ns()).await.unwrap();
    }
    live(&*store, &*other, true).await.unwrap();
    let url = watched.url().replace("mymaster", "another");
    let error = Kind::Redis.backend(&url).open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("no primary \"another\""), "{error}");
}

#[tokio::test]
async fn closing_ends_the_connections_to_all_of_them_and_a_later_call_makes_new_ones() {
    let (cluster, watched) = (Cluster::start(Kind::Redis), Watched::start(Kind::Redis));
    for url in [cluster.url(), watched.url()] {
        let servers = || cluster.nodes.iter().chain(&watched.servers).chain(&watched.sentinels);
        let seen = || servers().map(|server| connections(server.port())).sum::<usize>();
        let store = open(Kind::Redis, &url).await;
        for _ in 0..2 {
            assert_eq!(answered(&*store).await.0, JOBS);
            assert!(seen() > 0);
            store.close().await;
            let begin = Instant::now();
            while seen() > 0 {
                assert!(begin.elapsed() < PATIENCE, "{} connections to {url} stay", seen());
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}
