//! Takes actions from the engine, does them, hands back events.

use std::{collections::HashMap, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};

use futures_core::Stream;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use super::{
    report,
    run::{self, Ending, Starts},
    thread::{Command, Order, Plan},
};
use crate::{
    context::{Context, Facts, Home, RunState},
    engine::{Action, Call, CallId, CancelReason, Engine, Event, Reply, RunEnd, RunId, Start},
    error::{Error, ErrorKind, Result},
    protocol::{Control, ControlAction, Controlled, JobName, Occurrence, Status},
    store::{Answer, Guarantees, Store, StoreError},
};

/// What reaches the driver.
#[derive(Debug)]
pub(crate) enum Message {
    /// The record of a job may have changed.
    Changed(JobName),
    /// A run ended; without an end, the caller's runtime is gone.
    Ended(RunId, Option<RunEnd>),
    /// An operator's order.
    Command(Command),
    /// Begin to shut down.
    Shutdown,
}

/// No sleep is longer: tokio's timers stand still while a machine sleeps, the leases do not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// After how many replies those runs are heard of that have ended meanwhile.
const REPLIES: usize = 16;

/// How long an operator's order may take.
const ORDER_DEADLINE: Duration = Duration::from_secs(10);

pub(crate) struct Driver<'a> {
    plan: &'a Plan,
    engine: Engine,
    runs: HashMap<RunId, Context>,
    /// Those that begin when all is done that the engine asks for now.
    starts: Starts,
    /// The calls in flight. Their replies are taken in one by one: what the first has won is started before the others are heard.
    calls: FuturesUnordered<BoxFuture<'static, Event>>,
    /// For what this driver starts: the ends of one that panicked are not for its successor.
    messages: mpsc::UnboundedSender<Message>,
    own: mpsc::UnboundedReceiver<Message>,
    changes: Option<Pin<Box<dyn Stream<Item = JobName> + Send>>>,
    reporter: report::Reporter,
    home: Arc<Home>,
    stopped: bool,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(plan: &'a Plan, guarantees: Guarantees) -> Self {
        let jobs = plan.jobs.iter().map(|job| Arc::clone(&job.engine));
        let mut settings = plan.settings.clone();
        // Counters start anew with each engine, so the random part of the nonces must as well.
        settings.nonce = random();
        let mut engine = Engine::new(settings, jobs);
        engine.handle(Event::Opened(guarantees), plan.clock.mono());
        let changes = plan.store.changes();
        let (messages, own) = mpsc::unbounded_channel();
        let store: Arc<str> = plan.store.describe().into();
        let reporter = report::Reporter::new(Arc::clone(&store), &plan.settings.instance);
        let (namespace, instance) = (plan.namespace.clone(), plan.settings.instance.clone());
        Self {
            plan,
            engine,
            runs: HashMap::new(),
            starts: Starts::default(),
            calls: FuturesUnordered::new(),
            messages,
            own,
            changes,
            reporter,
            home: Arc::new(Home { namespace, instance, store }),
            stopped: false,
        }
    }

    /// Runs until the engine says that it has stopped, or failed before it was ready.
    pub(crate) async fn drive(
        &mut self,
        inbox: &mut mpsc::UnboundedReceiver<Message>,
        ready: &mut Option<oneshot::Sender<Result>>,
        start_deadline: Instant,
        kept: &mut Vec<Message>,
        leaving: &mut bool,
    ) {
        for message in kept.drain(..) {
            self.take(message, leaving);
        }
        let mut replies: usize = 0;
        loop {
            while let Some(action) = self.engine.next_action() {
                self.act(action, ready);
            }
            self.starts.spawn(&self.plan.handlers);
            if self.stopped {
                // An order that came just before is begun, also where all calls were answered at once.
                tokio::task::yield_now().await;
                return;
            }
            if ready.is_some() && Instant::now() >= start_deadline {
                self.give_up_start(ready);
                return;
            }
            let wake = self.next_wake();
            let mut has_ended = false;
            tokio::select! {
                biased;
                message = inbox.recv() => self.take(message.unwrap_or(Message::Shutdown), leaving),
                // What was won starts before what has ended is closed.
                Some(reply) = self.calls.next() => {
                    self.take_reply(reply);
                    replies += 1;
                    if replies.is_multiple_of(REPLIES) {
                        // A store that answers at once would have everybody else wait.
                        tokio::task::yield_now().await;
                        has_ended = true;
                    }
                }
                Some(message) = self.own.recv() => {
                    self.take(message, leaving);
                    has_ended = true;
                }
                Some(job) = next_change(&mut self.changes) => self.handle(Event::Changed(job)),
                () = sleep_until(wake) => self.handle(Event::Tick),
            }
            self.reporter.woken(Instant::now().duration_since(wake));
            // Runs that ended together are closed together.
            while has_ended && let Ok(message) = self.own.try_recv() {
                self.take(message, leaving);
            }
        }
    }

    fn next_wake(&self) -> Instant {
        let now = self.plan.clock.mono();
        let pause = self.engine.next_wakeup().map_or(LONGEST_SLEEP, |at| at.since(now)).min(LONGEST_SLEEP);
        Instant::now() + pause
    }

    fn handle(&mut self, event: Event) {
        self.engine.handle(event, self.plan.clock.mono());
    }

    fn take_reply(&mut self, event: Event) {
        if let Event::Reply { sent, received, .. } = &event {
            self.reporter.answered(received.since(*sent));
        }
        self.handle(event);
        self.reporter.compare_clocks(self.engine.store_now(self.plan.clock.mono()), &*self.plan.clock);
    }

    fn take(&mut self, message: Message, leaving: &mut bool) {
        match message {
            Message::Changed(job) => self.handle(Event::Changed(job)),
            Message::Ended(run, end) => {
                self.runs.remove(&run);
                let is_homeless = end.is_none();
                self.handle(Event::RunEnded { run, end: end.unwrap_or(RunEnd::Dropped) });
                // Whatever it won from now on it could not run.
                if is_homeless && !std::mem::replace(leaving, true) {
                    report::say(
                        || tracing::error!(store = %self.home.store, instance = %self.home.instance, "the runtime that the scheduler was started on has shut down, and handlers run there: the scheduler ends as well; shut it down first"),
                    );
                    self.handle(Event::Shutdown);
                }
            }
            Message::Command(command) => self.order(command),
            Message::Shutdown => {
                *leaving = true;
                self.handle(Event::Shutdown);
            }
        }
    }

    fn act(&mut self, action: Action, ready: &mut Option<oneshot::Sender<Result>>) {
        match action {
            Action::Call { id, call, deadline } => self.call(id, call, deadline),
            Action::Ready => {
                if let Some(ready) = ready.take() {
                    // The caller gave up waiting: its `Running` is gone, and a shutdown follows.
                    let _ = ready.send(Ok(()));
                }
            }
            Action::Start(start) => self.start(&start),
            Action::Trust { run, trust } => {
                if let Some(context) = self.runs.get(&run) {
                    context.state().trust(trust);
                }
            }
            Action::Cancel { run, reason } => {
                if let Some(context) = self.runs.get(&run) {
                    context.state().cancel(reason);
                }
            }
            Action::Drop { run } => {
                if let Some(context) = self.runs.get(&run) {
                    context.state().abort();
                }
            }
            Action::Report(report) => self.reporter.report(&report),
            Action::Failed(error) => {
                let store = &*self.home.store;
                match ready.take() {
                    Some(ready) => {
                        let _ = ready.send(Err(Error::store(format!("store {store} cannot be used"), error)));
                        self.stopped = true;
                    }
                    None => report::say(
                        || tracing::error!(store, %error, "the store refuses; set it up as it says"),
                    ),
                }
            }
            Action::Stopped => self.stopped = true,
        }
    }

    fn give_up_start(&mut self, ready: &mut Option<oneshot::Sender<Result>>) {
        let store = &self.home.store;
        let waited = self.plan.start_timeout;
        if let Some(ready) = ready.take() {
            let _ = ready.send(Err(Error::new(
                ErrorKind::Unavailable,
                format!("store {store} did not register the jobs within start_timeout {waited:?}"),
            )));
        }
    }

    fn start(&mut self, start: &Start) {
        let job = &self.plan.jobs[start.job];
        let instant = match start.award.occurrence {
            Occurrence::Planned(at) => at,
            Occurrence::Manual(_) => start.award.started,
        };
        let scheduled_at = chrono::DateTime::from_timestamp_millis(instant.0).unwrap_or_default();
        let facts = Facts {
            home: Arc::clone(&self.home),
            job: job.engine.name.clone(),
            occurrence: start.award.occurrence,
            scheduled_at,
            scheduled_local: job.engine.schedule.local(scheduled_at),
            attempt: start.award.attempt,
            token: start.award.token,
            catch_up: start.catch_up,
        };
        report::started(&facts);
        let context = Context::new(facts, RunState::new(start.trust, Arc::clone(&self.plan.clock)));
        self.runs.insert(start.run, context.clone());
        let ending = Ending::new(start.run, context, self.messages.clone());
        self.starts.add(&job.handler, ending, &self.plan.handlers);
    }

    fn call(&self, id: CallId, call: Call, deadline: Duration) {
        let store = Arc::clone(&self.plan.store);
        let clock = Arc::clone(&self.plan.clock);
        self.calls.push(Box::pin(async move {
            let sent = clock.mono();
            let asked = AssertUnwindSafe(timeout(deadline, ask(&*store, &call))).catch_unwind().await;
            let received = clock.mono();
            let reply = match asked {
                Ok(Ok(reply)) => reply,
                Ok(Err(_elapsed)) => {
                    unanswered(&call, &StoreError::unknown(format!("no reply within {deadline:?}")))
                }
                Err(_panic) => unanswered(&call, &StoreError::unknown("the store's client panicked")),
            };
            Event::Reply { call: id, sent, received, reply }
        }));
    }

    #[expect(clippy::disallowed_methods, reason = "runtime/ is where tasks are spawned")]
    fn order(&self, command: Command) {
        let store = Arc::clone(&self.plan.store);
        let messages = self.messages.clone();
        tokio::spawn(async move {
            let Command { job, order, answer } = command;
            let answer = Begun { job: job.clone(), answer: Some(answer) };
            let done =
                AssertUnwindSafe(timeout(ORDER_DEADLINE, carry_out(&*store, &job, order))).catch_unwind();
            let result = match done.await {
                Ok(Ok(result)) => result,
                Ok(Err(_elapsed)) => {
                    Err(may_have_happened(&job, &format!("no reply within {ORDER_DEADLINE:?}")))
                }
                Err(panic) => {
                    let why = format!("the store's client panicked: {}", run::panic_message(&*panic));
                    Err(may_have_happened(&job, &why))
                }
            };
            // The engine ignores a job that is not its own.
            let _ = messages.send(Message::Changed(job));
            answer.give(result);
        });
    }
}

/// An order on its way to the store, and where to answer, also when the end of the scheduler cuts it off.
struct Begun {
    job: JobName,
    answer: Option<oneshot::Sender<Result>>,
}

impl Begun {
    fn give(mut self, result: Result) {
        if let Some(answer) = self.answer.take() {
            // The caller may have stopped waiting.
            let _ = answer.send(result);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            let error = may_have_happened(&self.job, "the scheduler ended before the store replied");
            let _ = answer.send(Err(error));
        }
    }
}

impl Drop for Driver<'_> {
    /// Nobody renews the leases of what still runs.
    fn drop(&mut self) {
        for context in self.runs.values() {
            context.state().cancel(CancelReason::LeaseLost);
            context.state().abort();
        }
    }
}

/// From the system; from a weaker source where it has none to give.
pub(crate) fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| fastrand::u64(..))
}

async fn next_change(changes: &mut Option<Pin<Box<dyn Stream<Item = JobName> + Send>>>) -> Option<JobName> {
    match changes {
        Some(stream) => {
            let next = stream.next().await;
            if next.is_none() {
                *changes = None;
            }
            next
        }
        None => std::future::pending().await,
    }
}

async fn ask(store: &dyn Store, call: &Call) -> Reply {
    match call {
        Call::Beat(announcement) => Reply::Beat(store.beat(announcement).await),
        Call::Register(specs) => Reply::Register(store.register(specs).await),
        Call::Claim(claims) => Reply::Claim(store.claim(claims).await),
        Call::Renew(renewals) => Reply::Renew(store.renew(renewals).await),
        Call::Finish(finishes) => Reply::Finish(store.finish(finishes).await),
        Call::Inspect(jobs) => Reply::Inspect(store.inspect(jobs, 0).await),
    }
}

/// The same non-answer for every item.
fn unanswered(call: &Call, error: &StoreError) -> Reply {
    fn all<T, A>(items: &[T], error: &StoreError) -> Vec<Answer<A>> {
        items.iter().map(|_| Err(error.clone())).collect()
    }
    match call {
        Call::Beat(_) => Reply::Beat(Err(error.clone())),
        Call::Register(items) => Reply::Register(all(items, error)),
        Call::Claim(items) => Reply::Claim(all(items, error)),
        Call::Renew(items) => Reply::Renew(all(items, error)),
        Call::Finish(items) => Reply::Finish(all(items, error)),
        Call::Inspect(items) => Reply::Inspect(all(items, error)),
    }
}

async fn carry_out(store: &dyn Store, job: &JobName, order: Order) -> Result {
    let action = match order {
        Order::Control(action) => action,
        Order::CancelRun => ControlAction::Cancel(current_token(store, job).await?),
    };
    let answers = store.control(&[Control { job: job.clone(), action }]).await;
    match first(answers, job)? {
        Controlled::Done => Ok(()),
        Controlled::NoSuchRun => Err(not_running(job)),
        Controlled::Unregistered => Err(unknown_job(job)),
    }
}

async fn current_token(store: &dyn Store, job: &JobName) -> Result<crate::protocol::Token> {
    let snapshot = first(store.inspect(std::slice::from_ref(job), 0).await, job)?;
    let record = snapshot.ok_or_else(|| unknown_job(job))?.record;
    match record.status {
        Status::Running | Status::Waiting => Ok(record.token),
        Status::Idle | Status::Succeeded | Status::Failed | Status::Cancelled | Status::Lost => {
            Err(not_running(job))
        }
    }
}

fn first<T>(answers: Vec<Answer<T>>, job: &JobName) -> Result<T> {
    let answer =
        answers.into_iter().next().unwrap_or_else(|| Err(StoreError::unknown("the store gave no answer")));
    answer
        .map(|stamped| stamped.value)
        .map_err(|error| Error::store(format!("the order for job \"{job}\" failed"), error))
}

fn may_have_happened(job: &JobName, why: &str) -> Error {
    Error::store(
        format!(
            "the order for job \"{job}\" may or may not have reached the store; look at what the job does"
        ),
        StoreError::unknown(why),
    )
}

fn unknown_job(job: &JobName) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!(
            "the store has no job \"{job}\" in this namespace; check the name, or start an instance that has it"
        ),
    )
}

fn not_running(job: &JobName) -> Error {
    Error::new(ErrorKind::NotFound, format!("job \"{job}\" has no run to cancel at the moment"))
}

impl std::fmt::Debug for Driver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}
