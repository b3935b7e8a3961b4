//! The scheduler's own thread and runtime: opens the store there and keeps a handle of the caller's runtime for handlers.
//!
//! A client's sockets belong to the runtime that made them; on the caller's, a handler that blocks would stop the
//! renewals of every lease.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tracing::{error, info, warn};

use super::{
    driver::{Driver, Message},
    report::say,
    shutdown,
};
use crate::{
    clock::Clock,
    engine::{EngineJob, Settings, backoff},
    error::{Error, ErrorKind, Result},
    handler::Handler,
    protocol::{ControlAction, JobName, Namespace},
    store::{Durability, Guarantees, Store, StoreError, StoreErrorKind},
};

/// How long the store may take to open, at the first attempt; twice as long at each further one, for a store that is only slow.
const OPENING: Duration = Duration::from_secs(10);
/// How long the store may take to close.
const CLOSING: Duration = Duration::from_secs(1);

/// All that the scheduler's thread needs.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) namespace: Namespace,
    pub(crate) settings: Settings,
    pub(crate) jobs: Vec<PlannedJob>,
    pub(crate) start_timeout: Duration,
    pub(crate) handlers: Handle,
    pub(crate) signals: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct PlannedJob {
    pub(crate) engine: Arc<EngineJob>,
    pub(crate) handler: Handler,
}

/// An operator's order, with where to answer.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) job: JobName,
    pub(crate) order: Order,
    pub(crate) answer: oneshot::Sender<Result>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    Control(ControlAction),
    /// Cancel whatever runs.
    CancelRun,
}

/// What is left of a scheduler on the caller's side.
#[derive(Debug)]
pub(crate) struct Remote {
    messages: mpsc::UnboundedSender<Message>,
    /// Whether the thread has ended.
    done: watch::Receiver<bool>,
}

impl Remote {
    pub(crate) fn begin_shutdown(&self) {
        // Not there any more: it has ended.
        let _ = self.messages.send(Message::Shutdown);
    }

    pub(crate) async fn wait(&self) {
        // An error means that the thread is gone, which is what is waited for.
        let _ = self.done.clone().wait_for(|done| *done).await;
    }

    pub(crate) async fn order(&self, job: JobName, order: Order) -> Result {
        let (answer, answered) = oneshot::channel();
        let command = Command { job, order, answer };
        self.messages.send(Message::Command(command)).map_err(|_| Error::stopped())?;
        // Dropped unanswered: nobody had begun with it.
        answered.await.map_err(|_| Error::stopped())?
    }
}

/// Starts the thread. The receiver resolves when the jobs are registered, or with why they cannot be.
pub(crate) fn start(plan: Plan) -> Result<(Remote, oneshot::Receiver<Result>)> {
    let (messages, inbox) = mpsc::unbounded_channel();
    let (done, is_done) = watch::channel(false);
    let (ready, is_ready) = oneshot::channel();
    let to_driver = messages.clone();
    // Made here, so that its failure has somebody to tell.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
    std::thread::Builder::new()
        .name("anarchon".to_owned())
        .spawn(move || {
            match plan.signals.then(|| shutdown::listen(&to_driver)).transpose() {
                Ok(_listening) => runtime.block_on(supervise(plan, inbox, ready)),
                Err(error) => {
                    // The caller may have stopped waiting.
                    let _ = ready.send(Err(no_signals(error)));
                }
            }
            // Time for a last call that blocks; what does not end by then would hold up the process.
            runtime.shutdown_timeout(Duration::from_secs(1));
            done.send_replace(true);
        })
        .map_err(no_thread)?;
    Ok((Remote { messages, done: is_done }, is_ready))
}

#[expect(clippy::needless_pass_by_value, reason = "fits map_err")]
fn no_thread(error: std::io::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("the scheduler's thread could not be started: {error}; raise the process's limits"),
    )
}

#[expect(clippy::needless_pass_by_value, reason = "like the other one")]
fn no_signals(error: std::io::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("signals cannot be listened to: {error}; use start() instead of run()"),
    )
}

/// Opens the store and drives the engine until shutdown. A defect of ours or of a store that panics costs the runs in
/// flight, never the scheduler: it starts anew.
async fn supervise(plan: Plan, mut inbox: mpsc::UnboundedReceiver<Message>, ready: oneshot::Sender<Result>) {
    let guarantees = match open(&plan, &mut inbox).await {
        Ok(guarantees) => guarantees,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    if let Some(error) = too_short(&plan.jobs, &guarantees, &plan.store.describe()) {
        let _ = tokio::time::timeout(CLOSING, plan.store.close()).await;
        let _ = ready.send(Err(error));
        return;
    }
    say(|| started(&plan, &guarantees));
    let mut ready = Some(ready);
    let deadline = Instant::now() + plan.start_timeout;
    let mut leaving = false;
    let mut kept = Vec::new();
    loop {
        let drive = async {
            Driver::new(&plan, guarantees.clone())
                .drive(&mut inbox, &mut ready, deadline, &mut kept, &mut leaving)
                .await;
        };
        if AssertUnwindSafe(drive).catch_unwind().await.is_ok() {
            break;
        }
        say(
            || error!(instance = %plan.settings.instance, "the scheduler panicked and starts anew; please report this"),
        );
        if leaving {
            break;
        }
        if Instant::now() >= deadline
            && let Some(ready) = ready.take()
        {
            let message = "the scheduler panicked at each start; please report this, with the lines before";
            let _ = ready.send(Err(Error::new(ErrorKind::Unavailable, message)));
            break;
        }
        tokio::select! {
            () = pause(Duration::from_secs(1)) => {}
            // The next driver says goodbye for us; it is the last, also if it panics.
            () = keep_until_shut_down(&mut inbox, &mut kept) => leaving = true,
        }
    }
    let closed = AssertUnwindSafe(plan.store.close()).catch_unwind();
    // A store that hangs or panics now costs nothing.
    let _ = tokio::time::timeout(CLOSING, closed).await;
    say(|| info!(instance = %plan.settings.instance, "scheduler stopped"));
}

/// What is wrong where leases are shorter than the store can keep.
fn too_short(jobs: &[PlannedJob], guarantees: &Guarantees, store: &str) -> Option<Error> {
    let shortest = guarantees.shortest_lease;
    let wrong = |job: &PlannedJob| {
        let (name, lease) = (&job.engine.name, job.engine.policy.lease);
        (lease < shortest).then(|| {
            format!(
                "lease {lease:?} of job \"{name}\" is shorter than the {shortest:?} that {store} needs to keep it, as it may be \
                 busy with itself for that long; set lease to \"{shortest:?}\" or longer"
            )
        })
    };
    let problems: Vec<_> = jobs.iter().filter_map(wrong).collect();
    (!problems.is_empty()).then(|| Error::configuration(problems))
}

/// What it starts with, and what the store does not promise.
fn started(plan: &Plan, guarantees: &Guarantees) {
    let (store, instance) = (plan.store.describe(), &plan.settings.instance);
    info!(
        store,
        version = %guarantees.store,
        %instance,
        namespace = %plan.namespace,
        jobs = plan.jobs.len(),
        zones = %plan.settings.zones,
        clock = ?guarantees.clock,
        durability = ?guarantees.durability,
        loses_on_failover = guarantees.loses_on_failover,
        "scheduler started"
    );
    if let Durability::Unsafe(why) = &guarantees.durability {
        warn!(store, %instance, "the store promises nothing after a crash: {why}");
    }
}

/// Opens the store, with growing pauses until `start_timeout` is over. An attempt on a server that says nothing is given up in time for
/// another: what swallowed its question may answer to a new one, or on a new connection.
pub(super) async fn open(plan: &Plan, inbox: &mut mpsc::UnboundedReceiver<Message>) -> Result<Guarantees> {
    let deadline = Instant::now() + plan.start_timeout;
    let store = plan.store.describe();
    if let Some(shortest) = plan.jobs.iter().map(|job| job.engine.policy.lease).min() {
        plan.store.shortest_lease(shortest);
    }
    let mut last: Option<StoreError> = None;
    for failures in 0.. {
        let patience = OPENING.saturating_mul(1 << failures.min(8));
        let limit = deadline.min(Instant::now() + patience);
        let opened = tokio::select! {
            opened = tokio::time::timeout_at(limit, AssertUnwindSafe(plan.store.open(&plan.namespace)).catch_unwind()) => opened,
            () = shut_down(inbox) => return Err(Error::stopped()),
        };
        let error = match opened {
            Ok(Ok(Ok(guarantees))) => return Ok(guarantees),
            Ok(Ok(Err(error))) => error,
            Ok(Err(_panic)) => StoreError::unavailable("its client panicked"),
            Err(_elapsed) if limit < deadline => {
                StoreError::unavailable(format_args!("no answer within {patience:?}"))
            }
            // Cut off by the deadline: what was wrong before says more.
            Err(_elapsed) => last.take().unwrap_or_else(|| StoreError::unavailable("no answer")),
        };
        if error.kind == StoreErrorKind::Misconfigured {
            return Err(Error::store(format!("store {store} cannot be used"), error));
        }
        let wait = backoff::store_delay(failures, fastrand::f64());
        if Instant::now() + wait >= deadline {
            let waited = plan.start_timeout;
            return Err(Error::store(
                format!("store {store} could not be opened within start_timeout {waited:?}"),
                error,
            ));
        }
        say(|| warn!(store, %error, "the store cannot be opened yet; trying again in {wait:?}"));
        last = Some(error);
        tokio::select! {
            () = pause(wait) => {}
            () = shut_down(inbox) => return Err(Error::stopped()),
        }
    }
    Err(Error::stopped())
}

#[expect(clippy::disallowed_methods, reason = "runtime/ is where sleeps are")]
async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

/// Keeps what comes while there is no driver.
async fn keep_until_shut_down(inbox: &mut mpsc::UnboundedReceiver<Message>, kept: &mut Vec<Message>) {
    loop {
        // Without anybody left who could send, it is as good as a shutdown.
        let message = inbox.recv().await.unwrap_or(Message::Shutdown);
        let end = matches!(message, Message::Shutdown);
        kept.push(message);
        if end {
            return;
        }
    }
}

async fn shut_down(inbox: &mut mpsc::UnboundedReceiver<Message>) {
    while let Some(message) = inbox.recv().await {
        if matches!(message, Message::Shutdown) {
            return;
        }
    }
    std::future::pending().await
}
