//! Claims a second of the SQLite store, beside a bare `INSERT … ON CONFLICT` in the same shape of transaction, on the same
//! disk, in the same run. `cargo bench --bench sqlite`

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::unwrap_used, reason = "a benchmark may end at the first surprise")]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anarchon::{
    protocol::{
        Claim, Fingerprint, Finish, InstanceId, JobName, JobSpec, Namespace, Nonce, Outcome, Verdict, What,
    },
    store::{SqliteBackend, Store as _},
};
use sqlx::{Connection as _, Executor as _, SqliteConnection, sqlite::SqliteConnectOptions};

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    println!(
        "{:>6} {:>14} {:>14} {:>8} {:>12} {:>14}",
        "batch", "claims/s", "bare rows/s", "ratio", "ms a batch", "lost claims/s"
    );
    for batch in [1, 100, 1_000] {
        let dir = tempfile::tempdir().unwrap();
        let seconds = Duration::from_secs(3);
        let (ours, lost, each) = runtime.block_on(claims(&dir.path().join("store.db"), batch, seconds));
        let bare = runtime.block_on(rows(&dir.path().join("bare.db"), batch, seconds));
        println!("{batch:>6} {ours:>14.0} {bare:>14.0} {:>8.2} {each:>12.2} {lost:>14.0}", ours / bare);
    }
}

async fn claims(file: &Path, batch: usize, limit: Duration) -> (f64, f64, f64) {
    let store = SqliteBackend::connect(&format!("sqlite:{}", file.display())).unwrap();
    store.open(&Namespace::new("bench").unwrap()).await.unwrap();
    let (schedule, by) = (Fingerprint::of("every 1 s"), InstanceId::new("bench").unwrap());
    let jobs: Vec<JobName> = (0..batch).map(|i| JobName::new(&format!("job-{i:04}")).unwrap()).collect();
    let spec =
        |job: &JobName| JobSpec { job: job.clone(), schedule, by: by.clone(), replace: None, next: None };
    let specs: Vec<JobSpec> = jobs.iter().map(spec).collect();
    let registered = store.register(&specs).await;
    let mut at = registered.into_iter().map(|answer| answer.unwrap().now.millis()).max().unwrap();
    let (mut won, mut looked, mut seq) = (Duration::ZERO, Duration::ZERO, 0);
    let (mut wins, mut losses) = (0_usize, 0_usize);
    while won < limit {
        let last = at;
        // The next millisecond of the store's clock; an occurrence of the future would be refused.
        while at <= last {
            at = store.inspect(&jobs[..1], 0).await.remove(0).unwrap().now.millis();
        }
        let mut claim = |job: &JobName| {
            seq += 1;
            Claim {
                job: job.clone(),
                what: What::Planned(at),
                lease: Duration::from_secs(30),
                window: Duration::from_secs(300),
                max_attempts: 3,
                schedule,
                holder: by.clone(),
                nonce: Nonce { instance: 1, seq },
                next: None,
                expires: anarchon::protocol::Millis::MAX,
            }
        };
        let claims: Vec<Claim> = jobs.iter().map(&mut claim).collect();
        let others: Vec<Claim> = jobs.iter().map(&mut claim).collect();
        let began = Instant::now();
        let answers = store.claim(&claims).await;
        let took = began.elapsed();
        let mut finishes = Vec::new();
        for (job, answer) in jobs.iter().zip(answers) {
            let answer = answer.unwrap();
            if let Verdict::Awarded(award) = answer.value {
                let job = job.clone();
                finishes.push(Finish { job, token: award.token, outcome: Outcome::Succeeded, message: None });
            }
        }
        assert_eq!(finishes.len(), batch);
        (won, wins) = (won + took, wins + batch);
        let began = Instant::now();
        store.claim(&others).await;
        (looked, losses) = (looked + began.elapsed(), losses + batch);
        store.finish(&finishes).await;
    }
    let rate = |n: usize, time: Duration| n as f64 / time.as_secs_f64();
    (rate(wins, won), rate(losses, looked), won.as_secs_f64() * 1e3 / (wins / batch) as f64)
}

async fn rows(file: &Path, batch: usize, limit: Duration) -> f64 {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
        .synchronous(sqlx::sqlite::SqliteSynchronous::Full);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    let table = "CREATE TABLE lease (job TEXT PRIMARY KEY, until INTEGER, holder TEXT) WITHOUT ROWID";
    connection.execute(table).await.unwrap();
    let began = Instant::now();
    let mut done = 0;
    while began.elapsed() < limit {
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
        for i in 0..batch {
            sqlx::query(
                "INSERT INTO lease VALUES (?1, ?2, 'bench') ON CONFLICT (job) \
                 DO UPDATE SET until = excluded.until, holder = excluded.holder WHERE until < excluded.until",
            )
            .bind(format!("job-{i:04}"))
            .bind(i64::try_from(done + 1).unwrap())
            .execute(&mut *tx)
            .await
            .unwrap();
        }
        tx.commit().await.unwrap();
        done += batch;
    }
    done as f64 / began.elapsed().as_secs_f64()
}
