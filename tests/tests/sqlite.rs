//! What the SQLite store does beyond the conformance suite: processes, disks, files, clocks.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use anarchon::{
    Context, ErrorKind, Scheduler,
    clock::{Clock, Mono},
    protocol::{
        Announcement, Claim, Contested, Control, ControlAction, Controlled, Fingerprint, Finished, JobSpec,
        Millis, Namespace, Registered, Token, Verdict, Waiting,
    },
    store::{Durability, SqliteBackend, Store, StoreErrorKind},
};
use anarchon_tests::{
    calls::{claim, due, finish, instance, job, ns, register, schedule, spec, win},
    damage::{Damage, costs_its_own_job_alone},
    grants,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};
use tempfile::TempDir;

/// Another process, see its source.
const PEER: &str = env!("CARGO_BIN_EXE_sqlite_peer");

// URLs and opening.

#[test]
fn a_url_is_checked_without_touching_the_disk() {
    for url in [
        "sqlite:/nowhere/at/all.db",
        "sqlite:///nowhere/at/all.db",
        "sqlite:a.db?mode=rwc",
        "sqlite::memory:",
    ] {
        SqliteBackend::connect(url).unwrap_or_else(|e| panic!("{url}: {e}"));
    }
    for (url, word) in
        [("sqlite:", "names no file"), ("redis://localhost", "sqlite:"), ("sqlite:a.db?mode=ro", "read-only")]
    {
        let error = SqliteBackend::connect(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        has(&error, &[url, word, "write sqlite:path"]);
    }
    // Nobody knows whether the value of a parameter that is unknown is a secret.
    for parameter in ["colour", "key"] {
        let error = SqliteBackend::connect(&format!("sqlite:a.db?{parameter}=geheim")).unwrap_err();
        has(&error, &[&format!("sqlite:a.db?{parameter}=***"), "write sqlite:path"]);
        assert!(!error.to_string().contains("geheim"), "{error}");
    }
}

/// Only root can be somebody else.
#[test]
fn the_folder_of_the_guide_is_for_its_user_alone() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // Both are on every Linux.
    let (user, group, others) = (65_534, 65_534, 1);
    let place = TempDir::new_in("/dev/shm").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = place.path().join("payroll");
    let command = grants::sqlite();
    assert!(command.contains("-o payroll -g payroll -m 0700 /var/lib/payroll"), "{command}");
    let command = command
        .replace("/var/lib/payroll", folder.to_str().unwrap())
        .replace("-o payroll -g payroll", &format!("-o {user} -g {group}"));
    let mut words = command.split_whitespace();
    assert!(Command::new(words.next().unwrap()).args(words).status().unwrap().success(), "{command}");
    let program = place.path().join("peer");
    fs::copy(PEER, &program).unwrap();
    let url = format!("sqlite:{}", folder.join("anarchon.db").display());
    let opens = |user: u32, group: u32| {
        let mut peer = Command::new(&program);
        peer.args(["clock", &url, "0"]).uid(user).gid(group).current_dir("/").output().unwrap()
    };
    let stranger = opens(others, others);
    assert!(!stranger.status.success(), "somebody else makes it");
    let owner = opens(user, group);
    assert!(owner.status.success(), "{}", String::from_utf8_lossy(&owner.stderr));
    let stranger = opens(others, others);
    let told = String::from_utf8_lossy(&stranger.stderr);
    assert!(!stranger.status.success() && told.contains("anarchon.db"), "{told}");
}

#[tokio::test]
async fn opening_creates_the_file_and_may_be_repeated() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let store = opened(&file).await;
    let guarantees = store.open(&ns()).await.unwrap();
    has(&guarantees.store, &["SQLite 3."]);
    assert_eq!(guarantees.durability, Durability::Fsync);
    assert_eq!(number(&file, "SELECT count(*) FROM anarchon_meta").await, 1);
    assert_eq!(number(&file, "SELECT journal_mode = 'wal' FROM pragma_journal_mode").await, 1);
}

#[tokio::test]
async fn a_missing_directory_and_a_directory_in_place_of_the_file_are_named() {
    let dir = TempDir::new().unwrap();
    let lost = dir.path().join("no/such/jobs.db");
    let error = SqliteBackend::connect(&url(&lost)).unwrap().open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["no/such/jobs.db", "does not exist", "create"]);
    fs::create_dir_all(lost.parent().unwrap()).unwrap();
    opened(&lost).await;
    let error = SqliteBackend::connect(&url(dir.path())).unwrap().open(&ns()).await.unwrap_err();
    has(&error, &["is a directory", "name a file"]);
    let error = SqliteBackend::connect("sqlite:/dev/null").unwrap().open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["/dev/null", "name a file"]);
}

#[tokio::test]
async fn a_store_that_was_closed_is_one_file_and_opens_again_by_itself() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let store = opened(&file).await;
    register(&store, "j").await;
    store.close().await;
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["jobs.db"]);
    win(&store, "j", 1).await;
}

#[tokio::test]
async fn a_call_before_open_says_so() {
    let store = SqliteBackend::connect("sqlite::memory:").unwrap();
    let error = store.register(&[spec("j")]).await.remove(0).unwrap_err();
    has(&error, &["before it was opened"]);
}

#[tokio::test]
async fn clones_share_what_is_in_memory_and_other_backends_do_not() {
    let store = SqliteBackend::connect("sqlite::memory:").unwrap();
    let guarantees = store.open(&ns()).await.unwrap();
    assert!(matches!(guarantees.durability, Durability::Unsafe(_)));
    register(&store, "j").await;
    let read = store.clone().inspect(&[job("j")], 0).await.remove(0).unwrap();
    assert!(read.value.is_some());
    let other = SqliteBackend::connect("sqlite::memory:").unwrap();
    other.open(&ns()).await.unwrap();
    assert_eq!(other.inspect(&[job("j")], 0).await.remove(0).unwrap().value, None);
}

#[tokio::test]
async fn a_pool_lends_its_file_and_keeps_its_tables() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("app.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let pool = sqlx::SqlitePool::connect_with(options.clone()).await.unwrap();
    sqlx::raw_sql("CREATE TABLE users (id INTEGER); INSERT INTO users VALUES (1)")
        .execute(&pool)
        .await
        .unwrap();
    let store = SqliteBackend::from_pool(&pool).unwrap();
    pool.close().await;
    store.open(&ns()).await.unwrap();
    register(&store, "j").await;
    win(&store, "j", 1).await;
    assert_eq!(number(&file, "SELECT count(*) FROM users").await, 1);
    let reading = sqlx::SqlitePool::connect_lazy_with(options.read_only(true));
    has(&SqliteBackend::from_pool(&reading).unwrap_err(), &["read-only", "hand in one that may write"]);
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_the_mend() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let running = opened(&file).await;
    register(&running, "j").await;
    execute(&file, "UPDATE anarchon_meta SET version = 2").await;
    let error = SqliteBackend::connect(&url(&file)).unwrap().open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["jobs.db", "version 2", "knows version 1", "update this program"]);
    let error = running.claim(&[claim("j", Millis(1), 1)]).await.remove(0).unwrap_err();
    has(&error, &["version 2", "update this program"]);
    execute(&file, "UPDATE anarchon_meta SET version = 1").await;
    win(&running, "j", 1).await;
}

// Items of a batch.

#[tokio::test]
async fn a_damaged_record_answers_for_itself_alone_and_can_be_forgotten() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let store = opened(&file).await;
    for name in ["a", "b", "c"] {
        register(&store, name).await;
    }
    let damages = [
        "UPDATE anarchon_job SET status = 'asleep' WHERE job = 'b'",
        "UPDATE anarchon_job SET token = 'x', status = 'idle' WHERE job = 'b'",
        "UPDATE anarchon_job SET token = -1 WHERE job = 'b'",
        "UPDATE anarchon_job SET token = 1, holder = 'no name' WHERE job = 'b'",
        "UPDATE anarchon_job SET holder = x'ff00' WHERE job = 'b'",
    ];
    for (damage, seq) in damages.into_iter().zip((1..).step_by(3)) {
        execute(&file, damage).await;
        let at = due(&store, "a").await.max(due(&store, "c").await);
        let claims = [claim("a", at, seq), claim("b", at, seq + 1), claim("c", at, seq + 2)];
        let answers = store.claim(&claims).await;
        let error = answers[1].clone().unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Misconfigured);
        has(&error, &["\"b\"", "jobs.db", "forget"]);
        for i in [0, 2] {
            let Verdict::Awarded(award) = answers[i].clone().unwrap().value else {
                panic!("{:?}", answers[i])
            };
            store.finish(&[finish(claims[i].job.as_str(), award.token)]).await.remove(0).unwrap();
        }
        let read = store.inspect(&[job("a"), job("b"), job("c")], 20).await;
        assert!(read[0].is_ok() && read[1].is_err() && read[2].is_ok());
    }
    let forget = Control { job: job("b"), action: ControlAction::Forget };
    assert_eq!(store.control(&[forget]).await.remove(0).unwrap().value, Controlled::Done);
    let again = store.register(&[spec("b")]).await.remove(0).unwrap().value;
    assert!(matches!(again, Registered::Created(_)), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_costs_its_own_job_alone() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let told = [
        "kind = 'never'",
        "kind = 1",
        "occurrence = -1, kind = 'manual'",
        "status = ''",
        "status = 'asleep'",
        "status = x'ff00'",
        "status = hex(zeroblob(524288))",
        "attempt = -1",
        "attempt = 4294967296",
        "errors = 1.5",
        "until = 'soon'",
        "until = 9e999",
        "decided = x''",
        "token = -1",
        "token = 'x'",
        "holder = 'no name'",
        "holder = CAST(x'ff' AS TEXT)",
        "holder = zeroblob(1048576)",
        "nonce = ''",
        "paused = 2",
        "cancel = -1",
        "manual_asked = '18446744073709551616'",
        "schedule = 'x'",
        "runs = -9223372036854775808",
    ];
    let borne = [
        "token = 9223372036854775807",
        "until = -9223372036854775808",
        "until = 9223372036854775807, status = 'running'",
        "decided = -9223372036854775808",
        "decided = 9223372036854775807",
        "started = -9223372036854775808",
        "runs = 9223372036854775807",
        "manual_asked = 9223372036854775807",
        "occurrence = -9223372036854775808",
    ];
    let told = told.map(|damage| Damage::Told(damage.to_owned())).into_iter();
    let damages: Vec<_> = told.chain(borne.map(|damage| Damage::Borne(damage.to_owned()))).collect();
    costs_its_own_job_alone(&url(&file), &damages, async |job, damage| {
        execute(&file, &format!("UPDATE anarchon_job SET {damage} WHERE job = '{job}'")).await;
    })
    .await;
}

#[tokio::test]
async fn a_scheduler_starts_beside_a_damaged_record_and_runs_its_job_once_it_is_mended() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let store = opened(&file).await;
    let start = async || {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let mut scheduler = Scheduler::new(store.clone()).namespace(ns().as_str());
        for name in ["good", "bad"] {
            let sender = sender.clone();
            scheduler = scheduler.every(name, "1s", move |ctx: Context| {
                let _ = sender.send(ctx.job().to_owned());
                async {}
            });
        }
        scheduler.start().await.map(|running| (running, receiver))
    };
    let (running, _) = start().await.unwrap();
    running.shutdown().await.unwrap();
    execute(&file, "UPDATE anarchon_job SET status = 'asleep' WHERE job = 'bad'").await;
    let (running, mut ran) = start().await.unwrap();
    for _ in 0..3 {
        assert_eq!(ran.recv().await.unwrap(), "good");
    }
    let forget = Control { job: job("bad"), action: ControlAction::Forget };
    store.control(&[forget]).await.remove(0).unwrap();
    while ran.recv().await.unwrap() != "bad" {}
    running.shutdown().await.unwrap();
    // With nothing but damage there is nothing to start for.
    execute(&file, "UPDATE anarchon_job SET status = 'asleep'").await;
    let error = start().await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    has(&error, &["jobs.db", "forget"]);
}

#[tokio::test]
async fn later_items_of_a_batch_see_what_earlier_ones_wrote() {
    let store = SqliteBackend::connect("sqlite::memory:").unwrap();
    store.open(&ns()).await.unwrap();
    register(&store, "j").await;
    let at = due(&store, "j").await;
    let answers = store.claim(&[claim("j", at, 1), claim("j", at, 2), claim("j", at, 1)]).await;
    let [first, second, third] = &answers[..] else { panic!("{answers:?}") };
    let Verdict::Awarded(first) = &first.as_ref().unwrap().value else { panic!("{first:?}") };
    assert!(matches!(&second.as_ref().unwrap().value, Verdict::AlreadyDecided(r) if r.token == first.token));
    assert_eq!(third.as_ref().unwrap().value, Verdict::Awarded(*first));
}

#[tokio::test]
async fn history_is_a_ring_of_twenty_newest_first_and_the_file_stops_growing() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let store = opened(&file).await;
    let names: Vec<String> = (0..50).map(|i| format!("j{i}")).collect();
    store.register(&names.iter().map(|n| spec(n)).collect::<Vec<_>>()).await;
    let mut last = Token(0);
    let mut pages = Vec::new();
    for round in 1..=120_u64 {
        let at = due(&store, "j49").await;
        let claims: Vec<Claim> = names.iter().map(|n| claim(n, at, round)).collect();
        let mut finishes = Vec::new();
        for (name, answer) in names.iter().zip(store.claim(&claims).await) {
            let Verdict::Awarded(award) = answer.unwrap().value else { panic!("not awarded") };
            assert!(name != "j0" || award.token > last);
            last = if name == "j0" { award.token } else { last };
            finishes.push(finish(name, award.token));
        }
        for answer in store.finish(&finishes).await {
            assert!(matches!(answer.unwrap().value, Finished::Closed(_)));
        }
        if round == 40 || round == 120 {
            pages.push(number(&file, "SELECT page_count FROM pragma_page_count").await);
        }
    }
    assert_eq!(number(&file, "SELECT count(*) FROM anarchon_run").await, 50 * 20);
    assert!(pages[1] <= pages[0] + pages[0] / 4, "{pages:?}");
    let read = store.inspect(&[job("j0")], 20).await.remove(0).unwrap().value.unwrap();
    assert_eq!((read.record.runs, read.history.len()), (120, 20));
    assert_eq!(read.history[0].token, last);
    assert!(read.history.windows(2).all(|w| w[0].token > w[1].token));
    assert_eq!(read.history[0].message.as_deref(), Some("well"));
    let few = store.inspect(&[job("j0")], 3).await.remove(0).unwrap().value.unwrap();
    assert_eq!(few.history, read.history[..3]);
}

#[tokio::test]
async fn members_are_those_who_beat_and_the_long_dead_are_deleted() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let time = Hands::new();
    let store = SqliteBackend::connect(&url(&file)).unwrap().with_clock(time.clock());
    store.open(&ns()).await.unwrap();
    let other = Fingerprint::of("every 2 s");
    let asks = |contested: Vec<Contested>| Announcement::Present {
        instance: instance("b"),
        schedules: vec![(job("j"), other)],
        zones: "2026a".into(),
        contested,
    };
    assert!(!store.beat(&present("a")).await.unwrap().value.known);
    assert!(store.beat(&present("a")).await.unwrap().value.known);
    // Whole lines only: neither the end of a name nor another schedule is a match.
    let contested: Vec<_> = [("j", schedule()), ("jj", schedule()), ("j", other)]
        .map(|(name, in_force)| {
            let own = Waiting { job: job(name), schedule: other, since: Millis(1) };
            Contested { in_force, own }
        })
        .into();
    let members = store.beat(&asks(contested.clone())).await.unwrap().value;
    assert_eq!(members.instances, [instance("a"), instance("b")]);
    assert_eq!(members.announced, [(job("j"), schedule())]);
    assert_eq!(members.zones, ["2025b", "2026a"]);
    time.pass(Duration::from_secs(31));
    let members = store.beat(&asks(contested)).await.unwrap().value;
    assert!(!members.known && members.announced.is_empty());
    assert_eq!(members.instances, [instance("b")]);
    time.pass(Duration::from_secs(3_700));
    store.beat(&present("c")).await.unwrap();
    assert_eq!(number(&file, "SELECT count(*) FROM anarchon_instance").await, 1);
    let left = store.beat(&Announcement::Withdrawn { instance: instance("c") }).await.unwrap().value;
    assert!(left.known && left.instances.is_empty());
    assert_eq!(number(&file, "SELECT count(*) FROM anarchon_instance").await, 0);
}

// Locks and deadlines.

#[tokio::test]
async fn a_lost_claim_needs_no_lock_and_a_winning_one_reports_who_is_in_the_way() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let store = opened(&file).await;
    register(&store, "held").await;
    register(&store, "free").await;
    win(&store, "held", 1).await;
    let decided = store.inspect(&[job("held")], 0).await.remove(0).unwrap().value.unwrap().record.decided;
    let at = due(&store, "free").await;
    let mut other = raw(&file).await;
    let blocking = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let began = Instant::now();
    let future = Millis(at.0 + 3_600_000);
    let lost = store.claim(&[claim("held", decided, 2), claim("free", future, 3)]).await;
    assert!(matches!(lost[0].as_ref().unwrap().value, Verdict::AlreadyDecided(_)));
    assert_eq!(lost[1].as_ref().unwrap().value, Verdict::Early);
    assert!(began.elapsed() < Duration::from_secs(3), "waited for the lock");
    // The item that has to write fails; the one that does not is answered all the same.
    let mixed = store.claim(&[claim("held", decided, 4), claim("free", at, 5)]).await;
    assert!(mixed[0].is_ok());
    let error = mixed[1].clone().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    has(&error, &["jobs.db", "locked by another", "transaction open"]);
    blocking.rollback().await.unwrap();
    win(&store, "free", 6).await;
}

#[tokio::test]
async fn a_call_cut_off_at_any_moment_leaves_no_transaction_behind() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let (store, other) = (opened(&file).await, opened(&file).await);
    register(&store, "j").await;
    register(&other, "k").await;
    let (mut cut_off, mut last) = (0, Token(0));
    for i in 1..400_u64 {
        let at = due(&other, "j").await;
        let claims = [claim("j", at, i)];
        // Cut off after this many steps; the last one under way, or just done.
        let (steps, at_once) = (i / 2 % 20, i % 2 == 0);
        cut_off += u32::from(cut(store.claim(&claims), steps, at_once).await.is_none());
        // The other connection's claim would wait 5 s for a transaction left open.
        let began = Instant::now();
        let token = win(&other, "k", i).await;
        assert!(began.elapsed() < Duration::from_secs(4), "blocked after {steps} steps");
        assert!(token > last);
        last = token;
        other.finish(&[finish("k", token)]).await.remove(0).unwrap();
        let record = other.inspect(&[job("j")], 0).await.remove(0).unwrap().value.unwrap().record;
        store.finish(&[finish("j", record.token)]).await.remove(0).unwrap();
    }
    assert!((50..390).contains(&cut_off), "{cut_off} of 399 calls were cut off");
}

/// Drops a future at its n-th wait; at once, or when it could go on.
async fn cut<T>(future: impl Future<Output = T>, steps: u64, at_once: bool) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut left = steps;
    std::future::poll_fn(|context| {
        if left == 0 && !at_once {
            return Poll::Ready(None);
        }
        match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => {
                left -= 1;
                Poll::Pending
            }
        }
    })
    .await
}

// Files that vanish, break or may not be written.

#[tokio::test]
async fn a_vanished_file_is_reported_and_used_again_once_it_is_back() {
    let dir = TempDir::new().unwrap();
    let (file, away) = (dir.path().join("jobs.db"), dir.path().join("away.db"));
    let store = opened(&file).await;
    register(&store, "j").await;
    let token = win(&store, "j", 1).await;
    move_database(&file, &away);
    let error = store.finish(&[finish("j", token)]).await.remove(0).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    has(&error, &["jobs.db", "vanished", "put it back"]);
    assert!(store.inspect(&[job("j")], 0).await.remove(0).is_err());
    assert!(store.beat(&present("a")).await.is_err());
    assert!(!file.exists(), "a call must not create an empty store behind the user's back");
    move_database(&away, &file);
    let closed = store.finish(&[finish("j", token)]).await.remove(0).unwrap().value;
    assert!(matches!(closed, Finished::Closed(_)));
}

#[tokio::test]
async fn a_replaced_file_is_noticed_by_those_who_had_the_old_one_open() {
    let dir = TempDir::new().unwrap();
    let (file, away) = (dir.path().join("jobs.db"), dir.path().join("away.db"));
    let store = opened(&file).await;
    register(&store, "j").await;
    win(&store, "j", 1).await;
    move_database(&file, &away);
    let restarted = opened(&file).await;
    let at = register(&restarted, "k").await;
    let verdict = store.claim(&[claim("j", at.millis(), 2)]).await.remove(0).unwrap().value;
    assert_eq!(verdict, Verdict::Unregistered);
    assert!(store.inspect(&[job("k")], 0).await.remove(0).unwrap().value.is_some());
}

#[tokio::test]
async fn dropped_tables_are_made_again() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let store = opened(&file).await;
    register(&store, "j").await;
    execute(&file, "DROP TABLE anarchon_job; DROP TABLE anarchon_meta").await;
    assert!(store.claim(&[claim("j", Millis(1), 1)]).await[0].is_err());
    let verdict = store.claim(&[claim("j", Millis(1), 1)]).await.remove(0).unwrap().value;
    assert_eq!(verdict, Verdict::Unregistered);
}

#[tokio::test]
async fn a_file_of_another_kind_and_a_damaged_one_are_named_and_survived() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    fs::write(&file, "This is a letter, not a database. ".repeat(100)).unwrap();
    let store = SqliteBackend::connect(&url(&file)).unwrap();
    let error = store.open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["jobs.db", "another kind", "move this one away"]);
    fs::remove_file(&file).unwrap();
    store.open(&ns()).await.unwrap();
    let specs: Vec<JobSpec> = (0..200).map(|i| spec(&format!("j{i}"))).collect();
    store.register(&specs).await;
    execute(&file, "PRAGMA wal_checkpoint(TRUNCATE)").await;
    drop(store);
    let whole = fs::read(&file).unwrap();
    let mut broken = whole.clone();
    broken[4096..].fill(0xA5);
    put_database(&file, &broken);
    let store = SqliteBackend::connect(&url(&file)).unwrap();
    let error = match store.open(&ns()).await {
        Err(error) => error,
        Ok(_) => store.register(&[spec("j1")]).await.remove(0).unwrap_err(),
    };
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["jobs.db", "damaged", "backup"]);
    put_database(&file, &whole);
    store.open(&ns()).await.unwrap();
    let known = store.register(&[spec("j1")]).await.remove(0).unwrap().value;
    assert!(matches!(known, Registered::InForce(_)), "{known:?}");
}

#[tokio::test]
async fn a_full_disk_is_reported_and_survived() {
    if !is_root() {
        eprintln!("not root, so no small disk: see a_limit_on_file_size_is_reported_and_survived instead");
        return;
    }
    let disk = SmallDisk::mount();
    let file = disk.path().join("jobs.db");
    let store = opened(&file).await;
    register(&store, "first").await;
    let token = win(&store, "first", 1).await;
    let filler = disk.path().join("filler");
    fill(&filler);
    // The log may still have room in its last block.
    let mut refused = None;
    for i in 0..2_000 {
        if let Err(error) = store.register(&[spec(&format!("j{i}"))]).await.remove(0) {
            refused = Some((i, error));
            break;
        }
    }
    let (i, error) = refused.expect("the disk never got full");
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    has(&error, &["jobs.db", "disk"]);
    assert!(store.finish(&[finish("first", token)]).await[0].is_err());
    fs::remove_file(&filler).unwrap();
    let closed = store.finish(&[finish("first", token)]).await.remove(0).unwrap().value;
    assert!(matches!(closed, Finished::Closed(_)));
    let new = store.register(&[spec(&format!("j{i}"))]).await.remove(0).unwrap().value;
    assert!(matches!(new, Registered::Created(_)), "a refused write must not be there: {new:?}");
}

#[tokio::test]
async fn opening_on_a_full_disk_is_reported_and_survived() {
    if !is_root() {
        eprintln!("not root, so no small disk: see a_limit_on_file_size_is_reported_and_survived instead");
        return;
    }
    let disk = SmallDisk::mount();
    let filler = disk.path().join("filler");
    fill(&filler);
    let store = SqliteBackend::connect(&url(&disk.path().join("jobs.db"))).unwrap();
    has(&store.open(&ns()).await.unwrap_err(), &["jobs.db", "disk"]);
    fs::remove_file(&filler).unwrap();
    store.open(&ns()).await.unwrap();
    register(&store, "j").await;
}

#[test]
fn a_limit_on_file_size_is_reported_and_survived() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let out = Command::new(PEER).args(["limited", &url(&file), "300000"]).output().unwrap();
    let out = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    has(&out, &["jobs.db", "quota", "works again"]);
}

#[tokio::test]
async fn a_database_that_may_not_be_written_is_refused_at_open() {
    // Permissions do not bind root; a read-only mount does.
    let place =
        if is_root() { Place::Mounted(SmallDisk::mount()) } else { Place::Folder(TempDir::new().unwrap()) };
    let file = place.path().join("jobs.db");
    let store = opened(&file).await;
    register(&store, "j").await;
    drop(store);
    place.protect(&file, true);
    let store = SqliteBackend::connect(&url(&file)).unwrap();
    let error = store.open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["jobs.db", "cannot be", "right to write"]);
    let new = SqliteBackend::connect(&url(&place.path().join("new.db"))).unwrap();
    has(&new.open(&ns()).await.unwrap_err(), &["new.db", "cannot be", "right to write"]);
    place.protect(&file, false);
    store.open(&ns()).await.unwrap();
    win(&store, "j", 1).await;
}

#[tokio::test]
async fn a_database_that_may_not_be_written_is_refused_though_a_crash_left_its_log() {
    let from = TempDir::new().unwrap();
    let file = from.path().join("jobs.db");
    let store = opened(&file).await;
    register(&store, "j").await;
    let place =
        if is_root() { Place::Mounted(SmallDisk::mount()) } else { Place::Folder(TempDir::new().unwrap()) };
    // As a process that is killed leaves them: such a database can be read where nothing can be written.
    for name in ["jobs.db", "jobs.db-wal", "jobs.db-shm"] {
        fs::copy(from.path().join(name), place.path().join(name)).unwrap();
    }
    let file = place.path().join("jobs.db");
    place.protect(&file, true);
    let error = SqliteBackend::connect(&url(&file)).unwrap().open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["jobs.db", "cannot be", "right to write"]);
    place.protect(&file, false);
    win(&opened(&file).await, "j", 1).await;
}

// Processes.

#[tokio::test]
async fn twenty_processes_that_start_at_once_create_one_store_and_share_each_job_out_once() {
    let dir = TempDir::new().unwrap();
    let (file, gate) = (dir.path().join("jobs.db"), dir.path().join("gate"));
    let mut peers: Vec<_> = (0..20)
        .map(|_| {
            let args = ["race", &url(&file), &gate.display().to_string(), "100"];
            Command::new(PEER).args(args).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut outs: Vec<_> =
        peers.iter_mut().map(|p| BufReader::new(p.stdout.take().unwrap()).lines()).collect();
    for out in &mut outs {
        assert_eq!(out.next().expect("a process ended early").unwrap(), "ready");
    }
    let store = SqliteBackend::connect(&url(&file)).unwrap();
    store.open(&Namespace::new("peers").unwrap()).await.unwrap();
    let mut at = Millis(0);
    for i in 0..100 {
        at = at.max(due(&store, &format!("job-{i:04}")).await);
    }
    fs::write(dir.path().join("g"), at.0.to_string()).unwrap();
    fs::rename(dir.path().join("g"), &gate).unwrap();
    let mut winners: BTreeMap<String, u32> = BTreeMap::new();
    for line in outs.into_iter().flatten() {
        *winners.entry(line.unwrap()).or_default() += 1;
    }
    for peer in &mut peers {
        assert!(peer.wait().unwrap().success());
    }
    assert_eq!(winners.len(), 100, "{winners:?}");
    assert!(winners.values().all(|wins| *wins == 1), "{winners:?}");
}

#[tokio::test]
async fn a_process_killed_at_any_moment_leaves_one_whole_record_and_every_award_it_was_told_of() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut newest: BTreeMap<String, u64> = BTreeMap::new();
    for kill in 0..40 {
        let mut peer =
            Command::new(PEER).args(["storm", &url(&file), "30"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(peer.stdout.take().unwrap()).lines();
        let mut told = 0;
        let mut note = |line: String| {
            let Some((job, token)) = line.split_once(' ') else { return };
            let Ok(token) = token.parse::<u64>() else { return };
            let before = newest.insert(job.to_owned(), token);
            assert!(before.is_none_or(|b| b < token), "kill {kill}: {job} {before:?} then {token}");
        };
        let enough = random.u32(30..600);
        while told < enough {
            note(lines.next().expect("the process ended by itself").unwrap());
            told += 1;
        }
        std::thread::sleep(Duration::from_micros(random.u64(0..3_000)));
        peer.kill().unwrap();
        peer.wait().unwrap();
        lines.map_while(Result::ok).for_each(&mut note);
        assert_eq!(number(&file, "SELECT integrity_check = 'ok' FROM pragma_integrity_check").await, 1);
        let store = SqliteBackend::connect(&url(&file)).unwrap();
        store.open(&Namespace::new("peers").unwrap()).await.unwrap();
        for (name, token) in &newest {
            let read = store.inspect(&[job(name)], 20).await.remove(0).unwrap().value.unwrap();
            assert!(read.record.token >= Token(*token), "kill {kill}: the award {token} of {name} is gone");
            // As if its lease were over, so that the next process finds the job free.
            store.finish(&[finish(name, read.record.token)]).await.remove(0).unwrap();
        }
    }
    assert_eq!(number(&file, "SELECT count(*) FROM anarchon_job").await, 30);
}

// Clocks.

#[tokio::test]
async fn one_wrong_wall_clock_of_three_neither_starts_early_nor_twice_nor_stops_the_job() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let time = Hands::new();
    let clocks = [time.clock(), time.clock(), time.clock()];
    let mut stores = Vec::new();
    for clock in &clocks {
        let store = SqliteBackend::connect(&url(&file)).unwrap().with_clock(clock.clone());
        store.open(&ns()).await.unwrap();
        stores.push(store);
    }
    register(&stores[0], "j").await;
    let mut won: BTreeMap<i64, u32> = BTreeMap::new();
    let hours = 2 * 3_600_000_000;
    for (second, seq) in (0..90_u64).zip((1..).step_by(10)) {
        time.pass(Duration::from_secs(1));
        clocks[0].off.store(if (20..50).contains(&second) { hours } else { 0 }, Ordering::Relaxed);
        if second % 10 == 0 {
            for (name, store) in ["a", "b", "c"].into_iter().zip(&stores) {
                store.beat(&present(name)).await.unwrap();
            }
        }
        let right = time.wall() / 1_000;
        // The wrong one comes first, with what it believes to be due, and with what is.
        for (store, seq) in stores.iter().zip(seq..) {
            for at in [right + 7_200_000, right - right % 1_000] {
                let answer = store.claim(&[claim("j", Millis(at), seq)]).await.remove(0).unwrap();
                assert!((answer.now.0 - time.wall()).abs() < 2_000_000, "second {second}: {:?}", answer.now);
                if let Verdict::Awarded(award) = answer.value {
                    assert!(at <= right, "second {second}: started early");
                    *won.entry(at).or_default() += 1;
                    store.finish(&[finish("j", award.token)]).await.remove(0).unwrap();
                }
            }
        }
    }
    assert!(won.values().all(|times| *times == 1), "{won:?}");
    assert!(won.len() >= 89, "only {} of 90 seconds ran", won.len());
}

#[tokio::test]
async fn the_clock_of_the_whole_host_is_followed_when_it_is_set() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.db");
    let time = Hands::new();
    let clock = time.clock();
    let store = SqliteBackend::connect(&url(&file)).unwrap().with_clock(clock.clone());
    store.open(&ns()).await.unwrap();
    let before = store.beat(&present("a")).await.unwrap().now;
    clock.off.store(-3_600_000_000, Ordering::Relaxed);
    time.pass(Duration::from_secs(10));
    assert!(store.beat(&present("a")).await.unwrap().now > before);
    time.pass(Duration::from_secs(40));
    let after = store.beat(&present("a")).await.unwrap();
    assert!((after.now.0 - clock.wall_micros()).abs() < 1_000, "{after:?}");
    assert_eq!(after.value.instances, [instance("a")]);
}

#[test]
fn a_process_under_faked_time_goes_by_the_clock_of_the_others_and_is_warned() {
    let dir = TempDir::new().unwrap();
    let file = url(&dir.path().join("jobs.db"));
    let mut faked = Command::new("faketime");
    faked.args(["-f", "+2h", PEER, "clock", &file, "2"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut right = Command::new(PEER).args(["clock", &file, "60"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(right.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let Ok(faked) = faked.spawn() else {
        eprintln!(
            "no program faketime here: one_wrong_wall_clock_of_three tests the same with clocks of its own"
        );
        right.kill().unwrap();
        right.wait().unwrap();
        return;
    };
    let faked = faked.wait_with_output().unwrap();
    let off: i64 = lines.next().unwrap().unwrap().parse().unwrap();
    right.kill().unwrap();
    right.wait().unwrap();
    assert!(off.abs() < 1_000, "the right process followed the wrong one: {off} ms");
    let out = String::from_utf8_lossy(&faked.stdout);
    assert!(out.lines().count() > 10, "{out}");
    for line in out.lines() {
        let off: i64 = line.parse().unwrap();
        assert!((off + 7_200_000).abs() < 1_000, "{off} ms from its own clock");
    }
    let warned = String::from_utf8_lossy(&faked.stderr);
    assert_eq!(warned.matches("differs from the one").count(), 1, "{warned}");
    has(&warned, &["jobs.db", "7200", "set it right"]);
}

// Network file systems.

#[tokio::test]
async fn a_fuse_mount_is_refused_with_its_name_and_the_mend() {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("not root, or no /dev/fuse: the numbers of file systems are tested in the crate");
        return;
    }
    let fuse = Fuse::mount();
    let file = fuse.0.path().join("jobs.db");
    let error = SqliteBackend::connect(&url(&file)).unwrap().open(&ns()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured);
    has(&error, &["jobs.db", "FUSE", "local disk"]);
}

// Helpers. One folder per test, deleted with it.

fn url(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}
async fn opened(file: &Path) -> SqliteBackend {
    let store = SqliteBackend::connect(&url(file)).unwrap();
    store.open(&ns()).await.unwrap();
    store
}
fn present(name: &str) -> Announcement {
    Announcement::Present {
        instance: instance(name),
        schedules: vec![(job("j"), schedule())],
        zones: "2025b".into(),
        contested: vec![],
    }
}
async fn raw(file: &Path) -> SqliteConnection {
    SqliteConnection::connect(&url(file)).await.unwrap()
}
async fn execute(file: &Path, sql: &str) {
    let mut connection = raw(file).await;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}
async fn number(file: &Path, sql: &'static str) -> i64 {
    let mut connection = raw(file).await;
    let n = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    n
}
fn has(message: &dyn std::fmt::Display, words: &[&str]) {
    let message = message.to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
fn part(base: &Path, end: &str) -> PathBuf {
    PathBuf::from(format!("{}{end}", base.display()))
}
fn move_database(from: &Path, to: &Path) {
    for end in ["", "-wal", "-shm"] {
        if part(from, end).exists() {
            fs::rename(part(from, end), part(to, end)).unwrap();
        }
    }
}
fn put_database(file: &Path, content: &[u8]) {
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(part(file, end));
    }
    fs::write(file, content).unwrap();
}
fn fill(file: &Path) {
    let mut filler = fs::File::create(file).unwrap();
    for size in [4096, 1] {
        while filler.write_all(&vec![0; size]).is_ok() {}
    }
}

/// A small file system of its own, unmounted at the end.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let dir = TempDir::new().unwrap();
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), Some(c"size=400k")).unwrap();
        Self(dir)
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

/// A place whose files can be protected against this process.
enum Place {
    Mounted(SmallDisk),
    Folder(TempDir),
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Mounted(disk) => disk.path(),
            Self::Folder(dir) => dir.path(),
        }
    }
    fn protect(&self, file: &Path, yes: bool) {
        match self {
            Self::Mounted(disk) => {
                let flags = if yes { MountFlags::RDONLY } else { MountFlags::empty() };
                // A connection that was just dropped is closed by its own thread; busy until then.
                let limit = Instant::now() + Duration::from_secs(10);
                while let Err(e) = mount_remount(disk.path(), flags, c"size=400k") {
                    assert!(Instant::now() < limit, "{e}");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            Self::Folder(dir) => {
                let modes = if yes { [0o444, 0o555] } else { [0o644, 0o755] };
                fs::set_permissions(file, fs::Permissions::from_mode(modes[0])).unwrap();
                fs::set_permissions(dir.path(), fs::Permissions::from_mode(modes[1])).unwrap();
            }
        }
    }
}

/// The time of a host, moved by hand.
#[derive(Debug, Clone)]
struct Hands(Arc<AtomicU64>);

impl Hands {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_000_000_000)))
    }
    fn pass(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_micros()).unwrap(), Ordering::Relaxed);
    }
    fn wall(&self) -> i64 {
        1_800_000_000_000_000 + i64::try_from(self.0.load(Ordering::Relaxed)).unwrap()
    }
    fn clock(&self) -> Arc<ProcessClock> {
        Arc::new(ProcessClock { hands: self.clone(), off: AtomicI64::new(0) })
    }
}

/// What one process sees of it: the monotonic clock as it is, the wall clock possibly off.
#[derive(Debug)]
struct ProcessClock {
    hands: Hands,
    off: AtomicI64,
}

impl Clock for ProcessClock {
    fn wall_micros(&self) -> i64 {
        self.hands.wall() + self.off.load(Ordering::Relaxed)
    }
    fn mono(&self) -> Mono {
        Mono(self.hands.0.load(Ordering::Relaxed))
    }
}

/// A FUSE mount that knows just enough of the kernel's protocol to be asked what it is.
struct Fuse(TempDir);

impl Fuse {
    fn mount() -> Self {
        use std::os::fd::AsRawFd as _;
        let dir = TempDir::new().unwrap();
        let device = fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        mount("anarchon-test", dir.path(), "fuse", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        std::thread::spawn(move || answer_fuse(device));
        Self(dir)
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// Requests are (length, opcode, unique, …), answers (length, error, unique, …); linux/fuse.h.
fn answer_fuse(mut device: fs::File) {
    use std::io::Read as _;
    let mut request = vec![0_u8; 1 << 20];
    while let Ok(n) = device.read(&mut request) {
        let Some(header) = request[..n].get(..40) else { return };
        let opcode = u32::from_ne_bytes(header[4..8].try_into().unwrap());
        let (error, body) = match opcode {
            // INIT: version 7.8, the oldest in use; its answer has 24 bytes.
            26 => (0, [7_u32, 8, 0, 0, 0, 4096].iter().flat_map(|v| v.to_ne_bytes()).collect()),
            // GETATTR of the root: a directory with inode 1.
            3 => (0, root_attributes()),
            // STATFS: all zero; the kernel itself fills in the kind.
            17 => (0, vec![0_u8; 80]),
            // LOOKUP: no such file.
            1 => (-2, vec![]),
            // Anything else: not supported.
            _ => (-38_i32, vec![]),
        };
        let length = u32::try_from(16 + body.len()).unwrap();
        let mut answer = length.to_ne_bytes().to_vec();
        answer.extend(error.to_ne_bytes());
        answer.extend(&header[8..16]);
        answer.extend(body);
        let _ = device.write(&answer);
    }
}

fn root_attributes() -> Vec<u8> {
    // fuse_attr_out of 7.8: valid (u64), valid_nsec, dummy, then fuse_attr: ino (u64), six u64, three u32, mode, nlink, …
    let mut out = vec![0_u8; 96];
    out[16..24].copy_from_slice(&1_u64.to_ne_bytes());
    out[76..80].copy_from_slice(&0o40755_u32.to_ne_bytes());
    out[80..84].copy_from_slice(&2_u32.to_ne_bytes());
    out
}
