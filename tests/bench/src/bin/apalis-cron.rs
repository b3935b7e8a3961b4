//! An instance of apalis-cron, in memory: a worker for each job.

use std::{str::FromStr as _, sync::Arc};

use anarchon_bench::{instance::Orders, job};
use apalis::prelude::*;
use apalis_cron::{CronScheduler, Tick};
use cron::Schedule;

async fn handle(tick: Tick, job: Data<(usize, Arc<Orders>)>) {
    let (i, orders) = &*job;
    orders.mark(*i, tick.get_timestamp() as i64 * 1000);
}

#[tokio::main]
async fn main() {
    let orders = Orders::read();
    let schedule = Schedule::from_str(orders.kind.cron()).expect("a schedule");
    for i in 0..orders.jobs {
        let worker = WorkerBuilder::new(job(i))
            .backend(CronScheduler::new(schedule.clone()))
            .data((i, Arc::clone(&orders)))
            .build(handle);
        tokio::spawn(async move { worker.run().await });
    }
    orders.watch(String::new).await;
}
