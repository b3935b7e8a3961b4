//! An instance of apalis-cron, in memory: a worker for each job.

use std::str::FromStr as _;

use anarchon_bench::instance::Orders;
use apalis::prelude::*;
use apalis_cron::{CronScheduler, Tick};
use cron::Schedule;

async fn handle(tick: Tick, job: Data<(usize, Orders)>) {
    let (i, orders) = &*job;
    orders.mark(*i, tick.get_timestamp() as i64 * 1000);
}

#[tokio::main]
async fn main() {
    let orders = Orders::read();
    let schedule = Schedule::from_str("* * * * * *").expect("a schedule");
    for i in 0..orders.jobs {
        let worker = WorkerBuilder::new(format!("job-{i:05}"))
            .backend(CronScheduler::new(schedule.clone()))
            .data((i, orders.clone()))
            .build(handle);
        tokio::spawn(async move { worker.run().await });
    }
    orders.watch(String::new).await;
}
