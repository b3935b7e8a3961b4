//! A worker without HTTP: jobs on the runtime and on blocking threads, a limit of runs at once, an end in order.
//!
//! ```text
//! cargo run --example worker
//! ```
//!
//! Start it as often as you like. Its records are in `./anarchon.db`, or where `ANARCHON_STORE` says. Its exit code is 0 after
//! SIGTERM or ctrl-c, and 1 when it could not start: whoever supervises it starts it again then.

use std::{thread, time::Duration};

use anarchon::prelude::*;
use tokio::time::sleep;

struct Worker;

#[jobs]
impl Worker {
    // A run that takes longer counts as an error. Errors are tried again, soon enough to be through before the next planned time, which
    // would win over them.
    #[every("10s", timeout = "2s", retries = 2, backoff = "500ms..1s")]
    async fn fetch(&self, ctx: Context) -> JobResult {
        sleep(Duration::from_millis(100)).await;
        println!("fetched for {}", ctx.scheduled_at());
        Ok(())
    }

    // Not `async`: it has a thread for itself, which nobody can take from it. So it looks whether it may go on.
    #[every("3s")]
    fn compress(&self, ctx: &Context) {
        for _part in 0..5 {
            if ctx.is_cancelled() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        println!("compressed for {}", ctx.scheduled_at());
    }

    // After a night without workers it still runs in the morning.
    #[cron("0 3 * * *", tz = "Europe/Athens", catch_up = "8h")]
    async fn purge(&self) -> JobResult {
        println!("purged");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anarchon::Result {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    Scheduler::from_env()?
        .namespace("recipe-worker")
        .jobs(Worker)
        .concurrency(4)
        // `docker stop` waits for 10 s.
        .drain("6s")
        .run()
        .await?;
    println!("ended in order");
    Ok(())
}
