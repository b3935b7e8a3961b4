//! A file of SQLite as the store of a scenario: no server, and taken away all the same.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::site::{Outage, TestStore};

/// A file in a directory of its own, so that it can be moved away together with its log.
///
/// In memory where that is to be had: on a disk that others keep busy a commit may take longer than a lease. What
/// disks do is shown in `sqlite.rs` of the tests.
#[derive(Debug)]
pub struct SqliteStore {
    _place: TempDir,
    directory: PathBuf,
    lock: Option<(Runtime, SqliteConnection)>,
}

impl SqliteStore {
    /// A new file, in the directory of the site where there is no memory for it.
    ///
    /// # Panics
    /// When there can be no directory for it.
    #[must_use]
    pub fn new(site: &Path) -> Self {
        let place = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new_in(site)).expect("a new directory");
        let directory = place.path().join("store");
        fs::create_dir(&directory).expect("a new directory in it");
        Self { _place: place, directory, lock: None }
    }

    fn away(&self) -> PathBuf {
        self.directory.with_extension("away")
    }
}

impl TestStore for SqliteStore {
    fn url(&self) -> String {
        format!("sqlite:{}", self.directory.join("jobs.db").display())
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
