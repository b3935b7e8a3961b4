//! Real processes, really killed, frozen and cut off, on SQLite. What is shown stands in `src/faults/`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anarchon::{SqliteBackend, store::Store};
use anarchon_tests::{
    faults::{StoreClock, trials},
    site::{Outage, TestStore},
};
use libtest_mimic::{Arguments, run};
use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They wait most of the time; how many play at once is bounded by what they load.
    arguments.test_threads.get_or_insert(16);
    run(
        &arguments,
        trials(env!("CARGO_BIN_EXE_worker"), StoreClock::OfTheHost, |directory| {
            Box::new(Sqlite::new(directory))
        }),
    )
    .exit_code()
}

/// A file in a directory of its own, so that it can be moved away together with its log.
///
/// In memory where that is to be had: on a disk that others keep busy a commit may take longer than a lease. What
/// disks do is shown in `sqlite.rs`.
#[derive(Debug)]
struct Sqlite {
    _place: TempDir,
    directory: PathBuf,
    lock: Option<(Runtime, SqliteConnection)>,
}

impl Sqlite {
    fn new(site: &Path) -> Self {
        let place = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new_in(site)).expect("a new directory");
        let directory = place.path().join("store");
        fs::create_dir(&directory).expect("a new directory in it");
        Self { _place: place, directory, lock: None }
    }

    fn away(&self) -> PathBuf {
        self.directory.with_extension("away")
    }
}

impl TestStore for Sqlite {
    fn url(&self) -> String {
        format!("sqlite:{}", self.directory.join("jobs.db").display())
    }

    fn backend(&self) -> Arc<dyn Store> {
        Arc::new(SqliteBackend::connect(&self.url()).expect("a valid URL"))
    }

    fn stop(&mut self, how: Outage) {
        match how {
            Outage::Hangs => {
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
                let runtime = runtime.expect("a runtime");
                let url = self.url();
                let lock = runtime.block_on(async {
                    let mut connection = SqliteConnection::connect(&url).await?;
                    sqlx::raw_sql("PRAGMA busy_timeout = 60000; BEGIN EXCLUSIVE")
                        .execute(&mut connection)
                        .await?;
                    Ok::<_, sqlx::Error>(connection)
                });
                self.lock = Some((runtime, lock.expect("the lock comes free")));
            }
            Outage::Vanishes => fs::rename(&self.directory, self.away()).expect("it can be moved away"),
        }
    }

    fn resume(&mut self) {
        match self.lock.take() {
            Some((runtime, lock)) => runtime.block_on(lock.close()).expect("the lock can be given back"),
            None => fs::rename(self.away(), &self.directory).expect("it can be moved back"),
        }
    }
}
