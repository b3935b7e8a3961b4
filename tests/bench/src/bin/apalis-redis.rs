//! An instance of apalis with Redis. It has no schedules there: each instance pushes each occurrence, under a key of the occurrence,
//! so that the first push counts; a worker in each instance takes what was pushed.

use std::{sync::Arc, time::Duration};

use anarchon_bench::{
    instance::{Kind, Orders},
    micros,
};
use apalis::prelude::*;
use apalis_redis::{Config, RedisStorage, connect};
use futures_util::stream;

/// Left to itself a worker that found nothing looks again at its next heartbeat, after 30 s.
const LOOK: Duration = Duration::from_millis(50);
/// Of keys. Without it each of them ends at once, and nothing is told apart.
const KEPT: Duration = Duration::from_secs(60);
/// Ten, if not set.
const BATCH: usize = 100;

/// A job, and what it was planned for in ms since the epoch.
type Occurrence = (usize, i64);

async fn handle((job, planned): Occurrence, orders: Data<Arc<Orders>>) {
    orders.mark(job, planned);
    orders.write_down(job, planned, 1);
}

#[tokio::main]
async fn main() {
    let orders = Orders::read();
    let connection = connect(orders.store.as_str()).await.expect("a connection");
    let config = Config::default().queue("bench").idempotency_ttl(Some(KEPT)).batch_size(BATCH);
    let storage = RedisStorage::<Occurrence>::new(connection).with_config(config);
    if orders.kind != Kind::Idle {
        tokio::spawn(push(storage.clone(), orders.jobs));
    }
    tokio::spawn(work(storage, Arc::clone(&orders)));
    orders.watch(String::new).await;
}

/// Pushes each second's occurrences as they are due.
async fn push(mut storage: RedisStorage<Occurrence>, jobs: usize) {
    loop {
        let planned = micros().div_euclid(1_000_000) * 1000 + 1000;
        let left = u64::try_from(planned * 1000 - micros()).unwrap_or(0);
        tokio::time::sleep(Duration::from_micros(left)).await;
        let task = |job| TaskBuilder::new((job, planned)).idempotency_key(format!("{job}@{planned}")).build();
        // While the server is away there is nobody to tell.
        let _ = storage.push_all(stream::iter((0..jobs).map(task))).await;
    }
}

/// A worker ends at the first error; then one with another name is made, as the name of the last one is taken for a while.
async fn work(storage: RedisStorage<Occurrence>, orders: Arc<Orders>) {
    for number in 0.. {
        let worker = WorkerBuilder::new(format!("worker-{}-{number}", std::process::id()))
            .backend(storage.clone().poll_with_interval(LOOK))
            .data(Arc::clone(&orders))
            .build(handle);
        let _ = worker.run().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
