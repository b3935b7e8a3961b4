//! Real processes, really killed, frozen and cut off, on PostgreSQL. What is shown stands in `src/faults/`.

use std::{process::ExitCode, sync::Arc};

use anarchon::{PostgresBackend, store::Store};
use anarchon_tests::{
    faults::{StoreClock, trials},
    servers::{
        Server,
        postgres::{Release, url},
    },
    site::{Outage, TestStore},
};
use libtest_mimic::{Arguments, run};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They wait most of the time; how many play at once is bounded by what they load.
    arguments.test_threads.get_or_insert(16);
    run(
        &arguments,
        trials(env!("CARGO_BIN_EXE_worker"), StoreClock::OfTheServer, |_directory| {
            Box::new(Postgres::start())
        }),
    )
    .exit_code()
}

#[derive(Debug)]
struct Postgres {
    server: Server,
    stopped: Option<Outage>,
}

impl Postgres {
    fn start() -> Self {
        Self { server: Release::System.start(), stopped: None }
    }
}

impl TestStore for Postgres {
    fn url(&self) -> String {
        url(self.server.port())
    }

    fn backend(&self) -> Arc<dyn Store> {
        Arc::new(PostgresBackend::connect(&self.url()).expect("a valid URL"))
    }

    fn stop(&mut self, how: Outage) {
        self.stopped = Some(how);
        match how {
            Outage::Hangs => self.server.freeze(),
            Outage::Vanishes => self.server.kill(),
        }
    }

    fn resume(&mut self) {
        match self.stopped.take() {
            Some(Outage::Hangs) => self.server.thaw(),
            Some(Outage::Vanishes) => self.server.restart(),
            None => {}
        }
    }
}
