//! What the jobs of both versions do.

use std::time::{Duration, SystemTime};

use anarchon::Context;
use chrono::{DateTime, SecondsFormat, Utc};

/// Takes a second, and tells of its start and of its end.
pub(crate) async fn work(version: u32, ctx: Context) {
    tell(version, &ctx, "start");
    tokio::time::sleep(Duration::from_secs(1)).await;
    tell(version, &ctx, "done");
}

fn tell(version: u32, ctx: &Context, what: &str) {
    let (now, process) = (DateTime::<Utc>::from(SystemTime::now()), std::process::id());
    let (now, planned) = (written(now), written(ctx.scheduled_at()));
    let (job, attempt, token) = (ctx.job(), ctx.attempt(), ctx.fencing_token());
    println!("{now} v{version} {process}: {job} {planned} attempt {attempt} token {token} {what}");
}

fn written(instant: DateTime<Utc>) -> String {
    instant.to_rfc3339_opts(SecondsFormat::Micros, true)
}
