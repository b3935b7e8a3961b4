//! A crontab that several hosts share: each line runs once, on one of them.
//!
//! ```text
//! cargo run --example from_crontab
//! cargo run --example from_crontab -- my-crontab
//! ```
//!
//! Without a file it takes `crontab` beside this program. Schedules mean what they mean to Debian's cron. A job takes its name from a line
//! `# name: NAME` above, else from its command. Other than for cron, `%` is an ordinary character, there is no mail, and a line whose
//! command still runs is skipped. Records are in `./anarchon.db`, or where `ANARCHON_STORE` says. SIGTERM or ctrl-c ends it.

use anarchon::prelude::*;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

/// The jobs of a crontab, or what is wrong in all of its lines. What is wrong in a schedule the scheduler says when it starts.
fn read(crontab: &str) -> Result<Vec<Job>, String> {
    let (mut jobs, mut tz, mut name) = (Vec::new(), "UTC".to_owned(), None);
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(crontab.lines().map(str::trim)) {
        if let Some(given) = line.strip_prefix("# name:") {
            name = Some(given.trim().to_owned());
        } else if let Some(zone) = line.strip_prefix("CRON_TZ=") {
            zone.clone_into(&mut tz);
        } else if line.is_empty() || line.starts_with('#') {
            // A name is for the next line alone: not for another job where its own was taken out.
            name = None;
        } else if sets_variable(line) {
            wrong.push(format!("line {number}: {line:?} sets a variable; set it for this program"));
        } else {
            let Some((when, command)) = split(line) else {
                wrong.push(format!(
                    "line {number}: {line:?} has no command; write the schedule and what to run"
                ));
                continue;
            };
            let name = name.take().unwrap_or_else(|| program(command));
            let command = command.to_owned();
            let cron = Cron::new(when).tz(tz.clone());
            jobs.push(Job::cron(name, cron, move |ctx| run(command.clone(), ctx)));
        }
    }
    if wrong.is_empty() { Ok(jobs) } else { Err(wrong.join("\n")) }
}

/// `SHELL=/bin/bash`, and no schedule.
fn sets_variable(line: &str) -> bool {
    let name = line.split_once('=').map_or("", |(name, _)| name.trim_end());
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The schedule, of five fields or a word such as `@daily`, and the command behind it.
fn split(line: &str) -> Option<(&str, &str)> {
    let fields = if line.starts_with('@') { 1 } else { 5 };
    let command = (0..fields)
        .try_fold(line, |rest, _| rest.split_once(char::is_whitespace).map(|(_, rest)| rest.trim_start()))?;
    Some((line[..line.len() - command.len()].trim_end(), command))
}

/// `backup` for `/usr/local/bin/backup --all`.
fn program(command: &str) -> String {
    let program = command.split_whitespace().next().unwrap_or(command);
    program.rsplit('/').next().unwrap_or(program).to_owned()
}

async fn run(command: String, ctx: Context) -> JobResult {
    let mut child = Command::new("sh")
        .args(["-c", &command])
        .env("OCCURRENCE_ID", ctx.occurrence_id().to_string())
        .env("FENCING_TOKEN", ctx.fencing_token().to_string())
        .process_group(0)
        .spawn()?;
    let mut group = Group(child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)));
    tokio::select! {
        status = child.wait() => {
            // It ended by itself; what it left in the background may go on.
            group.0 = None;
            match status? {
                status if status.success() => Ok(()),
                // Without the command, which may have a password in it.
                status => Err(format!("the command ended with {status}").into()),
            }
        }
        // The lease is lost, or the drain is over. What does not end now is killed when the run is dropped.
        () = ctx.cancelled() => {
            group.signal(Signal::TERM);
            child.wait().await?;
            Ok(())
        }
    }
}

/// The shell and what it has started: they end with the run, since another instance may start the line again.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

#[tokio::main]
async fn main() -> JobResult {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let crontab = match std::env::args().nth(1) {
        Some(path) => std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?,
        None => include_str!("crontab").to_owned(),
    };
    let scheduler = Scheduler::from_env()?.namespace("recipe-crontab");
    read(&crontab)?.into_iter().fold(scheduler, Scheduler::job).run().await?;
    println!("ended in order");
    Ok(())
}
