//! How many calls the server is busy with, those among them that nobody waits for any more.
//!
//! A call that is cut off by its deadline takes its connection along, but the server goes on with it: while a table is locked,
//! or for ever where the commit waits for a standby, which no timeout ends. Such a call keeps its permit until the server is
//! seen to be done with it; else each repetition would leave one more session, until there is no room for anybody.
//!
//! What is looked for is the text of the call, as `pg_stat_activity` shows it to its own role, and not the session: behind a
//! pooler that one is not ours. For the same reason none is ever ended by us.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use sqlx::postgres::PgRow;
use tokio::sync::{MutexGuard as Turn, Notify, Semaphore, SemaphorePermit};

use super::rows;

/// Begins every message: the implicit transaction of its statements. `pg_stat_statements` of before PostgreSQL 16 keeps
/// such a statement by its text, with comments and all, so that the mark of the call follows it.
const ISOLATION: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;";

/// The calls of one backend.
#[derive(Debug)]
pub(super) struct Calls {
    most: usize,
    /// One for each call that the server may be busy with.
    permits: Semaphore,
    /// By their numbers; each keeps its permit.
    abandoned: Mutex<Vec<u64>>,
    /// Told when no permit will come back by itself.
    blocked: Notify,
    /// One at a time looks without a permit.
    turn: tokio::sync::Mutex<()>,
    /// Tells our calls from those of other instances.
    tag: u64,
    number: AtomicU64,
}

impl Calls {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            permits: Semaphore::new(most),
            abandoned: Mutex::default(),
            blocked: Notify::new(),
            turn: tokio::sync::Mutex::default(),
            tag: fastrand::u64(..),
            number: AtomicU64::new(0),
        }
    }

    /// Waits until one more call may be sent. Nothing when all there may be are abandoned: somebody has to look.
    pub(super) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        let mut blocked = std::pin::pin!(self.blocked.notified());
        blocked.as_mut().enable();
        if self.all_are_abandoned() {
            return None;
        }
        tokio::select! {
            permit = self.permits.acquire() => permit.ok(),
            () = blocked => None,
        }
    }

    pub(super) fn permit_at_once(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok()
    }

    pub(super) async fn turn(&self) -> Turn<'_, ()> {
        self.turn.lock().await
    }

    pub(super) fn begin<'a>(&'a self, permit: SemaphorePermit<'a>) -> Call<'a> {
        Call { calls: self, number: self.number.fetch_add(1, Ordering::Relaxed), permit: Some(permit) }
    }

    pub(super) fn abandoned(&self) -> Vec<u64> {
        self.lock().clone()
    }

    pub(super) fn all_are_abandoned(&self) -> bool {
        self.lock().len() >= self.most
    }

    /// Asks what the server is busy with.
    pub(super) fn question(&self) -> String {
        include_str!("abandoned.sql").replace("$mark", &format!("'{}'", self.mark()))
    }

    /// Takes in the answer: those of `before` that it does not name are over. Says what the first of the others waits for.
    pub(super) fn judge(&self, before: &[u64], answer: &[PgRow]) -> Option<String> {
        let busy: Vec<(u64, &PgRow)> = answer
            .iter()
            .filter_map(|row| Some((rows::text(row, 0).ok()?.parse().ok()?, row)))
            .filter(|(number, _)| before.contains(number))
            .collect();
        let over: Vec<u64> =
            before.iter().copied().filter(|number| busy.iter().all(|(busy, _)| busy != number)).collect();
        self.forget(&over);
        busy.first().map(|(_, row)| {
            let text = |column| rows::text(row, column).unwrap_or_default();
            waits_for(&text(1), &text(2), &text(3))
        })
    }

    /// These are over, or nobody can tell.
    pub(super) fn forget(&self, over: &[u64]) {
        let mut abandoned = self.lock();
        let before = abandoned.len();
        abandoned.retain(|number| !over.contains(number));
        self.permits.add_permits(before - abandoned.len());
    }

    fn mark(&self) -> String {
        format!("{ISOLATION} /* anarchon {:016x}.", self.tag)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call under way. Dropped before its end is known, it counts as one that the server is busy with.
#[derive(Debug)]
pub(super) struct Call<'a> {
    calls: &'a Calls,
    number: u64,
    permit: Option<SemaphorePermit<'a>>,
}

impl Call<'_> {
    /// The text to send, by which the call is known again.
    pub(super) fn marked(&self, text: &str) -> String {
        format!("{}{} */ {text}", self.calls.mark(), self.number)
    }

    /// The server is done with it.
    pub(super) fn end(mut self) {
        self.permit = None;
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.forget();
            self.calls.lock().push(self.number);
            if self.calls.all_are_abandoned() {
                self.calls.blocked.notify_waiters();
            }
        }
    }
}

fn waits_for(kind: &str, event: &str, holders: &str) -> String {
    match (kind, event) {
        (_, "SyncRep") => "a synchronous standby that does not answer; bring it back, or take it out of \
                           synchronous_standby_names"
            .to_owned(),
        ("Lock", _) => format!(
            "a lock ({event}) that somebody else holds: {}; look for a transaction on the tables of anarchon that is left open",
            if holders.is_empty() { "who is not known" } else { holders }
        ),
        ("", _) => "its own computing; look at what it is busy with".to_owned(),
        _ => format!("{kind} ({event}); look for it under wait events in the manual of PostgreSQL"),
    }
}
