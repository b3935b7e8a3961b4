//! The scheduler's thread on a store that hangs and panics: orders that are cut off, and starting anew after a panic.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anarchon_schedule::{Every, Spec};
use async_trait::async_trait;
use futures_core::Stream;
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc, oneshot},
};

use super::{Order, Plan, PlannedJob, Remote, start, thread};
use crate::{
    CancelReason, Context,
    clock::SystemClock,
    engine::{EngineJob, Settings},
    error::{ErrorKind, Result},
    handler::Handler,
    policy::{Jitter, Policy},
    protocol::{
        Announcement, Claim, Control, ControlAction, Controlled, Fingerprint, Finish, Finished, InstanceId,
        JobName, JobSpec, Members, Namespace, Registered, Renewal, Renewed, Verdict,
    },
    store::{Answer, Guarantees, MemoryBackend, Snapshot, Store, StoreError},
};

/// Long enough for any machine; nothing waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(60);

/// The memory store; hangs and panics on order.
#[derive(Debug, Default)]
struct Unruly {
    inner: MemoryBackend,
    orders: Mutex<Orders>,
    controls: AtomicUsize,
    registers: AtomicUsize,
    /// How many attempts to open it hang, before one that does not.
    hangs_at_open: AtomicUsize,
    withdrawn: AtomicBool,
    /// Makes the driver panic: it is the driver that polls the hints.
    panic: Arc<Notify>,
    panicked: Arc<AtomicBool>,
    panics_at_once: AtomicBool,
    shortest_lease: Duration,
    /// The beats, each with what lets it go on.
    beats: Mutex<Option<mpsc::UnboundedSender<oneshot::Sender<()>>>>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Orders {
    #[default]
    Obey,
    Hang,
    Panic,
}

impl Unruly {
    fn set(&self, orders: Orders) {
        *self.orders.lock().expect("not poisoned") = orders;
    }

    /// Hands over each beat from now on.
    fn hold_beats(&self) -> mpsc::UnboundedReceiver<oneshot::Sender<()>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.beats.lock().expect("not poisoned") = Some(sender);
        receiver
    }

    async fn panic_driver(&self) {
        self.panic.notify_one();
        until("the driver panics", || self.panicked.load(Ordering::SeqCst)).await;
    }
}

#[async_trait]
impl Store for Unruly {
    async fn open(&self, namespace: &Namespace) -> std::result::Result<Guarantees, StoreError> {
        let one_less = |hangs: usize| hangs.checked_sub(1);
        if self.hangs_at_open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            std::future::pending::<()>().await;
        }
        let guarantees = self.inner.open(namespace).await?;
        Ok(Guarantees { shortest_lease: self.shortest_lease, ..guarantees })
    }
    async fn register(&self, specs: &[JobSpec]) -> Vec<Answer<Registered>> {
        self.registers.fetch_add(1, Ordering::SeqCst);
        self.inner.register(specs).await
    }
    async fn claim(&self, claims: &[Claim]) -> Vec<Answer<Verdict>> {
        self.inner.claim(claims).await
    }
    async fn renew(&self, renewals: &[Renewal]) -> Vec<Answer<Renewed>> {
        self.inner.renew(renewals).await
    }
    async fn finish(&self, finishes: &[Finish]) -> Vec<Answer<Finished>> {
        self.inner.finish(finishes).await
    }
    async fn inspect(&self, jobs: &[JobName], history: u8) -> Vec<Answer<Option<Snapshot>>> {
        self.inner.inspect(jobs, history).await
    }
    async fn control(&self, controls: &[Control]) -> Vec<Answer<Controlled>> {
        self.controls.fetch_add(1, Ordering::SeqCst);
        let orders = *self.orders.lock().expect("not poisoned");
        match orders {
            Orders::Obey => self.inner.control(controls).await,
            Orders::Hang => std::future::pending().await,
            Orders::Panic => panic!("as the test ordered"),
        }
    }
    async fn beat(&self, announcement: &Announcement) -> Answer<Members> {
        let held = self.beats.lock().expect("not poisoned").clone();
        if let Some(held) = held {
            let (go_on, goes_on) = oneshot::channel();
            let _ = held.send(go_on);
            let _ = goes_on.await;
        }
        if matches!(announcement, Announcement::Withdrawn { .. }) {
            self.withdrawn.store(true, Ordering::SeqCst);
        }
        self.inner.beat(announcement).await
    }
    fn changes(&self) -> Option<Pin<Box<dyn Stream<Item = JobName> + Send>>> {
        assert!(!self.panics_at_once.load(Ordering::SeqCst), "as the test ordered");
        let (panic, panicked) = (Arc::clone(&self.panic), Arc::clone(&self.panicked));
        Some(Box::pin(futures_util::stream::once(async move {
            panic.notified().await;
            panicked.store(true, Ordering::SeqCst);
            panic!("as the test ordered")
        })))
    }
    fn describe(&self) -> String {
        "unruly".to_owned()
    }
}

/// A run that began, from within its handler.
struct Begun {
    context: Context,
    end: oneshot::Sender<()>,
}

struct World {
    store: Arc<Unruly>,
    remote: Arc<Remote>,
    ready: Option<oneshot::Receiver<Result>>,
    runs: mpsc::UnboundedReceiver<Begun>,
}

/// A scheduler with job "a", which runs when it is triggered and goes on until the test ends it, and "b", every second.
fn scheduler(store: Unruly, start_timeout: Duration) -> World {
    let (begun, runs) = mpsc::unbounded_channel();
    let handler = Handler::from_builder(move |context: Context| {
        let begun = begun.clone();
        async move {
            let (end, ends) = oneshot::channel();
            let waits = context.job() == "a";
            let _ = begun.send(Begun { context, end });
            if waits {
                let _ = ends.await;
            }
        }
    });
    let job = |text: &str, every: &str| {
        let schedule = Spec::from(Every::new(every)).check().expect("a schedule");
        let policy = Policy {
            lease: Duration::from_secs(5),
            jitter: Jitter::UpTo(Duration::ZERO),
            ..Policy::default()
        };
        let fingerprint = Fingerprint::of(&schedule.canonical());
        PlannedJob {
            engine: Arc::new(EngineJob { name: name(text), schedule, fingerprint, policy }),
            handler: handler.clone(),
        }
    };
    let store = Arc::new(store);
    let plan = plan(&store, vec![job("a", "52w"), job("b", "1s")], start_timeout);
    let (remote, ready) = start(plan).expect("a thread");
    World { store, remote: Arc::new(remote), ready: Some(ready), runs }
}

fn plan(store: &Arc<Unruly>, jobs: Vec<PlannedJob>, start_timeout: Duration) -> Plan {
    Plan {
        store: Arc::clone(store) as Arc<dyn Store>,
        clock: Arc::new(SystemClock),
        namespace: Namespace::new("test").expect("a name"),
        settings: Settings {
            instance: InstanceId::new("me").expect("a name"),
            nonce: 0,
            seed: 7,
            concurrency: None,
            drain: Duration::from_secs(3600),
            zones: "2026a".to_owned(),
        },
        jobs,
        start_timeout,
        handlers: Handle::current(),
        signals: false,
    }
}

impl World {
    async fn new(store: Unruly) -> Self {
        let mut world = scheduler(store, PATIENCE);
        world.ready().await.expect("it starts");
        world
    }

    async fn ready(&mut self) -> Result {
        let ready = self.ready.take().expect("asked for once");
        in_time("the start ends", ready).await.expect("the thread tells")
    }

    async fn order(&self, order: ControlAction) -> Result {
        in_time("the order is answered", self.remote.order(name("a"), Order::Control(order))).await
    }

    async fn run_of(&mut self, job: &str) -> Begun {
        loop {
            let run = in_time("a run begins", self.runs.recv()).await.expect("the handlers are there");
            if run.context.job() == job {
                return run;
            }
        }
    }

    async fn ended(&self) {
        in_time("the thread ends", self.remote.wait()).await;
    }
}

fn name(text: &str) -> JobName {
    JobName::new(text).expect("a name")
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain until {what}"))
}

#[expect(clippy::disallowed_methods, reason = "a test waits for another thread")]
async fn until(what: &str, so: impl Fn() -> bool) {
    let looking = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(what, looking).await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the order waits while the scheduler ends")]
async fn an_order_that_the_end_cuts_off_may_have_happened() {
    let world = World::new(Unruly::default()).await;
    world.store.set(Orders::Hang);
    let remote = Arc::clone(&world.remote);
    let order =
        tokio::spawn(async move { remote.order(name("a"), Order::Control(ControlAction::Trigger)).await });
    until("it reaches the store", || world.store.controls.load(Ordering::SeqCst) == 1).await;
    world.remote.begin_shutdown();
    let error = in_time("it is answered", order).await.expect("no panic").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert!(error.to_string().contains("may or may not have reached the store"), "{error}");
    assert!(error.to_string().contains("the scheduler ended"), "{error}");
}

#[tokio::test]
async fn an_order_after_the_end_did_not_happen() {
    let world = World::new(Unruly::default()).await;
    world.remote.begin_shutdown();
    world.ended().await;
    let error = world.order(ControlAction::Trigger).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped, "{error}");
    assert_eq!(world.store.controls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_order_in_which_the_client_panics_says_so() {
    let world = World::new(Unruly::default()).await;
    world.store.set(Orders::Panic);
    let error = world.order(ControlAction::Trigger).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert!(error.to_string().contains("client panicked: as the test ordered"), "{error}");
    assert!(!error.to_string().contains("10s"), "{error}");
    world.store.set(Orders::Obey);
    world.order(ControlAction::Trigger).await.expect("the scheduler goes on");
    world.remote.begin_shutdown();
}

#[tokio::test]
async fn a_panic_of_the_scheduler_costs_the_runs_in_flight_and_nothing_else() {
    let mut world = World::new(Unruly::default()).await;
    world.order(ControlAction::Trigger).await.expect("the job is there");
    let first = world.run_of("a").await;
    world.store.panic_driver().await;
    // Its future is dropped, and with it the other end.
    let mut end = first.end;
    in_time("the run is dropped", end.closed()).await;
    assert_eq!(first.context.cancel_reason(), Some(CancelReason::LeaseLost));
    let second = world.run_of("a").await;
    assert_eq!((second.context.attempt(), second.context.job()), (2, "a"));
    let before = world.run_of("b").await.context.scheduled_at();
    assert!(world.run_of("b").await.context.scheduled_at() > before, "the other job runs on");
    world.order(ControlAction::Pause).await.expect("orders are obeyed again");
    world.remote.begin_shutdown();
    drop(second.end);
    world.ended().await;
    assert!(world.store.withdrawn.load(Ordering::SeqCst));
}

/// Each driver counts its calls from 1, so that a late reply of the one before would pass for one of its own.
#[tokio::test]
async fn the_calls_of_a_driver_that_panicked_end_with_it() {
    let store = Unruly::default();
    let mut beats = store.hold_beats();
    let mut world = scheduler(store, PATIENCE);
    let old = in_time("the first beat", beats.recv()).await.expect("a beat");
    world.store.panic_driver().await;
    let new = in_time("the beat of the next driver", beats.recv()).await.expect("a beat");
    old.send(()).expect_err("its call is still there");
    // Two orders go through the driver, one after the other: by then the reply would have been taken in.
    for _ in 0..2 {
        let error = world.order(ControlAction::Pause).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    assert_eq!(world.store.registers.load(Ordering::SeqCst), 0, "it was taken for the reply to the new beat");
    new.send(()).expect("its call is still there");
    world.ready().await.expect("it starts");
    world.remote.begin_shutdown();
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the order waits while the scheduler starts anew")]
async fn what_comes_in_the_pause_after_a_panic_is_not_lost() {
    let world = World::new(Unruly::default()).await;
    world.store.panic_driver().await;
    let remote = Arc::clone(&world.remote);
    let order =
        tokio::spawn(async move { remote.order(name("a"), Order::Control(ControlAction::Pause)).await });
    // Polled once, it has sent the order.
    tokio::task::yield_now().await;
    world.remote.begin_shutdown();
    world.ended().await;
    assert!(world.store.withdrawn.load(Ordering::SeqCst), "it did not say goodbye");
    match in_time("the order is answered", order).await.expect("no panic") {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unknown, "{error}"),
    }
}

#[tokio::test]
async fn a_scheduler_that_panics_again_and_again_can_be_shut_down() {
    let world = World::new(Unruly::default()).await;
    world.store.panics_at_once.store(true, Ordering::SeqCst);
    world.store.panic_driver().await;
    world.remote.begin_shutdown();
    world.ended().await;
}

#[tokio::test]
async fn a_panic_while_leaving_ends_the_thread() {
    let mut world = World::new(Unruly::default()).await;
    world.order(ControlAction::Trigger).await.expect("the job is there");
    let run = world.run_of("a").await;
    world.remote.begin_shutdown();
    // What comes after it is answered: it was taken in.
    world.order(ControlAction::Pause).await.expect("orders are obeyed while runs go on");
    world.store.panic_driver().await;
    world.ended().await;
    assert_eq!(run.context.cancel_reason(), Some(CancelReason::LeaseLost));
}

#[tokio::test]
async fn a_store_with_which_the_scheduler_panics_at_each_start_is_an_error_after_the_start_timeout() {
    let store = Unruly::default();
    store.panics_at_once.store(true, Ordering::SeqCst);
    let mut world = scheduler(store, Duration::from_millis(100));
    let error = world.ready().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("panicked at each start"), "{error}");
    world.ended().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_swallows_what_it_is_asked_at_start_is_asked_again() {
    let hour = Duration::from_secs(3600);
    let (_keep, mut inbox) = mpsc::unbounded_channel();
    let store = Arc::new(Unruly { hangs_at_open: AtomicUsize::new(3), ..Unruly::default() });
    let begin = tokio::time::Instant::now();
    thread::open(&plan(&store, Vec::new(), hour), &mut inbox).await.expect("the fourth attempt succeeds");
    let took = begin.elapsed();
    assert!(
        (Duration::from_secs(70)..Duration::from_secs(80)).contains(&took),
        "10 s, 20 s and 40 s: {took:?}"
    );

    store.hangs_at_open.store(usize::MAX, Ordering::SeqCst);
    let plan = plan(&store, Vec::new(), Duration::from_secs(30));
    let error = thread::open(&plan, &mut inbox).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for part in ["within start_timeout 30s", "no answer within 10s"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn leases_that_the_store_cannot_keep_are_one_error_at_start() {
    let unruly = |seconds| Unruly { shortest_lease: Duration::from_secs(seconds), ..Unruly::default() };
    World::new(unruly(5)).await;
    let mut world = scheduler(unruly(15), PATIENCE);
    let error = world.ready().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error}");
    for part in ["lease 5s of job \"a\"", "of job \"b\"", "set lease to \"15s\" or longer"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    world.ended().await;
    assert_eq!(world.store.registers.load(Ordering::SeqCst), 0);
}
