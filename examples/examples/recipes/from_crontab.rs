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
use tokio::process::Command;

/// The jobs of a crontab. What is wrong in a schedule the scheduler says when it starts, of all lines together.
fn read(crontab: &str) -> Result<Vec<Job>, String> {
    let (mut jobs, mut tz, mut name) = (Vec::new(), "UTC".to_owned(), None);
    for line in crontab.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(given) = line.strip_prefix("# name:") {
            name = Some(given.trim().to_owned());
        } else if let Some(zone) = line.strip_prefix("CRON_TZ=") {
            zone.clone_into(&mut tz);
        } else if !line.starts_with('#') {
            let (when, command) = split(line).ok_or_else(|| format!("{line:?} has no command"))?;
            let name = name.take().unwrap_or_else(|| program(command));
            let command = command.to_owned();
            let cron = Cron::new(when).tz(tz.clone());
            jobs.push(Job::cron(name, cron, move |ctx| run(command.clone(), ctx)));
        }
    }
    Ok(jobs)
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
        .kill_on_drop(true)
        .spawn()?;
    tokio::select! {
        status = child.wait() => match status? {
            status if status.success() => Ok(()),
            status => Err(format!("{command:?} ended with {status}").into()),
        },
        // The lease is lost, or the drain is over: the shell goes with the run.
        () = ctx.cancelled() => {
            child.kill().await?;
            Ok(())
        }
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
