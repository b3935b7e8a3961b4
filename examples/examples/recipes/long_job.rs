//! A long job that bears to be cut off: it ends when it is told to, the next attempt goes on where it stopped, and its table refuses
//! whoever comes with an older fencing token.
//!
//! ```text
//! cargo run -p anarchon-examples --features sqlite --example long_job
//! ```
//!
//! Two instances, `first` and `second`, share a store and a table: `first` is told to end in the middle, and `second` goes on. It ends by
//! itself and leaves nothing behind. `ANARCHON_STORE` names another store than a temporary one.

use std::time::Duration;

use anarchon::{Running, prelude::*};
use sqlx::SqlitePool;
use tokio::time::sleep;

const PARTS: i64 = 6;
const TAKEN: &str = "a later attempt has the row";

struct Import {
    instance: &'static str,
    pool: SqlitePool,
}

#[jobs]
impl Import {
    #[cron("0 3 * * *", tz = "Europe/Athens", lease = "10s")]
    async fn import(&self, ctx: Context) -> JobResult {
        let (id, token) = (ctx.occurrence_id().to_string(), i64::try_from(ctx.fencing_token())?);
        let done = take(&self.pool, &id, token).await?.ok_or(TAKEN)?;
        for part in done + 1..=PARTS {
            tokio::select! {
                // The work.
                () = sleep(Duration::from_millis(300)) => {}
                () = ctx.cancelled() => {
                    println!("{}: attempt {} stops before part {part}", self.instance, ctx.attempt());
                    // Whatever it returns now, it does not count as done.
                    return Ok(());
                }
            }
            if !save(&self.pool, &id, token, part).await? {
                return Err(TAKEN.into());
            }
            println!("{}: attempt {} has done part {part}", self.instance, ctx.attempt());
        }
        Ok(())
    }
}

/// Puts the token of this attempt into the row, and tells how much is done: older attempts are shut out from here on.
async fn take(pool: &SqlitePool, id: &str, token: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar(
        "INSERT INTO import (id, token, done) VALUES (?, ?, 0)
         ON CONFLICT (id) DO UPDATE SET token = excluded.token WHERE import.token < excluded.token
         RETURNING done",
    )
    .bind(id)
    .bind(token)
    .fetch_optional(pool)
    .await
}

/// Writes if the row still has the token of this attempt.
async fn save(pool: &SqlitePool, id: &str, token: i64, done: i64) -> sqlx::Result<bool> {
    let saved = sqlx::query("UPDATE import SET done = ? WHERE id = ? AND token = ?");
    Ok(saved.bind(done).bind(id).bind(token).execute(pool).await?.rows_affected() == 1)
}

#[tokio::main]
async fn main() -> JobResult {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let folder = tempfile::tempdir()?;
    let file = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let store = std::env::var("ANARCHON_STORE").unwrap_or(file("anarchon.db"));
    let pool = SqlitePool::connect(&(file("service.db") + "?mode=rwc")).await?;
    sqlx::raw_sql("CREATE TABLE import (id TEXT PRIMARY KEY, token INTEGER NOT NULL, done INTEGER NOT NULL)")
        .execute(&pool)
        .await?;

    let first = start(&store, "first", &pool).await?;
    // Instead of waiting until three o'clock at night.
    first.trigger("import").await?;
    let (id, token) = row_with(&pool, 2).await?;
    first.shutdown().await?;

    let second = start(&store, "second", &pool).await?;
    row_with(&pool, PARTS).await?;
    second.shutdown().await?;

    let let_in = save(&pool, &id, token, PARTS).await?;
    println!("a late write of attempt 1 is {}", if let_in { "let in" } else { "refused" });
    pool.close().await;
    Ok(())
}

async fn start(store: &str, instance: &'static str, pool: &SqlitePool) -> anarchon::Result<Running> {
    let import = Import { instance, pool: pool.clone() };
    // A drain that is short enough to be seen; by default runs have 25 s to come to their end.
    Scheduler::connect(store)?.namespace("recipe-long-job").jobs(import).drain("100ms").start().await
}

/// Waits until so many parts are done, and tells for which occurrence and by which token.
async fn row_with(pool: &SqlitePool, parts: i64) -> sqlx::Result<(String, i64)> {
    loop {
        let row = sqlx::query_as("SELECT id, token FROM import WHERE done >= ?").bind(parts);
        match row.fetch_optional(pool).await? {
            Some(row) => return Ok(row),
            None => sleep(Duration::from_millis(20)).await,
        }
    }
}
