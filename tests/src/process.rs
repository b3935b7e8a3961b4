//! A worker process: started, frozen, ended, and never left behind.

use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    deeds::{Deeds, What},
    examples::example,
    freeze::{Freeze, freeze},
    job_line::JobLine,
    wait::{until, until_so},
};

/// What a worker is told.
#[derive(Debug, Clone)]
pub struct Orders {
    pub(crate) jobs: Vec<JobLine>,
    example: Option<&'static str>,
    arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

impl Orders {
    /// To have these jobs.
    ///
    /// # Panics
    /// For a line that is none.
    #[must_use]
    pub fn new<S: AsRef<str>>(jobs: impl IntoIterator<Item = S>) -> Self {
        let read = |line: S| line.as_ref().parse().unwrap_or_else(|error: String| panic!("{error}"));
        Self {
            jobs: jobs.into_iter().map(read).collect(),
            example: None,
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// To be this example instead of the worker, which has these jobs by itself and tells of its runs on its output.
    ///
    /// # Panics
    /// For a line that is none.
    #[must_use]
    pub fn example<S: AsRef<str>>(name: &'static str, jobs: impl IntoIterator<Item = S>) -> Self {
        Self { example: Some(name), ..Self::new(jobs) }
    }

    /// An option of the worker, such as `--drain`.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.arguments.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Environment variables.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(variables);
        self
    }
}

/// What all processes of a site share.
#[derive(Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) worker: &'a Path,
    pub(crate) directory: &'a Path,
    pub(crate) store: String,
    pub(crate) namespace: &'a str,
    pub(crate) history: PathBuf,
}

impl Orders {
    fn command(&self, at: &Surroundings, log: &File) -> std::io::Result<Command> {
        match self.example {
            None => {
                let mut command = Command::new(at.worker);
                command.args(["--store", &at.store, "--namespace", at.namespace, "--history"]);
                command.arg(&at.history).args(&self.arguments);
                for job in &self.jobs {
                    command.arg("--job").arg(job.to_string());
                }
                command.stdout(log.try_clone()?);
                Ok(command)
            }
            Some(name) => {
                // A program of a user does not watch its input: it has to go with us in another way.
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL", "--"]).arg(example(name)).args(&self.arguments);
                command.env("ANARCHON_STORE", &at.store).env("ANARCHON_NAMESPACE", at.namespace);
                command.env("NO_COLOR", "1");
                command.stdout(OpenOptions::new().append(true).open(&at.history)?);
                Ok(command)
            }
        }
    }
}

/// Processes that ended although nobody had ended them.
pub(crate) type UnaskedExits = Arc<Mutex<Vec<String>>>;

/// A running worker. Dropping it kills it.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    log: PathBuf,
    status: Option<ExitStatus>,
    may_end: bool,
    unasked: UnaskedExits,
    deeds: Arc<Deeds>,
}

impl Worker {
    pub(crate) fn start(
        at: &Surroundings,
        orders: &Orders,
        log: PathBuf,
        unasked: UnaskedExits,
        deeds: Arc<Deeds>,
    ) -> std::io::Result<Self> {
        let output = File::options().create(true).append(true).open(&log)?;
        let mut command = orders.command(at, &output)?;
        command.env_remove("RUST_LOG").envs(orders.environment.iter().cloned());
        // Some panic as they are told to. To find the lines of a debug build takes a second of a core, in each process anew.
        command.env("RUST_BACKTRACE", "0");
        // It watches its standard input, which ends with us.
        command.current_dir(at.directory).stdin(Stdio::piped()).stderr(output);
        let child = command.spawn()?;
        deeds.note(What::Start(child.id(), orders.jobs.iter().map(ToString::to_string).collect()));
        Ok(Self { child, log, status: None, may_end: false, unasked, deeds })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Lets it end by itself: its job is to abort.
    pub fn may_end(&mut self) {
        self.may_end = true;
        self.deeds.note(What::End(self.pid()));
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.may_end();
        self.signal(Signal::KILL);
    }

    /// Asks it to end, once: a second signal would end it at once, and so would one before it listens.
    pub fn terminate(&mut self) {
        if !self.may_end {
            let what =
                format!("process {}, whose log is {}, listens to signals", self.pid(), self.log.display());
            until_so(&what, || self.is_starting() || self.has_ended());
            self.may_end();
            self.signal(Signal::TERM);
        }
    }

    /// Whether it has opened the store, or tries to.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.has_started() || self.log().contains("cannot be opened yet")
    }

    /// Whether it has opened the store.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.log().contains("scheduler started")
    }

    /// Freezes it: nothing that it does is later than the return.
    ///
    /// # Panics
    /// When it has ended.
    pub fn freeze(&self) {
        self.deeds.note(What::Freeze(self.pid()));
        let frozen = self.status.is_none().then(|| freeze(Pid::from_child(&self.child)));
        let ended = frozen != Some(Freeze::Stopped);
        assert!(!ended, "process {} ended before it could be frozen:\n{}", self.pid(), self.log());
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
        self.deeds.note(What::Thaw(self.pid()));
    }

    /// Whether it has ended.
    ///
    /// # Panics
    /// When the system does not say.
    pub fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("it is our child");
        }
        self.status.is_some()
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        until(&format!("process {} ends", self.pid()), || {
            self.has_ended();
            self.status
        })
    }

    /// A process with faked time that was killed leaves these behind, and they would confuse the next of its id.
    fn tidy_after_faketime(&self) {
        for name in ["faketime_shm", "sem.faketime_sem"] {
            let _ = fs::remove_file(format!("/dev/shm/{name}_{}", self.pid()));
        }
    }

    fn signal(&self, signal: Signal) {
        // Once it was waited for, its id may belong to somebody else.
        if self.status.is_none() {
            // Not there: it has ended by itself, which is found out later.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.has_ended() {
            if !self.may_end {
                let what = format!("process {} ended unasked: {:?}", self.pid(), self.status);
                self.unasked.lock().unwrap_or_else(PoisonError::into_inner).push(what);
            }
            return;
        }
        self.deeds.note(What::End(self.pid()));
        // Works on a frozen one too.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.tidy_after_faketime();
    }
}
