//! The program of the README. Start it in two more terminals: each run happens on one of the three.
//!
//! ```text
//! cargo run --example quickstart
//! ```
//!
//! It keeps its records in `./anarchon.db`, or where `ANARCHON_STORE` says. Ctrl-c lets what runs finish, then ends it.

use anarchon::prelude::*;

struct MyJobs {
    greeting: &'static str,
}

#[jobs]
impl MyJobs {
    #[every("5s")]
    async fn greet(&self, ctx: Context) {
        println!("{}: {} for {}", ctx.instance(), self.greeting, ctx.scheduled_at());
    }

    #[cron("0 8 * * 1-5", tz = "Europe/Athens")]
    async fn digest(&self) -> JobResult {
        // Mail, files, databases: `?` takes every error.
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anarchon::Result {
    tracing_subscriber::fmt().init();
    anarchon::run(MyJobs { greeting: "hello" }).await
}
