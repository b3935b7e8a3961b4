//! Instances on many hosts that share a NATS server, or a cluster of them. Start it in two more terminals, or on two more
//! machines.
//!
//! ```text
//! cargo run -p anarchon-examples --features nats --example nats -- nats://localhost:4222
//! cargo run -p anarchon-examples --features nats --example nats -- "tls://one,two,three?ca=ca.pem&creds=me.creds" 3
//! ```
//!
//! The server runs with JetStream (`nats-server -js`). The number is how many servers must keep the records; without it, three
//! where there are as many. Who need not say so writes `Scheduler::connect(url)`, which takes the URL of any store.

use anarchon::{NatsBackend, prelude::*};

async fn report(ctx: Context) -> JobResult {
    // An instance that froze and woke up too late has a lower one: what you write to can refuse it by that.
    let token = ctx.fencing_token();
    println!("{}: report for {} (fencing token {token})", ctx.instance(), ctx.scheduled_at());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "nats://localhost:4222".to_owned());
    let mut store = NatsBackend::connect(&url)?;
    if let Some(replicas) = arguments.next() {
        store = store.replicas(replicas.parse()?);
    }
    Scheduler::new(store).namespace("example").every("report", "5s", report).run().await?;
    Ok(())
}
