//! An instance of anarchon.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anarchon::{
    MemoryBackend,
    prelude::*,
    protocol::{
        Announcement, Claim, Control, Controlled, Finish, Finished, JobName, JobSpec, Members, Namespace,
        Registered, Renewal, Renewed, Verdict,
    },
    store::{Answer, Guarantees, Snapshot, Store, StoreError},
};
use anarchon_bench::{
    instance::{Kind, Orders},
    job,
};
use anarchon_tests::servers::store::backend;
use futures_core::Stream;

#[tokio::main]
async fn main() -> anarchon::Result {
    let orders = Orders::read();
    let inner: Arc<dyn Store> =
        if orders.store == "memory:" { Arc::new(MemoryBackend::new()) } else { backend(&orders.store) };
    let counts = Arc::new(Counts::default());
    let store = Counting { inner, counts: Arc::clone(&counts) };
    let mut scheduler = Scheduler::new(store).namespace("bench");
    if !orders.jitter {
        scheduler = scheduler.jitter(Duration::ZERO);
    }
    if orders.kind == Kind::Watched {
        scheduler = scheduler.lease(SHORTEST_LEASE);
    }
    for i in 0..orders.jobs {
        let counted = Arc::clone(&orders);
        let handler = move |ctx: Context| {
            let planned = ctx.scheduled_at().timestamp_millis();
            counted.mark(i, planned);
            counted.write_down(i, planned, ctx.attempt());
            std::future::ready(())
        };
        scheduler = match orders.kind {
            Kind::Idle => scheduler.cron(job(i), orders.kind.cron(), handler),
            Kind::Busy | Kind::Watched => scheduler.every(job(i), Duration::from_secs(1), handler),
        };
    }
    let running = scheduler.start().await?;
    orders.watch(|| counts.to_string()).await;
    running.shutdown().await
}

/// So that what a killed process held is taken over while somebody watches.
const SHORTEST_LEASE: Duration = Duration::from_secs(5);

/// How many calls there were, and of how many items.
#[derive(Debug, Default)]
struct Counts([(AtomicU64, AtomicU64); 7]);

const KINDS: [&str; 7] = ["register", "claim", "renew", "finish", "inspect", "control", "beat"];

impl Counts {
    fn add(&self, kind: usize, items: usize) {
        self.0[kind].0.fetch_add(1, Relaxed);
        self.0[kind].1.fetch_add(items as u64, Relaxed);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, (calls, items)) in KINDS.iter().zip(&self.0) {
            write!(f, "{kind} {} {} ", calls.load(Relaxed), items.load(Relaxed))?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Counting {
    inner: Arc<dyn Store>,
    counts: Arc<Counts>,
}

#[async_trait::async_trait]
impl Store for Counting {
    fn shortest_lease(&self, lease: Duration) {
        self.inner.shortest_lease(lease);
    }
    async fn open(&self, namespace: &Namespace) -> Result<Guarantees, StoreError> {
        self.inner.open(namespace).await
    }
    async fn register(&self, specs: &[JobSpec]) -> Vec<Answer<Registered>> {
        self.counts.add(0, specs.len());
        self.inner.register(specs).await
    }
    async fn claim(&self, claims: &[Claim]) -> Vec<Answer<Verdict>> {
        self.counts.add(1, claims.len());
        self.inner.claim(claims).await
    }
    async fn renew(&self, renewals: &[Renewal]) -> Vec<Answer<Renewed>> {
        self.counts.add(2, renewals.len());
        self.inner.renew(renewals).await
    }
    async fn finish(&self, finishes: &[Finish]) -> Vec<Answer<Finished>> {
        self.counts.add(3, finishes.len());
        self.inner.finish(finishes).await
    }
    async fn inspect(&self, jobs: &[JobName], history: u8) -> Vec<Answer<Option<Snapshot>>> {
        self.counts.add(4, jobs.len());
        self.inner.inspect(jobs, history).await
    }
    async fn control(&self, controls: &[Control]) -> Vec<Answer<Controlled>> {
        self.counts.add(5, controls.len());
        self.inner.control(controls).await
    }
    async fn beat(&self, announcement: &Announcement) -> Answer<Members> {
        self.counts.add(6, 1);
        self.inner.beat(announcement).await
    }
    fn changes(&self) -> Option<Pin<Box<dyn Stream<Item = JobName> + Send>>> {
        self.inner.changes()
    }
    async fn close(&self) {
        self.inner.close().await;
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}
