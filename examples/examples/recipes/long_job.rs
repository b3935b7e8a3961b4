//! A long job that bears to be cut off: it ends when it is told to, the next attempt goes on where it stopped, and its table refuses
//! whoever comes with an older fencing token, of this occurrence or of an earlier one.
//!
//! ```text
//! cargo run -p anarchon-examples --features sqlite --example long_job
//! ```
//!
//! Two instances, `first` and `second`, share a store and a table: `first` is told to end in the middle, and `second` goes on. It ends by
//! itself and leaves nothing behind.

use std::time::Duration;

use anarchon::{Running, prelude::*};
use sqlx::SqlitePool;
use tokio::time::sleep;

const PARTS: i64 = 6;
const TAKEN: &str = "a later run has the row";

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
                // The work. What it writes into this database belongs into the transaction of `save`.
                () = sleep(Duration::from_millis(300)) => {}
                () = ctx.cancelled() => {
                    println!("{}: attempt {} stops before part {part}", self.instance, ctx.attempt());
                    // Whatever it returns now, it does not count as done.
                    return Ok(());
                }
            }
            if !save(&self.pool, token, part).await? {
                return Err(TAKEN.into());
            }
            println!("{}: attempt {} has done part {part}", self.instance, ctx.attempt());
        }
        Ok(())
    }
}

/// Puts the token of this attempt into the row of the job, and tells how much of its occurrence is done. Older attempts, at this occurrence
/// or at earlier ones, are shut out from here on.
async fn take(pool: &SqlitePool, id: &str, token: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar(
        "INSERT INTO progress (job, id, token, done) VALUES ('import', ?, ?, 0)
         ON CONFLICT (job) DO UPDATE SET token = excluded.token, id = excluded.id,
             done = CASE WHEN progress.id = excluded.id THEN progress.done ELSE 0 END
             WHERE progress.token < excluded.token
         RETURNING done",
    )
    .bind(id)
    .bind(token)
    .fetch_optional(pool)
    .await
}

/// Writes if the row still has the token of this attempt.
async fn save(pool: &SqlitePool, token: i64, done: i64) -> sqlx::Result<bool> {
    let saved = sqlx::query("UPDATE progress SET done = ? WHERE job = 'import' AND token = ?");
    Ok(saved.bind(done).bind(token).execute(pool).await?.rows_affected() == 1)
}

#[tokio::main]
async fn main() -> JobResult {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let folder = tempfile::tempdir()?;
    let file = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let store = file("anarchon.db");
    let pool = SqlitePool::connect(&(file("service.db") + "?mode=rwc")).await?;
    sqlx::raw_sql(
        "CREATE TABLE progress (job TEXT PRIMARY KEY, id TEXT NOT NULL, token INTEGER NOT NULL, done INTEGER NOT NULL)",
    )
    .execute(&pool)
    .await?;

    let first = start(&store, "first", &pool).await?;
    // Instead of waiting until three o'clock at night.
    first.trigger("import").await?;
    let first_token = token_at(&pool, 2).await?;
    first.shutdown().await?;

    let second = start(&store, "second", &pool).await?;
    let second_token = token_at(&pool, PARTS).await?;
    second.shutdown().await?;

    let word = |is_let_in| if is_let_in { "let in" } else { "refused" };
    println!("a late write of attempt 1 is {}", word(save(&pool, first_token, PARTS).await?));
    // The next night, before an attempt of this one has woken.
    take(&pool, "the next occurrence", second_token + 1).await?;
    println!("a late write of attempt 2 is {}", word(save(&pool, second_token, PARTS).await?));
    pool.close().await;
    Ok(())
}

async fn start(store: &str, instance: &'static str, pool: &SqlitePool) -> anarchon::Result<Running> {
    let import = Import { instance, pool: pool.clone() };
    // A drain that is short enough to be seen; by default runs have 25 s to come to their end.
    Scheduler::connect(store)?.namespace("recipe-long-job").jobs(import).drain("100ms").start().await
}

/// Waits until so many parts are done, and tells by which token.
async fn token_at(pool: &SqlitePool, parts: i64) -> sqlx::Result<i64> {
    loop {
        let token = sqlx::query_scalar("SELECT token FROM progress WHERE done >= ?").bind(parts);
        match token.fetch_optional(pool).await? {
            Some(token) => return Ok(token),
            None => sleep(Duration::from_millis(20)).await,
        }
    }
}
