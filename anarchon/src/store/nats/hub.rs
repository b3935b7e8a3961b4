//! What one handle knows across its connections: the server's time, and how long leases have stood unchanged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

use super::{clock::ServerClock, leases::Leases, value::Kept};
use crate::{
    clock::{Clock, Mono, SystemClock},
    protocol::{JobName, LeaseEnd, Record, StoreNow},
};

/// How many hints wait for whoever listens; more only cost a later look.
const HINTS: usize = 1024;

#[derive(Debug)]
pub(super) struct Hub {
    pub(super) clock: Arc<dyn Clock>,
    server: Mutex<ServerClock>,
    leases: Mutex<Leases>,
    hints: broadcast::Sender<JobName>,
}

impl Hub {
    pub(super) fn new() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            server: Mutex::default(),
            leases: Mutex::default(),
            hints: broadcast::Sender::new(HINTS),
        }
    }

    pub(super) fn server(&self) -> MutexGuard<'_, ServerClock> {
        lock(&self.server)
    }

    /// A message came in by the watch.
    pub(super) fn heard(&self, revision: u64, stored: i64, at: Mono) {
        self.server().heard(revision, stored, at);
    }

    /// A record was seen, or that there is none.
    pub(super) fn saw(&self, job: &JobName, record: Option<&Record>, at: Mono, stored: Option<i64>) {
        match record {
            Some(record) => lock(&self.leases).see(job, record, at, stored),
            None => lock(&self.leases).forget(job),
        }
    }

    pub(super) fn lease_end(&self, job: &JobName, kept: &Kept, now: StoreNow, at: Mono) -> LeaseEnd {
        let own = self.server().newest_own();
        lock(&self.leases).end(job, kept, now, at, own)
    }

    pub(super) fn hint(&self, job: &JobName) {
        // Nobody may be listening.
        let _ = self.hints.send(job.clone());
    }

    pub(super) fn hints(&self) -> broadcast::Receiver<JobName> {
        self.hints.subscribe()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every write to them is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
