//! What every instance does around its scheduler: it says when it is up, is told what to count, and writes that down.

use std::{
    fs,
    io::{BufRead as _, Write as _},
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use crate::{board::Board, micros};

/// The arguments of an instance: URL of the store, how many jobs, for how many seconds, whether with the default jitter, and the file
/// for what it saw.
#[derive(Clone)]
pub struct Orders {
    pub store: String,
    pub jobs: usize,
    pub seconds: usize,
    pub jitter: bool,
    /// Whether the jobs are due once an hour, to see what it costs to wait.
    pub idle: bool,
    out: PathBuf,
    board: Arc<OnceLock<Board>>,
}

impl Orders {
    /// Reads the arguments of this process.
    pub fn read() -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let [store, jobs, seconds, jitter, due, out] = &words[..] else {
            panic!("STORE JOBS SECONDS on|off busy|idle FILE, and not {words:?}")
        };
        Self {
            store: store.clone(),
            jobs: jobs.parse().expect("a number of jobs"),
            seconds: seconds.parse().expect("a number of seconds"),
            jitter: jitter == "on",
            idle: due == "idle",
            out: out.into(),
            board: Arc::default(),
        }
    }

    /// For a handler: counts a run of this job, planned for this time in ms since the epoch, once there is something to count.
    pub fn mark(&self, job: usize, planned: i64) {
        if let Some(board) = self.board.get() {
            board.mark(job, planned);
        }
    }

    /// The same for a scheduler that does not tell a handler what it was planned for: it is taken to run within its second.
    pub fn mark_now(&self, job: usize) {
        self.mark(job, micros().div_euclid(1_000_000) * 1000);
    }

    /// Says that the instance is up, waits until all that is to be counted is over, and writes it down. `count` is called as the time
    /// that counts begins and as it ends; what it tells of both is written down as well.
    pub async fn watch<T: std::fmt::Display>(self, count: impl Fn() -> T) {
        println!("up");
        std::io::stdout().flush().expect("somebody listens");
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map(|_| line)
        });
        let first: i64 = line.await.expect("no panic").expect("orders").trim().parse().expect("a time in ms");
        let _ = self.board.set(Board::new(self.jobs, first, self.seconds));
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
