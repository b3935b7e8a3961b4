//! An instance of tokio-cron-scheduler, in memory.

use std::sync::Arc;

use anarchon_bench::instance::Orders;
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

#[tokio::main]
async fn main() -> Result<(), JobSchedulerError> {
    let orders = Orders::read();
    let scheduler = JobScheduler::new().await?;
    for i in 0..orders.jobs {
        let counted = Arc::clone(&orders);
        let job = Job::new_async(orders.kind.cron(), move |_id, _scheduler| {
            counted.mark_now(i);
            Box::pin(std::future::ready(()))
        })?;
        scheduler.add(job).await?;
    }
    scheduler.start().await?;
    orders.watch(String::new).await;
    Ok(())
}
