//! One instance for the tests with real processes: its jobs come from its arguments, its handlers write down what they do.
//!
//! `worker --store URL --namespace NAME --history FILE [--runtime current-thread|multi-thread] [--drain 25s] [--start-timeout 30s]
//! [--lease 30s] [--catch-up 5m] --job LINE…`; for the lines see `job_line.rs`, for what is written `history.rs`.

use std::{
    collections::VecDeque,
    error::Error,
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use anarchon::{
    CancelReason,
    clock::{Clock as _, SystemClock},
    prelude::*,
};
use anarchon_tests::{
    history::{Entry, Fact},
    job_line::{JobLine, Mode},
};
use rustix::process::{Resource, Rlimit, setrlimit};
use tracing_subscriber::EnvFilter;

fn main() -> Result<(), Box<dyn Error>> {
    die_with_the_test();
    // An abort is a test here, not something to be looked into.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "info,anarchon=debug".to_owned());
    let filter = EnvFilter::new(filter);
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).init();

    let orders = Orders::read(std::env::args().skip(1).collect())?;
    let mut runtime = match orders.current_thread {
        true => tokio::runtime::Builder::new_current_thread(),
        false => tokio::runtime::Builder::new_multi_thread(),
    };
    runtime.worker_threads(2).enable_all().build()?.block_on(orders.run())?;
    Ok(())
}

/// The test holds the other end of our standard input; when it is gone, however it went, so are we.
fn die_with_the_test() {
    std::thread::spawn(|| {
        let mut nothing = [0];
        while std::io::stdin().read(&mut nothing).is_ok_and(|read| read > 0) {}
        std::process::exit(99);
    });
}

struct Orders {
    scheduler: Scheduler,
    history: String,
    jobs: Vec<JobLine>,
    current_thread: bool,
}

impl Orders {
    fn read(arguments: Vec<String>) -> Result<Self, Box<dyn Error>> {
        let mut arguments = VecDeque::from(arguments);
        let mut next = |what: &str| arguments.pop_front().ok_or_else(|| format!("{what} is missing"));
        if next("--store")? != "--store" {
            return Err("--store comes first".into());
        }
        let mut scheduler = Scheduler::connect(&next("the URL")?)?;
        let (mut history, mut jobs, mut current_thread) = (None, Vec::new(), false);
        while let Ok(option) = next("an option") {
            let value = next(&option)?;
            match option.as_str() {
                "--namespace" => scheduler = scheduler.namespace(value),
                "--history" => history = Some(value),
                "--runtime" => current_thread = value == "current-thread",
                "--drain" => scheduler = scheduler.drain(value),
                "--start-timeout" => scheduler = scheduler.start_timeout(value),
                "--lease" => scheduler = scheduler.lease(value),
                "--catch-up" => scheduler = scheduler.catch_up(value),
                "--job" => jobs.push(value.parse()?),
                _ => return Err(format!("unknown option {option}").into()),
            }
        }
        Ok(Self { scheduler, history: history.ok_or("--history is missing")?, jobs, current_thread })
    }

    async fn run(self) -> Result<(), Box<dyn Error>> {
        let file = Arc::new(OpenOptions::new().create(true).append(true).open(self.history)?);
        let mut scheduler = self.scheduler;
        for line in self.jobs {
            scheduler = scheduler.job(job(line, &file)?);
        }
        tracing::trace!(?scheduler, "it is set up");
        Ok(scheduler.run().await?)
    }
}

fn job(line: JobLine, file: &Arc<File>) -> Result<Job, Box<dyn Error>> {
    let (options, name, spec) = (line.options.clone(), line.name.clone(), line.spec.clone());
    let (line, file) = (Arc::new(line), Arc::clone(file));
    let handler = move |ctx: Context| handle(ctx, Arc::clone(&line), Arc::clone(&file));
    let mut job = match spec {
        anarchon_schedule::Spec::Every(every) => Job::every(name, every, handler),
        anarchon_schedule::Spec::Cron(cron) => Job::cron(name, cron, handler),
        other => return Err(format!("no such schedule here: {other:?}").into()),
    };
    for (option, value) in options {
        job = match option.as_str() {
            "lease" => job.lease(value),
            "jitter" => job.jitter(value),
            "catch_up" => job.catch_up(value),
            "timeout" => job.timeout(value),
            "max_attempts" => job.max_attempts(value.parse()?),
            "retries" => job.retries(value.parse()?),
            "backoff" => job.backoff(value),
            _ => return Err(format!("a job has no option {option}").into()),
        };
    }
    Ok(job)
}

async fn handle(ctx: Context, line: Arc<JobLine>, file: Arc<File>) -> JobResult {
    let mut run = Written::start(ctx.clone(), file);
    tracing::info!("the handler speaks");
    let mode = if ctx.attempt() <= line.fails { line.mode } else { Mode::Ok };
    match mode {
        Mode::Block => std::thread::sleep(line.run),
        Mode::Polite => {
            tokio::select! {
                biased;
                () = ctx.cancelled() => {
                    run.end(Fact::Cancelled(reason(&ctx)));
                    return Ok(());
                }
                () = run.work(line.run, line.step) => {}
            }
        }
        Mode::Hang => run.work(Duration::MAX, line.step.max(Duration::from_millis(100))).await,
        Mode::Ok | Mode::Err | Mode::Panic | Mode::Abort => run.work(line.run, line.step).await,
    }
    match mode {
        Mode::Err => {
            run.end(Fact::Failing);
            Err(format!("{} erred as it was told", line.name).into())
        }
        Mode::Panic => {
            run.end(Fact::Failing);
            panic!("{} panicked as it was told", line.name)
        }
        Mode::Abort => {
            run.end(Fact::Failing);
            std::process::abort()
        }
        Mode::Ok | Mode::Polite | Mode::Block | Mode::Hang => {
            run.end(Fact::Done);
            Ok(())
        }
    }
}

fn reason(ctx: &Context) -> String {
    match ctx.cancel_reason() {
        Some(CancelReason::LeaseLost) => "lease-lost",
        Some(CancelReason::Timeout) => "timeout",
        Some(CancelReason::Shutdown) => "shutdown",
        Some(CancelReason::Operator) => "operator",
        Some(_) | None => "unknown",
    }
    .to_owned()
}

/// A run that writes down what it does.
struct Written {
    ctx: Context,
    file: Arc<File>,
    ended: bool,
}

impl Written {
    fn start(ctx: Context, file: Arc<File>) -> Self {
        let run = Self { ctx, file, ended: false };
        run.write(Fact::Start);
        run
    }

    /// Sleeps step by step, and writes a line after each await.
    async fn work(&self, all: Duration, step: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < all {
            tokio::time::sleep(step.min(all - begin.elapsed())).await;
            self.write(Fact::Step);
        }
    }

    fn end(&mut self, fact: Fact) {
        self.ended = true;
        self.write(fact);
    }

    /// One write to a file that is open for appending: lines of several processes never mix.
    fn write(&self, fact: Fact) {
        let ctx = &self.ctx;
        let entry = Entry {
            mono: SystemClock.mono(),
            wall: SystemClock.wall_micros(),
            pid: std::process::id(),
            instance: ctx.instance().to_string(),
            job: ctx.job().to_owned(),
            nominal: ctx.scheduled_at().timestamp_millis(),
            attempt: ctx.attempt(),
            token: ctx.fencing_token(),
            catch_up: ctx.is_catch_up(),
            fact,
        };
        let line = format!("{entry}\n");
        match (&*self.file).write(line.as_bytes()) {
            Ok(written) if written == line.len() => {}
            result => panic!("the history was not written: {result:?}"),
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // A panic has said so already.
        if !self.ended && !std::thread::panicking() {
            self.write(Fact::Dropped);
        }
    }
}
