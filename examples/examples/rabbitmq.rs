//! Instances on many hosts that share a RabbitMQ broker. Start it in two more terminals, or on two more machines.
//!
//! ```text
//! cargo run -p anarchon-examples --features rabbitmq --example rabbitmq -- amqp://localhost:5672
//! cargo run -p anarchon-examples --features rabbitmq --example rabbitmq -- amqp://one:5672/jobs?queues=quorum
//! ```
//!
//! Quorum queues are for a cluster of brokers: a classic queue waits with its job for the one node that has it.

use anarchon::{RabbitMqBackend, prelude::*};

async fn report(ctx: Context) -> JobResult {
    // An instance that froze and woke up too late has a lower one: what you write to can refuse it by that.
    let token = ctx.fencing_token();
    println!("{}: report for {} (fencing token {token})", ctx.instance(), ctx.scheduled_at());
    Ok(())
}

#[tokio::main]
async fn main() -> anarchon::Result {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let url = std::env::args().nth(1).unwrap_or_else(|| "amqp://localhost:5672".to_owned());
    // The shortest lease of its jobs decides the heartbeat, and with it how soon a frozen instance gives way.
    let report = Job::every("report", "5s", report).lease("10s");
    Scheduler::new(RabbitMqBackend::connect(&url)?).namespace("example").job(report).run().await
}
