//! Two services on one store: each has a namespace, so that jobs of one name are two jobs, and orders to one do not reach the other.
//!
//! ```text
//! cargo run --example two_services
//! ```
//!
//! In earnest they are two programs, here two schedulers of one. It ends by itself and leaves nothing behind; `ANARCHON_STORE`
//! names another store than a temporary one.

use anarchon::{Running, prelude::*};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

type Service = &'static str;

/// What each of the two programs has in its `main`. A deployment may set `ANARCHON_NAMESPACE` instead.
async fn start(store: &str, service: Service, ran: UnboundedSender<Service>) -> anarchon::Result<Running> {
    let report = move |ctx: Context| {
        println!("  {}", ctx.occurrence_id());
        let sent = ran.send(service);
        async { sent }
    };
    Scheduler::connect(store)?.namespace(service).every("report", "1s", report).start().await
}

#[tokio::main]
async fn main() -> JobResult {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let folder = tempfile::tempdir()?;
    let default = format!("sqlite:{}", folder.path().join("anarchon.db").display());
    let store = std::env::var("ANARCHON_STORE").unwrap_or(default);
    let (ran, mut runs) = unbounded_channel();
    let billing = start(&store, "billing", ran.clone()).await?;
    let shop = start(&store, "shop", ran).await?;

    println!("each has a job report:");
    wait_for(&mut runs, "billing").await;
    wait_for(&mut runs, "shop").await;

    println!("shop pauses its own:");
    shop.pause("report").await?;
    wait_for(&mut runs, "billing").await;
    wait_for(&mut runs, "billing").await;

    println!("shop goes on:");
    shop.resume("report").await?;
    wait_for(&mut runs, "shop").await;

    billing.shutdown().await?;
    shop.shutdown().await?;
    println!("ended");
    Ok(())
}

async fn wait_for(runs: &mut UnboundedReceiver<Service>, service: Service) {
    while runs.recv().await.is_some_and(|ran| ran != service) {}
}
