//! From what a user says to a running scheduler: defaults that work, and one error for all that is wrong.

use std::{
    any::TypeId,
    collections::{BTreeMap, BTreeSet, HashMap},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use anarchon_schedule::{At, Cron, Every, Zones};
use tokio::runtime::Handle;
use tracing::{debug, warn};

use crate::{
    clock::SystemClock,
    context::Context,
    engine::{EngineJob, Settings},
    error::{Error, ErrorKind, Result},
    handler::HandlerResult,
    job::Job,
    policy::{self, Delays, Length, Options},
    protocol::{ControlAction, Fingerprint, InstanceId, JobName, Namespace},
    registration::{self, Jobs},
    runtime::{self, Order, Plan, PlannedJob, Remote},
    store::{Store, connect},
};

/// Where the namespace is named when the program does not.
const NAMESPACE_VARIABLE: &str = "ANARCHON_NAMESPACE";

/// Runs the jobs on the store that `ANARCHON_STORE` names, else on SQLite in `./anarchon.db`, until SIGINT or SIGTERM
/// and the drain that follows.
///
/// The same as `Scheduler::from_env()?.jobs(jobs).run()`; see [`Scheduler::run`] for what signals do.
///
/// # Errors
/// Everything that [`Scheduler::start`] returns.
///
/// ```no_run
/// # #[cfg(feature = "macros")] mod main {
/// use anarchon::prelude::*;
///
/// struct MyJobs;
///
/// #[jobs]
/// impl MyJobs {
///     #[every("10s")]
///     async fn sync(&self) {}
/// }
///
/// #[tokio::main]
/// async fn main() -> anarchon::Result {
///     anarchon::run(MyJobs).await
/// }
/// # }
/// ```
// Not an `async fn`: rustc would tell of a type without jobs three times.
pub fn run(jobs: impl Jobs) -> Run {
    Run(Box::pin(async move { Scheduler::from_env()?.jobs(jobs).run().await }))
}

/// The future of [`run`].
#[must_use = "nothing runs until it is awaited"]
pub struct Run(Pin<Box<dyn Future<Output = Result> + Send>>);

impl Future for Run {
    type Output = Result;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result> {
        self.0.as_mut().poll(cx)
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Run")
    }
}

/// Jobs, a store, and how to run them.
///
/// ```
/// # async fn example() -> anarchon::Result {
/// use anarchon::{MemoryBackend, prelude::*};
///
/// let running = Scheduler::new(MemoryBackend::new())
///     .namespace("billing")
///     .every("sync", "10s", |ctx: Context| async move {
///         println!("{}", ctx.occurrence_id());
///     })
///     .cron("digest", Cron::new("0 8 * * 1-5").tz("Europe/Athens"), |_| async { JobResult::Ok(()) })
///     .start()
///     .await?;
/// running.shutdown().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
///
/// # Rolling deployments
///
/// Versions of a program with other jobs may run side by side on one store and namespace, during an update and during a
/// roll-back. Nothing is configured for that, and no planned time runs twice. A job runs on the instances that have it; one whose
/// schedule changes keeps the old one until no instance has that any more. What counts as another schedule, how long it takes, and what
/// differs on RabbitMQ, is told in [`guide::upgrading`](crate::guide::upgrading).
#[derive(Debug)]
#[must_use = "a scheduler does nothing until it is started"]
pub struct Scheduler {
    store: Arc<dyn Store>,
    namespace: Option<String>,
    package: Option<&'static str>,
    types: Vec<TypeId>,
    jobs: Vec<Job>,
    defaults: Options,
    drain: Length,
    start_timeout: Length,
    concurrency: Option<usize>,
}

impl Scheduler {
    /// A scheduler on this store.
    pub fn new(store: impl Store) -> Self {
        Self::on(Arc::new(store))
    }

    /// A scheduler on the store of a URL, such as `sqlite:jobs.db` or `memory:`. Only the URL is checked here.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`] for a text that is no such URL, [`ErrorKind::Unsupported`] for a store that is not
    /// compiled in.
    pub fn connect(url: &str) -> Result<Self> {
        connect::connect(url).map(Self::on)
    }

    /// A scheduler on the store that `ANARCHON_STORE` names, else on SQLite in `./anarchon.db`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn from_env() -> Result<Self> {
        connect::from_env().map(Self::on)
    }

    fn on(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            namespace: None,
            package: None,
            types: Vec::new(),
            jobs: Vec::new(),
            defaults: Options::default(),
            drain: Duration::from_secs(25).into(),
            start_timeout: Duration::from_secs(30).into(),
            concurrency: None,
        }
    }

    /// Keeps the records apart from those of other services on the store: 1–100 of `a-z A-Z 0-9 _ - .`.
    ///
    /// Without it `ANARCHON_NAMESPACE` names it, else the package of the first type handed to [`jobs`](Self::jobs).
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Adds the jobs of a type with `#[jobs]`, of an `Arc` of one, or of a tuple of those.
    pub fn jobs(mut self, jobs: impl Jobs) -> Self {
        let collected = registration::collect(jobs);
        self.jobs.extend(collected.jobs);
        self.types.extend(collected.types);
        self.package = self.package.or(collected.package);
        self
    }

    /// Adds a job at a fixed interval; see [`Job::every`].
    pub fn every<F, R>(self, name: impl Into<String>, interval: impl Into<Every>, handler: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output: HandlerResult> + Send + 'static,
    {
        self.job(Job::every(name, interval, handler))
    }

    /// Adds a job with a cron expression; see [`Job::cron`].
    pub fn cron<F, R>(self, name: impl Into<String>, expression: impl Into<Cron>, handler: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output: HandlerResult> + Send + 'static,
    {
        self.job(Job::cron(name, expression, handler))
    }

    /// Adds a job at one or more instants; see [`Job::at`].
    pub fn at<F, R>(self, name: impl Into<String>, instant: impl Into<At>, handler: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output: HandlerResult> + Send + 'static,
    {
        self.job(Job::at(name, instant, handler))
    }

    /// Adds a job with options of its own.
    pub fn job(mut self, job: Job) -> Self {
        self.jobs.push(job);
        self
    }

    /// The default of [`Job::lease`]: 30 s.
    pub fn lease(mut self, lease: impl Into<Length>) -> Self {
        self.defaults.lease = Some(lease.into());
        self
    }

    /// The default of [`Job::jitter`]: min(500 ms, interval / 10).
    pub fn jitter(mut self, jitter: impl Into<Length>) -> Self {
        self.defaults.jitter = Some(jitter.into());
        self
    }

    /// The default of [`Job::catch_up`]: 5 minutes.
    pub fn catch_up(mut self, window: impl Into<Length>) -> Self {
        self.defaults.catch_up = Some(window.into());
        self
    }

    /// The default of [`Job::timeout`]: none.
    pub fn timeout(mut self, timeout: impl Into<Length>) -> Self {
        self.defaults.timeout = Some(timeout.into());
        self
    }

    /// The default of [`Job::max_attempts`]: 3.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.defaults.max_attempts = Some(attempts);
        self
    }

    /// The default of [`Job::retries`]: 0.
    pub fn retries(mut self, retries: u32) -> Self {
        self.defaults.retries = Some(retries);
        self
    }

    /// The default of [`Job::backoff`]: `"5s..5m"`.
    pub fn backoff(mut self, delays: impl Into<Delays>) -> Self {
        self.defaults.backoff = Some(delays.into());
        self
    }

    /// How many handlers may run at once on this instance; no limit by default. At the limit this instance claims
    /// nothing, and leaves what is due to the others. Zero is an error at the start.
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = Some(runs);
        self
    }

    /// How long runs may go on after a shutdown began, before they are cancelled and released: 25 s by default. A
    /// cancelled handler has 2 s to end, then its future is dropped: keep the drain more than 3 s under the grace period of
    /// whatever ends the process. Kubernetes gives 30 s, `docker stop` only 10.
    ///
    /// A handler that blocks its thread can be cancelled, but not dropped. Where one still blocks 7 s after the drain
    /// (the 2 s to its drop and 5 s more), the scheduler warns of it, renews its lease no longer and ends. It is not
    /// released: another instance runs it again when its lease is over, maybe beside the handler that still blocks, which the
    /// [fencing token](Context::fencing_token) is for.
    ///
    /// What remains is a thread of the caller's tokio runtime. A runtime that is dropped, as at the end of
    /// `#[tokio::main]`, waits for it without limit, so that the process does not end; `Runtime::shutdown_timeout` or
    /// `shutdown_background` in place of the drop do not wait, and neither does `std::process::exit`. On a
    /// current-thread runtime an `async` handler that blocks keeps whoever waits for the scheduler from going on as
    /// well.
    pub fn drain(mut self, drain: impl Into<Length>) -> Self {
        self.drain = drain.into();
        self
    }

    /// How long to try to reach the store at start: 30 s by default.
    ///
    /// A store that says nothing is asked anew after 10 s, after 20 s more, and so on, each time for twice as long.
    pub fn start_timeout(mut self, timeout: impl Into<Length>) -> Self {
        self.start_timeout = timeout.into();
        self
    }

    /// Opens the store, registers the jobs and begins to run them, on the tokio runtime of the caller.
    ///
    /// # Errors
    /// - [`ErrorKind::Configuration`]: one error that lists every wrong value; nothing was started.
    /// - [`ErrorKind::NoRuntime`]: not called within a tokio runtime.
    /// - [`ErrorKind::Unavailable`]: the store could not be reached within [`start_timeout`](Self::start_timeout).
    /// - [`ErrorKind::Store`]: the store has to be set up differently.
    /// - [`ErrorKind::Stopped`]: the tokio runtime was shut down meanwhile.
    pub async fn start(self) -> Result<Running> {
        self.launch(false).await
    }

    /// The same, and then waits for SIGINT or SIGTERM (ctrl-c elsewhere), drains and returns.
    ///
    /// A second signal ends the process at once, with code 130 or 143, unless it comes within 0.5 s: `timeout`,
    /// terminals and containers signal a process and its group, and mean one thing.
    ///
    /// Once `run` has returned, also with an error, a signal ends the process as it would have before: what a program does after
    /// `run` can be interrupted. Where the program itself listened to a signal, or ignored it, before its first `run`,
    /// the signal is then left to it (found out on Linux only); while `run` goes on it shuts down all the same. A program that begins to listen later uses
    /// [`start`](Self::start), which leaves signals alone.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn run(self) -> Result {
        match self.launch(true).await {
            Ok(running) => running.wait().await,
            // A signal came while it started, and was obeyed.
            Err(error) if error.kind() == ErrorKind::Stopped => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn launch(self, signals: bool) -> Result<Running> {
        let handlers = Handle::try_current().map_err(|_| {
            Error::new(ErrorKind::NoRuntime, "there is no tokio runtime here; start the scheduler within one")
        })?;
        for name in registration::handed_to_nobody(&self.types) {
            debug!("{name} has jobs but was not handed to the scheduler");
        }
        let plan = self.plan(handlers, signals)?;
        let over = over(&plan);
        let (remote, ready) = runtime::start(plan)?;
        // From here on a caller that stops waiting drops it, and so shuts the scheduler down.
        let running = Running { remote };
        if let Err(error) = ready.await.unwrap_or_else(|_gone| Err(Error::stopped())) {
            // Until its thread is gone a signal would be for the scheduler, and the store may still be open.
            running.remote.wait().await;
            return Err(error);
        }
        for (job, schedule) in over {
            warn!(%job, "nothing is planned any more: {schedule}; remove the job, or give it a later instant");
        }
        Ok(running)
    }

    /// Checks everything before anything starts.
    fn plan(self, handlers: Handle, signals: bool) -> Result<Plan> {
        let mut problems = Vec::new();
        let zones = Zones::system();
        let namespace = self.checked_namespace(&mut problems);
        if self.jobs.is_empty() {
            problems.push("there are no jobs; add some with jobs(…) or job(…)".to_owned());
        }
        // The defaults are checked by themselves, so that one wrong default is one problem and not one for each job.
        let before = problems.len();
        let _ = self.defaults.check(None, &mut problems);
        let defaults = if problems.len() == before { self.defaults.clone() } else { Options::default() };
        let jobs = check_jobs(&self.jobs, &defaults, &zones, &mut problems);
        // What is wrong is told and stops the start.
        let drain = policy::read("drain", Some(&self.drain), &mut problems).unwrap_or_default();
        let start_timeout =
            policy::read("start_timeout", Some(&self.start_timeout), &mut problems).unwrap_or_default();
        if self.concurrency == Some(0) {
            problems.push("concurrency 0 lets nothing run; set it to 1 or more, or leave it out".to_owned());
        }
        match namespace {
            Some(namespace) if problems.is_empty() => Ok(Plan {
                store: self.store,
                clock: Arc::new(SystemClock),
                namespace,
                settings: Settings {
                    instance: instance_id(),
                    nonce: 0,
                    seed: runtime::random(),
                    concurrency: self.concurrency,
                    drain,
                    zones: zones.version().to_owned(),
                },
                jobs,
                start_timeout,
                handlers,
                signals,
            }),
            _ => Err(Error::configuration(problems)),
        }
    }

    fn checked_namespace(&self, problems: &mut Vec<String>) -> Option<Namespace> {
        let (name, origin) = match (&self.namespace, std::env::var_os(NAMESPACE_VARIABLE), self.package) {
            (Some(name), _, _) => (name.clone(), String::new()),
            // What is no Unicode is no name either, and is told as such.
            (None, Some(name), _) => {
                (name.to_string_lossy().into_owned(), format!("environment variable {NAMESPACE_VARIABLE}: "))
            }
            (None, None, Some(package)) => (package.to_owned(), String::new()),
            (None, None, None) => {
                problems
                    .push(format!("no namespace is named; add namespace(\"…\") or set {NAMESPACE_VARIABLE}"));
                return None;
            }
        };
        Namespace::new(&name).map_err(|wrong| problems.push(format!("{origin}{wrong}"))).ok()
    }
}

/// The jobs that have no occurrence any more, each with its schedule in words.
fn over(plan: &Plan) -> Vec<(JobName, String)> {
    let now = chrono::DateTime::from_timestamp_micros(plan.clock.wall_micros()).unwrap_or_default();
    let jobs = plan.jobs.iter().map(|job| &job.engine);
    jobs.filter(|job| job.schedule.next_after(now).is_none())
        .map(|job| (job.name.clone(), job.schedule.to_string()))
        .collect()
}

/// The jobs as the engine wants them, sorted by name.
fn check_jobs(
    jobs: &[Job],
    defaults: &Options,
    zones: &Zones,
    problems: &mut Vec<String>,
) -> Vec<PlannedJob> {
    let mut planned = BTreeMap::new();
    let mut names = BTreeSet::new();
    // Those that mean the same are kept once, however many jobs have them.
    let mut schedules = HashMap::new();
    for job in jobs {
        if !names.insert(job.name()) {
            problems.push(format!("two jobs are named {:?}; give one another name", job.name()));
        }
        let mut wrong = Vec::new();
        let name = JobName::new(job.name()).map_err(|error| problems.push(error.to_string())).ok();
        let schedule = match job.spec.resolve(zones) {
            Ok((schedule, warnings)) => {
                for warning in warnings {
                    warn!(job = job.name(), "{warning}");
                }
                Some(schedule)
            }
            Err(errors) => {
                wrong.extend(errors.iter().map(ToString::to_string));
                None
            }
        };
        let interval = schedule.as_ref().and_then(anarchon_schedule::Schedule::shortest_interval);
        let own = job.options.check(interval, &mut wrong);
        let policy =
            if wrong.is_empty() { job.options.or(defaults).check(interval, &mut wrong) } else { own };
        problems.extend(wrong.into_iter().map(|problem| format!("job {:?}: {problem}", job.name())));
        let (Some(name), Some(schedule)) = (name, schedule) else { continue };
        let fingerprint = Fingerprint::of(&schedule.canonical());
        let schedule = schedules.entry(fingerprint).or_insert(schedule).clone();
        let engine = Arc::new(EngineJob { name: name.clone(), schedule, fingerprint, policy });
        planned.insert(name, PlannedJob { engine, handler: job.handler.clone() });
    }
    planned.into_values().collect()
}

/// Names this process for people and for the store: host, process id and a random part.
fn instance_id() -> InstanceId {
    let uname = rustix::system::uname();
    let host: String = uname
        .nodename()
        .to_string_lossy()
        .chars()
        .take(40)
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '-' })
        .collect();
    let id = format!("{host}-{}-{:08x}", std::process::id(), runtime::random() as u32);
    InstanceId::new(&id).expect("at most 40 + 21 characters, all allowed")
}

/// A scheduler that runs, and takes an operator's orders.
///
/// Dropping it begins a shutdown without waiting for it.
///
/// ```
/// # async fn example() -> anarchon::Result {
/// use anarchon::{ErrorKind, MemoryBackend, prelude::*};
///
/// let scheduler = Scheduler::new(MemoryBackend::new()).namespace("billing");
/// let running = scheduler.every("sync", "1h", |_: Context| async {}).start().await?;
///
/// running.pause("sync").await?;
/// running.trigger("sync").await?; // It runs all the same, once.
/// running.resume("sync").await?;
/// let error = running.pause("snyc").await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::NotFound);
///
/// running.shutdown().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "dropping it shuts the scheduler down"]
pub struct Running {
    remote: Remote,
}

impl Running {
    /// Stops claiming, lets runs finish up to the drain time, also one whose claim was on its way, then cancels and
    /// releases what is left.
    ///
    /// # Errors
    /// None at present.
    pub async fn shutdown(self) -> Result {
        self.remote.begin_shutdown();
        self.wait().await
    }

    /// Waits until the scheduler has shut down.
    ///
    /// # Errors
    /// None at present.
    pub async fn wait(&self) -> Result {
        self.remote.wait().await;
        Ok(())
    }

    /// Runs a job of the namespace once, now, on whichever instance wins it, also while it is paused. Several triggers
    /// while it is busy become one run.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a job that the store does not know; [`ErrorKind::Unknown`] when no reply came: the
    /// trigger may have been kept, and is not repeated; [`ErrorKind::Unavailable`] when the store could not be reached;
    /// [`ErrorKind::Stopped`] when the scheduler had ended before: it was not kept.
    pub async fn trigger(&self, job: &str) -> Result {
        self.order(job, Order::Control(ControlAction::Trigger)).await
    }

    /// Awards no planned occurrence of the job until it is resumed. A run in flight goes on, its retries too.
    ///
    /// # Errors
    /// As [`trigger`](Self::trigger); calling it again is safe.
    pub async fn pause(&self, job: &str) -> Result {
        self.order(job, Order::Control(ControlAction::Pause)).await
    }

    /// Ends the pause of a job. What fell due meanwhile is gone.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub async fn resume(&self, job: &str) -> Result {
        self.order(job, Order::Control(ControlAction::Resume)).await
    }

    /// Ends the run of a job, on whichever instance it is, and lets no attempt follow it. The holder learns of it at its
    /// next renewal, a third of the lease later at most.
    ///
    /// # Errors
    /// As [`pause`](Self::pause), and [`ErrorKind::NotFound`] when the job has no run.
    pub async fn cancel(&self, job: &str) -> Result {
        self.order(job, Order::CancelRun).await
    }

    /// Deletes what the store keeps of a job: its record, also one that cannot be read, and its history. Instances that have
    /// the job register it anew within seconds; it then begins as at its first start, and what was due before does not run.
    /// A run in flight loses its lease, and another one may begin beside it.
    ///
    /// For a damaged record, and for a job that no instance has any more.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub async fn forget(&self, job: &str) -> Result {
        self.order(job, Order::Control(ControlAction::Forget)).await
    }

    async fn order(&self, job: &str, order: Order) -> Result {
        let name = JobName::new(job).map_err(|wrong| Error::new(ErrorKind::NotFound, wrong.to_string()))?;
        self.remote.order(name, order).await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.remote.begin_shutdown();
    }
}
