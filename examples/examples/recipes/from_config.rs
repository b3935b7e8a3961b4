//! Jobs from a file that is read when the program starts. What is wrong in it is reported all together, before anything runs.
//!
//! ```text
//! cargo run -p anarchon-examples --features config --example from_config
//! cargo run -p anarchon-examples --features config --example from_config -- my-jobs.json
//! ```
//!
//! Without a file it takes `jobs.json` beside this program. Records are in `./anarchon.db`, or where `ANARCHON_STORE` says. SIGTERM or
//! ctrl-c ends it. With the crate `toml` in place of `serde_json` it reads TOML; only the line that parses is another one.

use anarchon::prelude::*;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    when: When,
    task: Task,
    lease: Option<String>,
    catch_up: Option<String>,
    timeout: Option<String>,
    retries: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum When {
    Every(String),
    Cron { expression: String, tz: Option<String> },
    At(String),
}

/// What the program can do. A file chooses among it; it cannot bring code.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Task {
    Say(String),
    Purge,
}

async fn run(task: Task, ctx: Context) -> JobResult {
    match task {
        Task::Say(text) => println!("{}: {text}", ctx.job()),
        Task::Purge => println!("{}: purged", ctx.job()),
    }
    Ok(())
}

impl Entry {
    /// Texts go to the builder as they are: it reads them when it starts, and says what is wrong.
    fn into_job(self) -> Job {
        let handler = move |ctx| run(self.task.clone(), ctx);
        let mut job = match self.when {
            When::Every(interval) => Job::every(self.name, interval, handler),
            When::Cron { expression, tz: None } => Job::cron(self.name, expression, handler),
            When::Cron { expression, tz: Some(tz) } => {
                Job::cron(self.name, Cron::new(expression).tz(tz), handler)
            }
            When::At(instant) => Job::at(self.name, instant, handler),
        };
        // What is not in the file keeps its default.
        job = self.lease.into_iter().fold(job, |job, lease| job.lease(lease));
        job = self.catch_up.into_iter().fold(job, |job, window| job.catch_up(window));
        job = self.timeout.into_iter().fold(job, |job, timeout| job.timeout(timeout));
        self.retries.into_iter().fold(job, |job, retries| job.retries(retries))
    }
}

#[tokio::main]
async fn main() -> JobResult {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let path = std::env::args().nth(1);
    let text = path.as_ref().map_or(Ok(include_str!("jobs.json").to_owned()), std::fs::read_to_string);
    let path = path.unwrap_or("jobs.json".to_owned());
    let text = text.map_err(|error| format!("{path}: {error}"))?;
    let entries: Vec<Entry> = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    let scheduler = Scheduler::from_env()?.namespace("recipe-config");
    entries.into_iter().map(Entry::into_job).fold(scheduler, Scheduler::job).run().await?;
    println!("ended in order");
    Ok(())
}
