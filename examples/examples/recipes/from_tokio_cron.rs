//! From tokio-cron-scheduler: the jobs of a program as it stood there, and as they stand here.
//!
//! ```text
//! cargo run --example from_tokio_cron
//! ```
//!
//! The page `recipes` of the guide has the table of what becomes what. Mind which crate parses there: days of the week are counted
//! as Quartz does by `cron`, Sunday is 1, and as Unix does by `croner`, Sunday is 0 and 7.
//!
//! Records are in `./anarchon.db`, or where `ANARCHON_STORE` says. SIGTERM or ctrl-c ends it.

use anarchon::prelude::*;

struct Jobs;

#[jobs]
impl Jobs {
    // Job::new_repeated_async(Duration::from_secs(2), …)
    #[every("2s")]
    async fn sync(&self, ctx: Context) {
        println!("sync for {}", ctx.scheduled_at());
    }

    // Job::new_async("1/3 * * * * *", …): from second 1 on, each third.
    #[cron("1/3 * * * * *", dialect = "quartz")]
    async fn poll(&self, ctx: Context) {
        println!("poll for {}", ctx.scheduled_at());
    }

    // Job::new_async("0 30 9 * * 2-6", …), Monday to Friday, with the crate cron
    #[cron("0 30 9 * * 2-6", dialect = "quartz")]
    async fn digest(&self) -> JobResult {
        println!("digest");
        Ok(())
    }

    // Job::new_async("0 0 18 * * 1-5", …), Monday to Friday, with the crate croner
    #[cron("0 0 18 * * 1-5")]
    async fn close(&self) -> JobResult {
        println!("closed");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anarchon::Result {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    Scheduler::from_env()?.namespace("recipe-tokio-cron").jobs(Jobs).run().await?;
    println!("ended in order");
    Ok(())
}
