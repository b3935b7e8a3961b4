//! Three processes, one SQLite file: who won which occurrence, and what becomes of a run whose process is killed.
//!
//! ```text
//! cargo run --example three_instances
//! ```
//!
//! The program starts itself three times, as instances A, B and C. `sync` is due every two seconds and runs on whichever
//! of them is first. `report` is due once and takes a while; its process gets a `kill -9` in the middle of it. Once the
//! lease of the dead one is over, another instance runs the same occurrence again, as attempt 2 with a higher fencing
//! token. It ends by itself within 40 s and leaves nothing behind.

use std::{
    collections::BTreeMap,
    error::Error,
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::{Duration, SystemTime},
};

use anarchon::prelude::*;
use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{sleep, timeout},
};
use tracing_subscriber::filter::LevelFilter;

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const NAMES: [&str; 3] = ["A", "B", "C"];
const SYNC_TAKES: Duration = Duration::from_millis(200);
const REPORT_TAKES: Duration = Duration::from_secs(3);
/// Usually all is over after 20 s.
const LIMIT: Duration = Duration::from_secs(35);

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => parent().await,
        [store, report_at] => child(store, report_at.parse()?).await.map(|()| ExitCode::SUCCESS),
        _ => Err("start it without arguments".into()),
    }
}

/// One instance. It ends when its standard input does, and so also when the parent dies.
async fn child(store: &str, report_at: DateTime<Utc>) -> Result {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(LevelFilter::WARN).init();
    let running = Scheduler::connect(store)?
        .namespace("three-instances")
        .lease("5s")
        .every("sync", "2s", |ctx| work(ctx, SYNC_TAKES))
        .at("report", report_at, |ctx| work(ctx, REPORT_TAKES))
        .start()
        .await?;
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(running.shutdown().await?)
}

/// The handler: tells the parent how far it is.
async fn work(ctx: Context, takes: Duration) {
    let run =
        format!("{} {} {} {}", ctx.job(), ctx.scheduled_at().timestamp(), ctx.attempt(), ctx.fencing_token());
    println!("start {run}");
    sleep(takes / 2).await;
    println!("half {run}");
    sleep(takes / 2).await;
    println!("end {run}");
}

async fn parent() -> Result<ExitCode> {
    // On the clock of `sync`, and late enough for three processes to start.
    let now = DateTime::<Utc>::from(SystemTime::now());
    let report_at = now.duration_trunc(TimeDelta::seconds(2))? + TimeDelta::seconds(8);
    let mut fleet = Fleet::start(report_at)?;
    let code = tokio::select! {
        shown = timeout(LIMIT, show(&mut fleet)) => shown.unwrap_or_else(|_| Err("no takeover in time".into())),
        () = interrupted() => Ok(ExitCode::from(130)),
    };
    fleet.stop().await;
    code
}

/// Shows who runs what, kills the first instance that is half through `report`, and waits for the second to finish it.
async fn show(fleet: &mut Fleet) -> Result<ExitCode> {
    println!("{:<9} {:<7} {:<8} {:<9} {:<9} {:<9} token", "planned", "job", "attempt", "A", "B", "C");
    let mut synced = BTreeMap::<i64, u32>::new();
    let mut killed: Option<(usize, Run)> = None;
    while let Some((instance, said)) = fleet.events.recv().await {
        match (said, &killed) {
            (Said::Start(run), _) if run.job == "report" => run.print(instance, "started"),
            (Said::Half(run), None) if run.job == "report" => {
                run.print(instance, "kill -9");
                fleet.children[instance].start_kill()?;
                killed = Some((instance, run));
            }
            (Said::Start(_) | Said::Half(_), _) => {}
            (Said::End(run), _) if run.job == "sync" => {
                run.print(instance, "ran");
                *synced.entry(run.planned).or_default() += 1;
            }
            (Said::End(run), killed) => {
                run.print(instance, "done");
                return conclude(killed.as_ref(), instance, &run, &synced);
            }
            (Said::Gone, Some((holder, _))) if *holder == instance => {}
            (Said::Gone, _) => return Err(format!("instance {} ended unasked", NAMES[instance]).into()),
        }
    }
    Err("all instances are gone".into())
}

fn conclude(
    killed: Option<&(usize, Run)>,
    instance: usize,
    run: &Run,
    synced: &BTreeMap<i64, u32>,
) -> Result<ExitCode> {
    let taken_over = killed.is_some_and(|(holder, first)| {
        instance != *holder
            && run.planned == first.planned
            && run.attempt == first.attempt + 1
            && run.token > first.token
    });
    if !taken_over {
        return Err("report was not taken over as it should be".into());
    }
    if let Some((planned, times)) = synced.iter().find(|(_, times)| **times > 1) {
        return Err(format!("sync of {} ran {times} times", clock(*planned)).into());
    }
    println!();
    println!("report: taken over: another instance, the same planned time, attempt 2, a higher token");
    println!("sync: {} planned times, none ran twice", synced.len());
    Ok(ExitCode::SUCCESS)
}

/// One attempt, as its handler tells of it.
#[derive(Debug)]
struct Run {
    job: String,
    planned: i64,
    attempt: u32,
    token: u64,
}

impl Run {
    /// A row of the table, with one word in the column of the instance.
    fn print(&self, instance: usize, word: &str) {
        let mut cells = [""; NAMES.len()];
        cells[instance] = word;
        let [a, b, c] = cells;
        let Self { job, attempt, token, planned } = self;
        println!("{:<9} {job:<7} {attempt:<8} {a:<9} {b:<9} {c:<9} {token}", clock(*planned));
    }
}

fn clock(seconds: i64) -> String {
    DateTime::from_timestamp(seconds, 0).unwrap_or_default().format("%H:%M:%S").to_string()
}

#[derive(Debug)]
enum Said {
    Start(Run),
    Half(Run),
    End(Run),
    Gone,
}

impl Said {
    fn read(line: &str) -> Option<Self> {
        let [what, job, planned, attempt, token] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let run = Run {
            job: job.to_owned(),
            planned: planned.parse().ok()?,
            attempt: attempt.parse().ok()?,
            token: token.parse().ok()?,
        };
        match what {
            "start" => Some(Self::Start(run)),
            "half" => Some(Self::Half(run)),
            "end" => Some(Self::End(run)),
            _ => None,
        }
    }
}

/// The processes, what they say, and the folder of their store.
struct Fleet {
    children: Vec<Child>,
    events: UnboundedReceiver<(usize, Said)>,
    folder: PathBuf,
}

impl Fleet {
    fn start(report_at: DateTime<Utc>) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("anarchon-three-instances-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let (sender, events) = unbounded_channel();
        let mut fleet = Self { children: Vec::new(), events, folder };
        for instance in 0..NAMES.len() {
            fleet.children.push(start_child(instance, &fleet.folder, report_at, sender.clone())?);
        }
        Ok(fleet)
    }

    /// Lets the instances end by themselves, and the slow ones not.
    async fn stop(mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
        for child in &mut self.children {
            if timeout(Duration::from_secs(3), child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.start_kill();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn start_child(
    instance: usize,
    folder: &Path,
    report_at: DateTime<Utc>,
    events: UnboundedSender<(usize, Said)>,
) -> Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(format!("sqlite:{}", folder.join("anarchon.db").display()))
        .arg(report_at.to_rfc3339())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let said = child.stdout.take().ok_or("no pipe from the child")?;
    tokio::spawn(async move {
        let mut lines = BufReader::new(said).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(said) = Said::read(&line) {
                let _ = events.send((instance, said));
            }
        }
        let _ = events.send((instance, Said::Gone));
    });
    Ok(child)
}

/// Ctrl-c, or a polite kill.
async fn interrupted() {
    #[cfg(unix)]
    if let Ok(mut term) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = term.recv() => {}
        }
        return;
    }
    let _ = tokio::signal::ctrl_c().await;
}
