//! Jobs without attributes: the builder, options, and what an operator can do. On the memory store, so nothing is kept.
//!
//! ```text
//! cargo run --example builder
//! ```
//!
//! It ends by itself after a few seconds.

use anarchon::{MemoryBackend, prelude::*};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

#[tokio::main]
async fn main() -> JobResult {
    let (ran, mut runs) = unbounded_channel();
    let mailbox = ran.clone();
    let running = Scheduler::new(MemoryBackend::new())
        .namespace("builder")
        // The defaults of all its jobs.
        .catch_up("1m")
        .concurrency(8)
        // A closure takes the context and returns a future.
        .every("sync", "1s", move |ctx| report(ran.clone(), ctx))
        // A job with options of its own.
        .job(
            Job::cron("digest", Cron::new("0 8 * * 1-5").tz("Europe/Athens"), move |ctx| {
                report(mailbox.clone(), ctx)
            })
            .lease("1m")
            .timeout("30s")
            .retries(3)
            .backoff("5s..5m"),
        )
        .start()
        .await?;

    println!("sync runs each second:");
    wait_for(&mut runs, "sync").await;
    wait_for(&mut runs, "sync").await;

    println!("an operator pauses sync, and runs digest now:");
    running.pause("sync").await?;
    running.trigger("digest").await?;
    wait_for(&mut runs, "digest").await;

    println!("sync is resumed:");
    running.resume("sync").await?;
    wait_for(&mut runs, "sync").await;

    if let Err(error) = running.trigger("digets").await {
        println!("a misspelt job: {error}");
    }
    // Stops claiming, waits for what runs, and returns.
    running.shutdown().await?;
    println!("shut down");
    Ok(())
}

/// A handler: an ordinary async function that may fail.
async fn report(ran: UnboundedSender<String>, ctx: Context) -> JobResult {
    println!("  {} (attempt {})", ctx.occurrence_id(), ctx.attempt());
    ran.send(ctx.job().to_owned())?;
    Ok(())
}

async fn wait_for(runs: &mut UnboundedReceiver<String>, job: &str) {
    while runs.recv().await.is_some_and(|ran| ran != job) {}
}
