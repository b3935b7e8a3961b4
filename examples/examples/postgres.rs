//! Instances on many hosts, on PostgreSQL. What the job writes is guarded: a run that lost its lease cannot overwrite a later one.
//!
//! ```text
//! DATABASE_URL=postgres://app:password@db/app cargo run -p anarchon-examples --example postgres --features postgres
//! ```
//!
//! Start it as often and on as many hosts as you like. Ctrl-c lets what runs finish, then ends it.

use anarchon::{PostgresBackend, prelude::*};
use sqlx::PgPool;

struct Reports {
    pool: PgPool,
}

#[jobs]
impl Reports {
    #[every("1s", lease = "10s")]
    async fn report(&self, ctx: Context) -> JobResult {
        // The id is the same for each attempt, so a repeat writes no second row; the token grows with each, so that an
        // attempt that was given up for lost, and went on, writes nothing any more.
        let written = sqlx::query(
            "INSERT INTO example_report AS r (id, token, written_by) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO UPDATE SET token = excluded.token, written_by = excluded.written_by
             WHERE r.token < excluded.token",
        )
        .bind(ctx.occurrence_id().to_string())
        .bind(i64::try_from(ctx.fencing_token())?)
        .bind(ctx.instance().to_string())
        .execute(&self.pool)
        .await?;
        match written.rows_affected() {
            0 => println!("{}: a later attempt has written {}", ctx.instance(), ctx.occurrence_id()),
            _ => println!("{}: wrote {}", ctx.instance(), ctx.occurrence_id()),
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> JobResult {
    let url = std::env::var("DATABASE_URL").unwrap_or("postgres://postgres@localhost/postgres".to_owned());
    let pool = PgPool::connect(&url).await?;
    sqlx::raw_sql(
        "CREATE TABLE IF NOT EXISTS example_report (id text PRIMARY KEY, token bigint, written_by text)",
    )
    .execute(&pool)
    .await?;
    // Only the settings of the pool are used: the store opens two connections of its own, and creates its schema.
    let store = PostgresBackend::from_pool(&pool).schema("example")?;
    Ok(Scheduler::new(store).namespace("reports").jobs(Reports { pool }).run().await?)
}
