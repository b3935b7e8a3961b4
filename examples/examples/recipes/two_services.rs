//! Two services on one store: each has a namespace, so that jobs of one name are two jobs, and orders to one do not reach the other.
//!
//! ```text
//! cargo run --example two_services
//! ```
//!
//! In earnest they are two programs, here two schedulers of one. It ends by itself and leaves nothing behind.

use std::future::ready;

use anarchon::{Running, prelude::*};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What each of the two programs has in its `main`. A deployment may set `ANARCHON_NAMESPACE` instead.
async fn start(store: &str, service: &str, ran: UnboundedSender<String>) -> anarchon::Result<Running> {
    let report = move |ctx: Context| ready(ran.send(ctx.occurrence_id().to_string()));
    Scheduler::connect(store)?.namespace(service).every("report", "1s", report).start().await
}

#[tokio::main]
async fn main() -> JobResult {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite:{}", folder.path().join("anarchon.db").display());
    let (ran, mut runs) = unbounded_channel();
    let billing = start(&store, "billing", ran.clone()).await?;
    let shop = start(&store, "shop", ran).await?;

    println!("each has a job report:");
    tell_until(&mut runs, "billing").await;
    tell_until(&mut runs, "shop").await;

    shop.pause("report").await?;
    println!("shop has paused its own:");
    for _ in 0..3 {
        tell_until(&mut runs, "billing").await;
    }

    shop.resume("report").await?;
    println!("shop goes on:");
    tell_until(&mut runs, "shop").await;

    billing.shutdown().await?;
    shop.shutdown().await?;
    println!("ended");
    Ok(())
}

/// Tells which runs begin, up to the next one of this service.
async fn tell_until(runs: &mut UnboundedReceiver<String>, service: &str) {
    while let Some(run) = runs.recv().await {
        println!("  {run}");
        if run.starts_with(service) {
            break;
        }
    }
}
