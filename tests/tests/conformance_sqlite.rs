//! The SQLite store passes the conformance suite: on a file, through backends of its own, as several processes would.

use std::{process::ExitCode, sync::Arc};

use anarchon::{conformance::Harness, store::SqliteBackend};
use tempfile::TempDir;

fn main() -> ExitCode {
    anarchon_tests::conformance::main(|| {
        let folder = TempDir::new().expect("a folder for the file");
        Harness::new(move || {
            let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
            Arc::new(SqliteBackend::connect(&url).expect("the URL of a file"))
        })
    })
}
