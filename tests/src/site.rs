//! Where one scenario plays: a private directory, a store, worker processes, and what they wrote.

use std::{
    any::Any,
    cell::{Cell, OnceCell, RefCell},
    fmt::{self, Write as _},
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
};

use anarchon::{
    protocol::{JobName, Namespace},
    store::{Guarantees, Snapshot, Store},
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    checker,
    deeds::{Deeds, What},
    history::{History, Run},
    process::{Orders, Surroundings, UnaskedExits, Worker},
    servers::store::backend,
    wait::{until, until_so},
};

/// The namespace of the workers of a site that has its store for itself.
///
/// # Panics
/// Never.
#[must_use]
pub fn namespace() -> Namespace {
    Namespace::new("faults").expect("a valid name")
}

/// A store that a test can take away.
pub trait TestStore: fmt::Debug {
    /// What workers connect to.
    fn url(&self) -> String;
    /// What keeps them apart from those of other sites.
    fn namespace(&self) -> Namespace {
        namespace()
    }
    /// Makes it unusable.
    fn stop(&mut self, how: Outage);
    /// Makes it usable again.
    fn resume(&mut self);
}

/// How a store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// Calls come to no end.
    Hangs,
    /// It is not there, and connections to it are gone when it comes back.
    Vanishes,
}

/// Where one scenario plays. All of it is gone when this is dropped, processes first.
#[derive(Debug)]
pub struct Site {
    program: PathBuf,
    store: RefCell<Box<dyn TestStore>>,
    backend: OnceCell<(Runtime, Arc<dyn Store>, Guarantees)>,
    history: RefCell<(u64, History)>,
    deeds: Arc<Deeds>,
    workers: Cell<usize>,
    unasked: UnaskedExits,
    until_started: RefCell<Option<Box<dyn Any>>>,
    directory: TempDir,
}

impl Site {
    /// A directory with a store in it.
    ///
    /// # Panics
    /// When there can be no directory.
    #[must_use]
    pub fn new(program: &Path, store: impl FnOnce(&Path) -> Box<dyn TestStore>) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        File::create(directory.path().join("history")).expect("a file in it");
        Self {
            program: program.to_owned(),
            store: RefCell::new(store(directory.path())),
            backend: OnceCell::new(),
            history: RefCell::default(),
            deeds: Arc::new(Deeds::new(&directory.path().join("deeds")).expect("a file in it")),
            workers: Cell::new(0),
            unasked: UnaskedExits::default(),
            until_started: RefCell::default(),
            directory,
        }
    }

    /// A directory with this store beside it.
    #[must_use]
    pub fn of(program: &str, store: impl TestStore + 'static) -> Self {
        Self::new(Path::new(program), |_| Box::new(store))
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Keeps something until the first processes have started.
    pub fn keep_until_started(&self, what: impl Any) {
        *self.until_started.borrow_mut() = Some(Box::new(what));
    }

    /// Starts a worker.
    ///
    /// # Panics
    /// When the process cannot be started.
    pub fn start(&self, orders: &Orders) -> Worker {
        let worker = self.begin(orders);
        self.until_started.take();
        worker
    }

    fn begin(&self, orders: &Orders) -> Worker {
        let number = self.workers.get() + 1;
        self.workers.set(number);
        let log = self.directory().join(format!("{number}.log"));
        let namespace = self.store.borrow().namespace();
        let at = Surroundings {
            worker: &self.program,
            directory: self.directory(),
            store: self.store.borrow().url(),
            namespace: namespace.as_str(),
            history: self.history_file(),
        };
        let (unasked, deeds) = (Arc::clone(&self.unasked), Arc::clone(&self.deeds));
        Worker::start(&at, orders, log, unasked, deeds).expect("the program can be started")
    }

    /// Starts several, and waits until all of them are there.
    ///
    /// # Panics
    /// When one ends instead, with its log.
    pub fn start_all(&self, processes: usize, orders: &Orders) -> Vec<Worker> {
        let mut workers: Vec<Worker> = (0..processes).map(|_| self.begin(orders)).collect();
        until_so("all have started", || {
            workers.iter_mut().all(|worker| {
                let ended = !worker.has_started() && worker.has_ended();
                assert!(!ended, "process {} ended before it had started:\n{}", worker.pid(), worker.log());
                worker.has_started()
            })
        });
        self.until_started.take();
        // Who has a clock of its own is not counted on.
        if orders.environment.is_empty() {
            workers.iter().for_each(|worker| self.deeds.note(What::Ready(worker.pid())));
        }
        workers
    }

    /// What the handlers wrote so far.
    ///
    /// # Panics
    /// For a line that no handler writes.
    pub fn history(&self) -> History {
        let (read, history) = &mut *self.history.borrow_mut();
        let mut file = File::open(self.history_file()).expect("the history is there");
        let mut text = String::new();
        file.seek(SeekFrom::Start(*read)).expect("a seekable file");
        file.read_to_string(&mut text).expect("a readable history");
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        *read += complete as u64;
        history.0.extend(History::parse(&text[..complete]).0);
        history.clone()
    }

    /// Waits for a run of a job that is as wanted.
    pub fn run(&self, job: &str, what: &str, wanted: impl Fn(&Run) -> bool) -> Run {
        until(&format!("{job} has a run that {what}"), || self.history().runs(job).into_iter().find(&wanted))
    }

    /// The record of a job, with its newest runs.
    ///
    /// # Panics
    /// When the store gives no answer.
    pub fn record(&self, job: &str) -> Snapshot {
        let (runtime, store, _) = self.backend();
        let job = JobName::new(job).expect("a valid name");
        until(&format!("the store tells of {job}"), || {
            runtime.block_on(store.inspect(std::slice::from_ref(&job), 20)).pop()?.ok()?.value
        })
    }

    /// Whether instances can announce themselves.
    ///
    /// # Panics
    /// When the store does not open.
    pub fn has_announcements(&self) -> bool {
        self.backend().2.beat
    }

    fn backend(&self) -> &(Runtime, Arc<dyn Store>, Guarantees) {
        self.backend.get_or_init(|| {
            // A thread of its own: a connection that is not attended to loses its heartbeat.
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("a runtime");
            let store = backend(&self.store.borrow().url());
            let namespace = self.store.borrow().namespace();
            let guarantees = runtime.block_on(store.open(&namespace)).expect("the store opens");
            (runtime, store, guarantees)
        })
    }

    /// Takes the store away.
    pub fn stop_store(&self, how: Outage) {
        self.deeds.note(What::StoreGone);
        self.store.borrow_mut().stop(how);
    }

    /// Gives it back.
    pub fn resume_store(&self) {
        self.store.borrow_mut().resume();
        self.deeds.note(What::StoreBack);
    }

    /// What is done to processes and to the store, to be added to.
    #[must_use]
    pub fn deeds(&self) -> &Deeds {
        &self.deeds
    }

    /// What all workers logged, those that ended too.
    #[must_use]
    pub fn logs(&self) -> String {
        (1..=self.workers.get()).map(|n| self.log(n)).collect()
    }

    fn log(&self, number: usize) -> String {
        fs::read_to_string(self.directory().join(format!("{number}.log"))).unwrap_or_default()
    }

    fn history_file(&self) -> PathBuf {
        self.directory().join("history")
    }

    /// Copies the history and the deeds, for the program `check_history`, and the logs, for whoever looks for a cause.
    ///
    /// # Errors
    /// When they cannot be written there.
    pub fn keep(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        let logs = (1..=self.workers.get()).map(|number| format!("{number}.log"));
        ["history".to_owned(), "deeds".to_owned()]
            .into_iter()
            .chain(logs)
            .try_for_each(|file| fs::copy(self.directory().join(&file), folder.join(&file)).map(drop))
    }

    /// Checks what holds for every scenario, after its processes are gone.
    ///
    /// # Panics
    /// When it does not.
    pub fn verify(&self) {
        self.verify_history(&self.history());
    }

    /// The same for a history that a scenario has taken something out of.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn verify_history(&self, history: &History) {
        let mut problems = checker::problems(history, &self.deeds.all());
        problems.extend(self.unasked.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    /// What to look at when a scenario failed.
    #[must_use]
    pub fn report(&self) -> String {
        let mut report = String::new();
        let _ = writeln!(report, "--- the newest of the history");
        let written = fs::read_to_string(self.history_file()).unwrap_or_default();
        report.push_str(newest(&written, 120));
        for number in 1..=self.workers.get() {
            let _ = writeln!(report, "--- the newest of log {number}");
            report.push_str(newest(&self.log(number), 60));
        }
        report
    }
}

/// Shows what the processes did when a test fails.
impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.report());
        }
    }
}

/// The last lines of a text.
fn newest(text: &str, lines: usize) -> &str {
    let start = text.trim_end().rmatch_indices('\n').nth(lines - 1).map_or(0, |(at, _)| at + 1);
    &text[start..]
}
