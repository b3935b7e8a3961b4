//! Instances on many hosts that share a Redis server. Start it in two more terminals, or on two more machines.
//!
//! ```text
//! cargo run -p anarchon-examples --features redis --example redis -- redis://localhost:6379
//! cargo run -p anarchon-examples --features redis --example redis -- redis+sentinel://one,two,three/mymaster 1
//! ```
//!
//! The number is how many replicas must have a claim before its run starts: with all of them a fail-over loses none.
//! For Valkey write `ValkeyBackend` and `valkey://`; who need not wait for replicas writes `Scheduler::connect(url)`, which
//! takes the URL of any store.

use anarchon::{RedisBackend, prelude::*};

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
    let url = arguments.next().unwrap_or_else(|| "redis://localhost:6379".to_owned());
    let replicas = arguments.next().map_or(Ok(0), |number| number.parse())?;
    let store = RedisBackend::connect(&url)?.wait_replicas(replicas);
    Scheduler::new(store).namespace("example").every("report", "5s", report).run().await?;
    Ok(())
}
