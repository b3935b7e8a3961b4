//! What every instance does around its scheduler: it says when it is up, is told what to count, and writes that down.

use std::{
    fs::{self, File},
    io::{BufRead as _, Write as _},
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use crate::{board::Board, micros};

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Jobs that are due each second: how often each of them ran, and how late.
    Busy,
    /// Jobs that are not due, to see what it costs to wait.
    Idle,
    /// Jobs that are due each second, with a short lease: each run is written down as it ends, as the process may be killed.
    Watched,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Busy, Self::Idle, Self::Watched];

    /// What to call it in arguments.
    pub fn word(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Idle => "idle",
            Self::Watched => "watched",
        }
    }

    /// The schedule in the words of cron, seconds first.
    pub fn cron(self) -> &'static str {
        match self {
            Self::Busy | Self::Watched => "* * * * * *",
            Self::Idle => "0 0 0 1 1 *",
        }
    }
}

/// The arguments of an instance: URL of the store, how many jobs, for how many seconds, whether with the default jitter, what is
/// looked at, and the file for what it saw.
pub struct Orders {
    pub store: String,
    pub jobs: usize,
    pub seconds: usize,
    pub jitter: bool,
    pub kind: Kind,
    out: PathBuf,
    board: OnceLock<Board>,
    /// Where runs are written down as they end.
    runs: Option<File>,
}

impl Orders {
    /// Reads the arguments of this process. Handlers share them, so that these do not hide what a job takes.
    pub fn read() -> Arc<Self> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let [store, jobs, seconds, jitter, kind, out] = &words[..] else {
            panic!("STORE JOBS SECONDS on|off busy|idle|watched FILE, and not {words:?}")
        };
        let kind = Kind::ALL.into_iter().find(|known| known.word() == kind).expect("a kind");
        let runs = || File::options().create(true).append(true).open(out).expect("a file for runs");
        Arc::new(Self {
            store: store.clone(),
            jobs: jobs.parse().expect("a number of jobs"),
            seconds: seconds.parse().expect("a number of seconds"),
            jitter: jitter == "on",
            kind,
            out: out.into(),
            board: OnceLock::new(),
            runs: (kind == Kind::Watched).then(runs),
        })
    }

    /// For a handler: counts a run of this job, planned for this time in ms since the epoch, once there is something to count.
    pub fn mark(&self, job: usize, planned: i64) {
        if let Some(board) = self.board.get() {
            board.mark(job, planned);
        }
    }

    /// For a handler at its end: writes down this attempt, where runs are.
    pub fn write_down(&self, job: usize, planned: i64, attempt: u32) {
        if let Some(mut runs) = self.runs.as_ref() {
            // One write, so that it is there or not.
            let line = format!("{job} {planned} {attempt} {}\n", micros());
            runs.write_all(line.as_bytes()).expect("the file can be written");
        }
    }

    /// The same as [`mark`](Self::mark) for a scheduler that does not tell a handler what it was planned for: it is taken to run within its second.
    pub fn mark_now(&self, job: usize) {
        self.mark(job, micros().div_euclid(1_000_000) * 1000);
    }

    /// Says that the instance is up, waits until all that is to be counted is over, and writes it down. `count` is called as the time
    /// that counts begins and as it ends; what it tells of both is written down as well.
    pub async fn watch<T: std::fmt::Display>(&self, count: impl Fn() -> T) {
        println!("up");
        std::io::stdout().flush().expect("somebody listens");
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map(|_| line)
        });
        let first: i64 = line.await.expect("no panic").expect("orders").trim().parse().expect("a time in ms");
        if self.kind == Kind::Busy {
            let _ = self.board.set(Board::new(self.jobs, first, self.seconds));
        }
        let end = first + self.seconds as i64 * 1000;
        sleep_until(first - 500).await;
        let before = count();
        sleep_until(end - 500).await;
        let after = count();
        // What comes later than this counts as missed.
        sleep_until(end + 1500).await;
        if let Some(board) = self.board.get() {
            board.write(&self.out).expect("the file can be written");
        }
        fs::write(self.out.with_extension("calls"), format!("{before}\n{after}\n"))
            .expect("the file can be written");
    }
}

async fn sleep_until(at: i64) {
    let left = u64::try_from(at * 1000 - micros()).unwrap_or(0);
    tokio::time::sleep(Duration::from_micros(left)).await;
}
