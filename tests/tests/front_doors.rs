//! What a user reaches for: `Scheduler`, `Job`, `Context`, `Running`, URLs and their errors.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anarchon::{
    CancelReason, ErrorKind, MemoryBackend, Running,
    prelude::*,
    protocol::{JobName, Namespace, Status},
    store::Store as _,
};
use anarchon_tests::faulty::{Fault, Faulty};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// Long enough for any machine; nothing waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(60);

async fn next<T>(receiver: &mut UnboundedReceiver<T>) -> T {
    tokio::time::timeout(PATIENCE, receiver.recv()).await.expect("in time").expect("the sender is there")
}

fn scheduler() -> Scheduler {
    Scheduler::new(MemoryBackend::new()).namespace("test")
}

fn scheduler_on(store: &MemoryBackend) -> Scheduler {
    Scheduler::new(store.clone()).namespace("test")
}

/// A handler that says what it was given.
fn tell(
    sender: UnboundedSender<Context>,
) -> impl Fn(Context) -> std::future::Ready<()> + Send + Sync + 'static {
    move |context| {
        let _ = sender.send(context);
        std::future::ready(())
    }
}

/// An interval too long to come round in a test.
const NEVER: &str = "52w";

#[tokio::test]
async fn every_wrong_value_is_told_in_one_error_before_anything_starts() {
    let error = scheduler()
        .namespace("a b")
        .every("fast", "1ms", |_| async {})
        .cron("digest", Cron::new("0 8 * * 1-5").tz("Europe/Athen"), |_| async {})
        .job(Job::every("no name", "1s", |_| async {}))
        .job(Job::every("lease", "1h", |_| async {}).lease("2s").jitter("2h").max_attempts(0))
        .job(Job::every("twice", "1h", |_| async {}).timeout(Duration::ZERO).backoff("5m..5s"))
        .job(Job::every("twice", "2h", |_| async {}).catch_up("soon"))
        .concurrency(0)
        .drain("never")
        .start()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    let message = error.to_string();
    for part in [
        "namespace \"a b\"",
        "\"fast\"",
        "100ms",
        "Europe/Athens",
        "\"no name\"",
        "lease 2s is shorter than 5s",
        "jitter 7200s",
        "max_attempts 0",
        "timeout 0s",
        "backoff starts at 300s",
        "two jobs are named \"twice\"",
        "catch_up: \"s\" cannot stand here in duration \"soon\"; put a whole number before the unit, such as \"10s\", or \
         write \"none\" for no catch-up",
        "concurrency 0",
        "drain: ",
    ] {
        assert!(message.contains(part), "{part:?} is not told in:\n{message}");
    }
}

#[tokio::test]
async fn what_is_longer_than_100_years_is_refused_wherever_it_stands() {
    let long = Duration::from_secs(100 * 366 * 86_400) + Duration::from_millis(1);
    for long in [long, Duration::MAX] {
        let job =
            Job::cron("job", "@yearly", |_| async {}).lease(long).jitter(long).catch_up(long).timeout(long);
        let job = job.backoff(Duration::from_secs(5)..=long);
        let error = scheduler().job(job).drain(long).start_timeout(long).start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        for option in ["lease", "jitter", "catch_up", "timeout", "backoff", "drain", "start_timeout"] {
            assert!(error.to_string().contains(&format!("{option} ")), "{option} in {error}");
        }
        assert_eq!(error.to_string().matches("longer than 100 years").count(), 7, "{error}");
    }
}

#[tokio::test]
async fn a_backoff_that_the_attributes_refuse_is_refused_here_too() {
    for (backoff, mend) in
        [("5s", "is no range"), ("0s..5m", "without a pause"), ("5m..5s", "shorter delay first")]
    {
        let job = Job::every("job", "1s", |_| async {}).backoff(backoff);
        let error = scheduler().job(job).start().await.unwrap_err();
        assert!(error.to_string().contains(mend), "{backoff}: {error}");
    }
}

#[tokio::test]
async fn options_of_100_years_are_borne_by_every_embedded_store() {
    let folder = tempfile::tempdir().unwrap();
    let long = Duration::from_secs(100 * 366 * 86_400);
    for url in ["memory:".to_owned(), format!("sqlite:{}", folder.path().join("jobs.db").display())] {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let (tell_jittered, mut jittered) = mpsc::unbounded_channel();
        let failing = Job::every("failing", NEVER, move |context: Context| {
            let _ = sender.send(context);
            async { Err::<(), _>("no luck") }
        });
        // Its backoff ends in a hundred years.
        let failing =
            failing.retries(1).backoff(long..=long).jitter("1h").timeout(long).max_attempts(u32::MAX);
        let running = Scheduler::connect(&url)
            .unwrap()
            .namespace("test")
            .job(failing)
            .job(Job::every("often", "1s", tell(tell_jittered)).retries(u32::MAX))
            .cron("yearly", "0 0 1 1 *", |_| async {})
            .job(Job::cron("jittered", "0 0 1 1 *", |_| async {}).jitter(long))
            .lease(long)
            .catch_up(long)
            .drain(long)
            .start_timeout(long)
            .concurrency(usize::MAX)
            .start()
            .await
            .unwrap();
        for number in 1..=2 {
            running.trigger("failing").await.unwrap();
            let context = next(&mut receiver).await;
            assert_eq!((context.attempt(), context.is_cancelled()), (1, false), "{url}");
            assert_eq!(context.occurrence_id().to_string(), format!("test/failing/manual-{number}"), "{url}");
            let left = context.lease_remaining();
            assert!(left > long - Duration::from_secs(3600) && left <= long, "{url}: {left:?}");
        }
        let first = next(&mut jittered).await;
        assert!(next(&mut jittered).await.scheduled_at() > first.scheduled_at(), "{url}");
        running.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_scheduler_without_jobs_is_a_configuration_error() {
    let error = scheduler().start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("there are no jobs"), "{error}");
}

#[tokio::test]
async fn closures_alone_need_a_namespace() {
    let error =
        Scheduler::new(MemoryBackend::new()).every("a", "1s", |_| async {}).start().await.unwrap_err();
    assert!(error.to_string().contains("ANARCHON_NAMESPACE"), "{error}");
}

#[test]
fn outside_of_a_runtime_start_says_so() {
    let start = scheduler().every("a", "1s", |_| async {}).start();
    let error = futures_lite_block_on(start).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoRuntime);
}

/// Polls once, without any runtime: `start` fails before it waits for anything.
fn futures_lite_block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("start waits although there is no runtime"),
    }
}

#[test]
fn a_url_picks_the_store_and_a_wrong_one_names_the_mend() {
    for url in [
        "memory:",
        "sqlite::memory:",
        "sqlite:jobs.db",
        "sqlite://jobs.db",
        "SQLite:jobs.db",
        "redis://localhost",
        "rediss://localhost",
        "valkey://localhost",
        "postgres://localhost/jobs",
        "nats://localhost",
        "tls://one:4222,two",
        "amqp://localhost/jobs?queues=quorum",
        "amqps://localhost",
    ] {
        assert!(Scheduler::connect(url).is_ok(), "{url}");
    }
    let error = Scheduler::connect("nonsense").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
}

#[test]
fn the_memory_store_has_a_url_as_every_store_has() {
    for url in ["memory:", "memory://"] {
        assert!(MemoryBackend::connect(url).is_ok(), "{url}");
    }
    for url in ["memory", "memory:x", "sqlite:jobs.db", "", "redis://user:geheim@localhost"] {
        let error = MemoryBackend::connect(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration, "{url}");
        assert!(!error.to_string().contains("geheim"), "{error}");
    }
}

#[tokio::test]
async fn a_handler_is_told_which_occurrence_it_runs_for() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let running = scheduler().every("sync", "1s", tell(sender)).start().await.unwrap();
    let (first, second) = (next(&mut receiver).await, next(&mut receiver).await);
    assert_eq!(first.job(), "sync");
    assert_eq!(first.attempt(), 1);
    assert_eq!(second.scheduled_at() - first.scheduled_at(), chrono::TimeDelta::seconds(1));
    assert_eq!(first.scheduled_at().timestamp_subsec_millis(), 0, "occurrences lie on the grid");
    assert_eq!(first.scheduled_local(), first.scheduled_at());
    assert!(second.fencing_token() > first.fencing_token());
    assert!(!first.is_catch_up());
    let planned = first.scheduled_at().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    assert_eq!(first.occurrence_id().to_string(), format!("test/sync/{planned}"));
    assert_eq!(first.instance(), second.instance());
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_context_for_tests_needs_no_scheduler() {
    let context = Context::for_test("digest", "2027-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(context.job(), "digest");
    assert_eq!(context.attempt(), 1);
    assert!(!context.is_cancelled());
    assert_eq!(context.cancel_reason(), None);
    assert!(context.lease_remaining() > Duration::from_secs(3600));
}

async fn triggered(job: Job) -> Running {
    let name = job.name().to_owned();
    let running = scheduler().drain("2s").job(job).start().await.expect("it starts");
    running.trigger(&name).await.expect("the job is there");
    running
}

#[tokio::test]
async fn a_job_that_is_forgotten_begins_anew() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let running = scheduler().every("a", "1s", tell(sender)).start().await.unwrap();
    running.pause("a").await.unwrap();
    running.forget("a").await.unwrap();
    // The pause is forgotten as well.
    while receiver.try_recv().is_ok() {}
    next(&mut receiver).await;
    let error = running.forget("b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_triggered_job_runs_although_it_is_paused_and_not_due() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let running = scheduler().every("a", NEVER, tell(sender)).start().await.unwrap();
    running.pause("a").await.unwrap();
    running.trigger("a").await.unwrap();
    let context = next(&mut receiver).await;
    assert_eq!(context.occurrence_id().to_string(), "test/a/manual-1");
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_paused_job_starts_no_occurrence_until_it_is_resumed() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let (other, mut others) = mpsc::unbounded_channel();
    let running =
        scheduler().every("a", "1s", tell(sender)).every("b", "1s", tell(other)).start().await.unwrap();
    running.pause("a").await.unwrap();
    while receiver.try_recv().is_ok() {}
    for _ in 0..3 {
        next(&mut others).await;
    }
    // One may have been awarded just before the pause was kept.
    let awarded = std::iter::from_fn(|| receiver.try_recv().ok()).count();
    assert!(awarded <= 1, "{awarded} occurrences ran in spite of the pause");
    running.resume("a").await.unwrap();
    next(&mut receiver).await;
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_order_for_an_unknown_job_names_it() {
    let running = scheduler().every("a", NEVER, |_| async {}).start().await.unwrap();
    for name in ["b", "no name"] {
        let error = running.trigger(name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(name), "{error}");
    }
    let error = running.cancel("a").await.unwrap_err();
    assert!(error.to_string().contains("no run to cancel"), "{error}");
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_operator_cancels_a_run_and_no_attempt_follows() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let job = Job::every("a", NEVER, move |context: Context| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(("started", None, context.attempt()));
            context.cancelled().await;
            let _ = sender.send(("cancelled", context.cancel_reason(), context.attempt()));
        }
    })
    .lease("5s");
    let running = triggered(job).await;
    assert_eq!(next(&mut receiver).await, ("started", None, 1));
    running.cancel("a").await.unwrap();
    assert_eq!(next(&mut receiver).await, ("cancelled", Some(CancelReason::Operator), 1));
    // The next trigger is the next thing that runs.
    running.trigger("a").await.unwrap();
    assert_eq!(next(&mut receiver).await, ("started", None, 1));
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_takes_longer_than_its_timeout_is_cancelled_and_retried() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let job = Job::every("a", NEVER, move |context: Context| {
        let sender = sender.clone();
        async move {
            let _ = sender.send((context.attempt(), None));
            if context.attempt() == 1 {
                context.cancelled().await;
                let _ = sender.send((context.attempt(), context.cancel_reason()));
            }
        }
    })
    .timeout("300ms")
    .retries(1)
    .backoff("100ms..1s");
    let running = triggered(job).await;
    assert_eq!(next(&mut receiver).await, (1, None));
    assert_eq!(next(&mut receiver).await, (1, Some(CancelReason::Timeout)));
    assert_eq!(next(&mut receiver).await, (2, None));
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_sync_handler_runs_off_the_callers_thread() {
    struct Blocking(Arc<Mutex<Option<std::thread::ThreadId>>>, UnboundedSender<()>);
    #[jobs]
    impl Blocking {
        #[every("1s")]
        fn work(&self) {
            *self.0.lock().unwrap() = Some(std::thread::current().id());
            let _ = self.1.send(());
        }
    }
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let thread = Arc::new(Mutex::new(None));
    let running = scheduler().jobs(Blocking(Arc::clone(&thread), sender)).start().await.unwrap();
    next(&mut receiver).await;
    assert_ne!(thread.lock().unwrap().unwrap(), std::thread::current().id());
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_shutdown_waits_for_runs_and_starts_no_more() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let job = Job::every("a", NEVER, move |_| {
        let (sender, count) = (sender.clone(), Arc::clone(&count));
        async move {
            let _ = sender.send(());
            tokio::time::sleep(Duration::from_millis(300)).await;
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let running = triggered(job).await;
    next(&mut receiver).await;
    running.shutdown().await.unwrap();
    assert_eq!(ended.load(Ordering::SeqCst), 1, "the run was not waited for");
}

#[tokio::test]
async fn a_run_that_outlasts_the_drain_is_cancelled_and_taken_over_by_another_instance() {
    let store = MemoryBackend::new();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let start = |name: &'static str| {
        let sender = sender.clone();
        let job = Job::every("a", NEVER, move |context: Context| {
            let sender = sender.clone();
            async move {
                let _ = sender.send((name, context.attempt(), context.cancel_reason()));
                context.cancelled().await;
                let _ = sender.send((name, context.attempt(), context.cancel_reason()));
            }
        });
        Scheduler::new(store.clone()).namespace("test").job(job).drain("100ms").start()
    };
    let first = start("first").await.unwrap();
    first.trigger("a").await.unwrap();
    assert_eq!(next(&mut receiver).await, ("first", 1, None));
    let second = start("second").await.unwrap();
    first.shutdown().await.unwrap();
    assert_eq!(next(&mut receiver).await, ("first", 1, Some(CancelReason::Shutdown)));
    assert_eq!(next(&mut receiver).await, ("second", 2, None));
    second.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_does_not_hold_up_the_end_and_is_taken_over_after_its_lease_not_before() {
    struct Blocking(UnboundedSender<Context>, Mutex<std::sync::mpsc::Receiver<()>>);
    #[jobs]
    impl Blocking {
        #[every("52w", lease = "5s")]
        fn work(&self, ctx: Context) {
            let _ = self.0.send(ctx);
            // Until the test is over.
            let _ = self.1.lock().unwrap().recv();
        }
    }
    let store = MemoryBackend::new();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let (over, until_over) = std::sync::mpsc::channel();
    let blocking = Blocking(sender.clone(), Mutex::new(until_over));
    let scheduler = || Scheduler::new(store.clone()).namespace("test").drain("100ms");
    let first = scheduler().jobs(blocking).start().await.unwrap();
    first.trigger("work").await.unwrap();
    let context = next(&mut receiver).await;
    let second = scheduler().job(Job::every("work", NEVER, tell(sender)).lease("5s")).start().await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, first.shutdown()).await;
    ended.expect("it does not wait for the handler").unwrap();
    assert_eq!(context.cancel_reason(), Some(CancelReason::Shutdown));
    let handle = store.clone();
    handle.open(&Namespace::new("test").unwrap()).await.unwrap();
    let record = async || {
        let answers = handle.inspect(&[JobName::new("work").unwrap()], 0).await;
        answers.into_iter().next().unwrap().unwrap().value.unwrap().record
    };
    let left = record().await;
    assert_eq!((left.status, left.token.0), (Status::Running, context.fencing_token()));
    let again = next(&mut receiver).await;
    assert_eq!(again.attempt(), 2);
    let taken_over = record().await;
    assert_eq!(taken_over.token.0, again.fencing_token());
    assert!(taken_over.started >= left.until, "{left:?} {taken_over:?}");
    drop(over);
    second.shutdown().await.unwrap();
}

#[test]
fn a_scheduler_whose_runtime_is_gone_ends_instead_of_winning_runs_that_it_cannot_run() {
    let store = MemoryBackend::new();
    let homeless = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let start = scheduler_on(&store).every("job", "100ms", |_| async {}).start();
    let running = homeless.block_on(start).unwrap();
    homeless.shutdown_background();
    let here = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    here.block_on(async {
        tokio::time::timeout(PATIENCE, running.wait()).await.expect("it ends").unwrap();
        // What it had won is for others at once.
        let (sender, mut runs) = mpsc::unbounded_channel();
        let other = scheduler_on(&store).every("job", "100ms", tell(sender)).start().await.unwrap();
        next(&mut runs).await;
        other.shutdown().await.unwrap();
    });
}

#[tokio::test]
async fn a_scheduler_that_has_ended_leaves_its_store_closed() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let scheduler = Scheduler::connect(&url).unwrap().namespace("test");
    scheduler.every("job", NEVER, |_| async {}).start().await.unwrap().shutdown().await.unwrap();
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["jobs.db"]);
}

#[tokio::test]
async fn dropping_a_running_scheduler_stops_it() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let running = scheduler().every("a", "1s", tell(sender)).start().await.unwrap();
    next(&mut receiver).await;
    drop(running);
    // The handler, and with it the sender, goes when the scheduler has ended.
    let ended = async { while receiver.recv().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("the scheduler ends");
}

#[tokio::test]
async fn a_panicking_handler_harms_no_other_job() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let running = scheduler()
        .every("bad", "1s", |_| async {
            if true {
                panic!("as expected by the test")
            }
        })
        .every("good", "1s", tell(sender))
        .start()
        .await
        .unwrap();
    for _ in 0..3 {
        next(&mut receiver).await;
    }
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn concurrency_limits_the_runs_of_an_instance() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let at_once = Arc::new(AtomicUsize::new(0));
    let mut scheduler = scheduler().concurrency(2);
    for n in 0..6 {
        let (sender, at_once) = (sender.clone(), Arc::clone(&at_once));
        scheduler = scheduler.every(format!("job-{n}"), "1s", move |_| {
            let (sender, at_once) = (sender.clone(), Arc::clone(&at_once));
            async move {
                let now = at_once.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
                at_once.fetch_sub(1, Ordering::SeqCst);
                let _ = sender.send(now);
            }
        });
    }
    let running = scheduler.start().await.unwrap();
    for _ in 0..12 {
        assert!(next(&mut receiver).await <= 2);
    }
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn jobs_due_together_leave_in_one_call() {
    let store = Faulty::new(MemoryBackend::new());
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let mut scheduler = Scheduler::new(store.clone()).namespace("test").jitter("0s");
    for n in 0..150 {
        scheduler = scheduler.every(format!("job-{n}"), "2s", tell(sender.clone()));
    }
    let running = scheduler.start().await.unwrap();
    for _ in 0..300 {
        next(&mut receiver).await;
    }
    running.shutdown().await.unwrap();
    assert!(store.claims().contains(&150), "no call had all 150 claims: {:?}", store.claims());
}

#[tokio::test]
async fn a_store_that_fails_in_any_way_ends_nothing() {
    for fault in [Fault::Unavailable, Fault::LostReply, Fault::Hang, Fault::Panic] {
        let store = Faulty::new(MemoryBackend::new());
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let scheduler = Scheduler::new(store.clone()).namespace("test").lease("5s");
        let running = scheduler.every("a", "1s", tell(sender)).start().await.unwrap();
        next(&mut receiver).await;
        store.set(fault);
        let before = store.calls();
        while store.calls() < before + 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        store.set(Fault::None);
        while receiver.try_recv().is_ok() {}
        let first = next(&mut receiver).await;
        let second = next(&mut receiver).await;
        assert!(second.scheduled_at() > first.scheduled_at(), "after {fault:?}");
        running.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_store_that_is_down_at_start_is_tried_again_until_it_is_there() {
    let store = Faulty::new(MemoryBackend::new());
    store.set(Fault::Unavailable);
    let start = Scheduler::new(store.clone()).namespace("test").every("a", NEVER, |_| async {}).start();
    let start = tokio::spawn(start);
    while store.calls() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    store.set(Fault::None);
    start.await.unwrap().unwrap().shutdown().await.unwrap();
}

#[tokio::test]
async fn a_store_that_stays_down_at_start_is_an_error_after_the_start_timeout() {
    for (fault, part) in [
        (Fault::Unavailable, "switched off by the test"),
        (Fault::Hang, "no answer"),
        (Fault::Panic, "panicked"),
    ] {
        let store = Faulty::new(MemoryBackend::new());
        store.set(fault);
        let scheduler = Scheduler::new(store).namespace("test").start_timeout("300ms");
        let error = scheduler.every("a", NEVER, |_| async {}).start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(part) && error.to_string().contains("start_timeout"), "{error}");
    }
}

#[tokio::test]
async fn a_start_that_is_cut_off_tells_what_was_wrong_before() {
    let store = Faulty::new(MemoryBackend::new());
    store.set(Fault::Unavailable);
    let scheduler = Scheduler::new(store.clone()).namespace("test").start_timeout("1s");
    let start = tokio::spawn(async { scheduler.every("a", NEVER, |_| async {}).start().await });
    while store.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    store.set(Fault::Hang);
    let error = start.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("switched off by the test"), "{error}");
}

/// What is logged on this thread from now on.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn begin(&self) -> tracing::subscriber::DefaultGuard {
        let to = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || to.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("not poisoned")).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend(text);
        Ok(text.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_job_that_is_over_is_warned_of_after_a_start_and_not_when_it_is_refused() {
    let log = Log::default();
    let _guard = log.begin();
    let over =
        |scheduler: Scheduler| scheduler.namespace("test").at("past", "2020-01-01T00:00Z", |_| async {});
    let store = Faulty::new(MemoryBackend::new());
    store.set(Fault::Unavailable);
    over(Scheduler::new(store).start_timeout("100ms")).start().await.unwrap_err();
    over(scheduler().every("wrong", "1ms", |_| async {})).start().await.unwrap_err();
    assert!(!log.text().contains("nothing is planned any more"), "{}", log.text());
    let running = over(scheduler()).start().await.unwrap();
    let text = log.text();
    assert_eq!(text.matches("nothing is planned any more: ").count(), 1, "{text}");
    assert!(text.contains("job=past"), "{text}");
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_caller_that_stops_waiting_for_the_start_leaves_nothing_behind() {
    let store = Faulty::new(MemoryBackend::new());
    store.set(Fault::Unavailable);
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let start = Scheduler::new(store.clone()).namespace("test").every("a", "1s", tell(sender)).start();
    let waited = tokio::time::timeout(Duration::from_millis(100), start).await;
    assert!(waited.is_err(), "it started on a store that is down");
    store.set(Fault::None);
    let ended = async { while receiver.recv().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("the scheduler ends");
}

#[tokio::test]
async fn an_error_whose_text_panics_is_a_failed_run_and_ends_nothing() {
    #[derive(Debug)]
    struct Spiteful;
    impl std::fmt::Display for Spiteful {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("as expected by the test")
        }
    }
    impl std::error::Error for Spiteful {}
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let job = Job::every("bad", "1s", move |context: Context| {
        let _ = sender.send(context.scheduled_at());
        async { Err::<(), _>(Spiteful) }
    });
    let running = scheduler().job(job).start().await.unwrap();
    let first = next(&mut receiver).await;
    assert!(next(&mut receiver).await > first, "the next occurrence runs");
    running.shutdown().await.unwrap();
}
