//! Handlers that err, panic or never end.

use anarchon::protocol::{RunOutcome, Status};

use super::{SLACK, assert_complete, begin_of, lateness, secs, soon};
use crate::{
    history::{Fact, Run},
    process::Orders,
    site::Site,
    wait::until_so,
};

pub(super) fn erring_panicking_and_endless_handlers_harm_no_healthy_job_and_are_recorded(
    site: &Site,
    processes: usize,
) {
    let jobs = [
        "healthy,every=2s",
        "errs,every=1s,mode=err",
        "panics,every=1s,mode=panic",
        "hangs,every=1s,mode=hang",
    ];
    let workers = site.start_all(processes, &Orders::new(jobs).option("--lease", "5s"));
    for job in ["errs", "panics", "hangs"] {
        site.run(job, "has begun", |_| true);
    }
    let from = site.run("healthy", "has begun", |_| true).start.nominal;
    let to = from + 20_000;
    site.run("healthy", "has run for 20 s", |run| run.start.nominal >= to);
    assert_complete(site, &["healthy"], from, to, 2000);
    for run in site.history().runs("healthy") {
        assert!(lateness(&run) <= secs(1) + SLACK, "late: {}", run.start);
    }
    for (job, message) in
        [("errs", "errs erred as it was told"), ("panics", "panicked: panics panicked as it was told")]
    {
        let told = |snapshot: anarchon::store::Snapshot| {
            let failed = snapshot.history.into_iter().find(|run| run.outcome == RunOutcome::Failed);
            failed.is_some_and(|run| run.message.as_deref() == Some(message))
        };
        until_so(&format!("the failure of {job} is recorded"), || told(site.record(job)));
        assert!(site.history().runs(job).len() >= 5, "{job} goes on to run");
    }
    assert_eq!(site.record("hangs").record.status, Status::Running);
    assert_eq!(site.history().runs("hangs").len(), 1, "what hangs keeps its lease, and skips what follows");
    drop(workers);
    site.verify();
}

pub(super) fn a_run_longer_than_its_timeout_is_recorded_as_an_error(site: &Site, processes: usize) {
    let begin = begin_of(processes);
    let (rude, polite) = (soon(secs(120), begin), soon(secs(120), begin + secs(1)));
    let jobs = [
        format!("rude,{rude},mode=hang,timeout=2s,lease=5s"),
        format!("polite,{polite},mode=polite,run=60s,step=100ms,timeout=2s,lease=5s"),
    ];
    let workers = site.start_all(processes, &Orders::new(jobs));
    for job in ["rude", "polite"] {
        until_so(&format!("{job} is over"), || site.record(job).record.status == Status::Failed);
        let record = site.record(job);
        let message = record.history[0].message.clone().unwrap_or_default();
        assert!(message.starts_with("timed out after 2s"), "{message}");
        assert_eq!(record.record.attempt, 1, "{record:?}");
    }
    let (rude, polite) = (&site.history().runs("rude")[0], &site.history().runs("polite")[0]);
    assert!(rude.dropped);
    // Dropped 2 s after its cancellation.
    let took = rude.last.mono.since(rude.start.mono);
    assert!(took >= secs(1) && took <= secs(4) + SLACK, "it went on for {took:?}");
    assert_eq!(polite.last.fact, Fact::Cancelled("timeout".into()));
    let took = polite.last.mono.since(polite.start.mono);
    assert!(took >= secs(1) && took <= secs(2) + SLACK, "it went on for {took:?}");
    drop(workers);
    site.verify();
}

pub(super) fn an_error_is_retried_as_often_and_as_late_as_the_job_says(site: &Site, processes: usize) {
    let begin = begin_of(processes);
    let (flaky, hopeless) = (soon(secs(120), begin), soon(secs(120), begin + secs(1)));
    let jobs = [
        format!("flaky,{flaky},mode=err,fails=2,retries=2,backoff=1s..60s,lease=5s"),
        format!("hopeless,{hopeless},mode=panic,retries=1,backoff=3s..60s,lease=5s"),
    ];
    let workers = site.start_all(processes, &Orders::new(jobs));
    until_so("the flaky one ended well", || site.record("flaky").record.status == Status::Succeeded);
    until_so("the hopeless one has failed", || site.record("hopeless").record.status == Status::Failed);
    let (flaky, hopeless) = (site.history().runs("flaky"), site.history().runs("hopeless"));
    assert_delays(&flaky, &[1, 2]);
    assert_delays(&hopeless, &[3]);
    assert!(flaky[2].is_done());
    let record = site.record("hopeless").record;
    assert_eq!((record.attempt, record.crashes), (2, 0), "{record:?}");
    drop(workers);
    site.verify();
}

/// The attempts follow each other by these delays in seconds, and by the second that finding them may take.
fn assert_delays(runs: &[Run], delays: &[u64]) {
    assert_eq!(runs.len(), delays.len() + 1, "{runs:?}");
    for (pair, delay) in runs.windows(2).zip(delays) {
        assert_eq!(pair[1].start.attempt, pair[0].start.attempt + 1);
        let after = pair[1].start.mono.since(pair[0].last.mono);
        // The store's clock may be slewed by a hundredth.
        assert!(after >= secs(*delay) * 98 / 100, "retried after {after:?} and not {delay} s");
        assert!(after <= secs(*delay + 1) + SLACK, "retried after {after:?} and not {delay} s");
    }
}

pub(super) fn what_a_run_logs_carries_the_fixed_fields(site: &Site) {
    let worker = site.start(&Orders::new(["j,every=1s"]));
    let run = site.run("j", "has ended well", Run::is_done);
    until_so("its handler's event is logged", || worker.log().contains("the handler speaks"));
    let log = worker.log();
    let line = log.lines().find(|line| line.contains("the handler speaks")).expect("it is there");
    let occurrence = anarchon::protocol::Millis(run.start.nominal);
    for field in [
        "job=j".to_owned(),
        format!("occurrence={occurrence}"),
        "attempt=1".to_owned(),
        format!("token={}", run.start.token),
        format!("instance={}", run.start.instance),
        "store=".to_owned(),
    ] {
        assert!(line.contains(&field), "{field} is not in {line}");
    }
    drop(worker);
    site.verify();
}
