//! From @nestjs/schedule: decorators there, attributes here.
//!
//! ```text
//! cargo run --example from_nest
//! ```
//!
//! The page `recipes` of the guide has the table of what becomes what. Records are in `./anarchon.db`, or where `ANARCHON_STORE`
//! says. SIGTERM or ctrl-c ends it.

use anarchon::prelude::*;

// export class TasksService { constructor(private readonly greeting: string) {} … }
struct Tasks {
    greeting: &'static str,
}

#[jobs]
impl Tasks {
    // @Interval('sync', 2500)
    #[every("2500ms", name = "sync")]
    async fn handle_interval(&self, ctx: Context) {
        println!("{}: {}", ctx.job(), self.greeting);
    }

    // @Cron('*/3 * * * * *', { name: 'poll' })
    #[cron("*/3 * * * * *", name = "poll")]
    async fn handle_cron(&self, ctx: Context) {
        println!("{}: {}", ctx.job(), ctx.scheduled_at());
    }

    // @Cron('0 30 11 * * 1-5', { name: 'report', timeZone: 'Europe/Paris' })
    #[cron("0 30 11 * * 1-5", name = "report", tz = "Europe/Paris")]
    async fn trigger_report(&self) -> JobResult {
        // What throws there is `?` here: it is logged, kept in the history, and tried again if `retries` says so.
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anarchon::Result {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    Scheduler::from_env()?.namespace("recipe-nest").jobs(Tasks { greeting: "hello" }).run().await?;
    println!("ended in order");
    Ok(())
}
