//! What it costs to wait: jobs that are not due, up to 100,000 of them.

use std::time::Instant;

use anarchon_bench::instance::Kind;

use crate::{
    child::{Instance, Scheduler, Work, calls_of_all, second_in, sleep_until},
    page::{Table, or_dash},
    stores::{Started, most_jobs},
};

const HEAD: [&str; 11] = [
    "store",
    "scheduler",
    "jobs",
    "up after s",
    "MB",
    "bytes a job",
    "CPU %",
    "CPU %, store",
    "calls/min",
    "bytes/min",
    "commands/min",
];

/// Plays an instance of each scheduler on each store with so many jobs.
pub fn play(
    stores: &[&'static str],
    schedulers: &[Scheduler],
    jobs: &[usize],
    seconds: usize,
    table: &mut Table,
) {
    table.head(&HEAD, 2);
    for store in stores {
        for scheduler in schedulers.iter().filter(|scheduler| scheduler.stores.contains(store)) {
            // What there is anyway: that of the first line.
            let mut least = None;
            for &jobs in jobs.iter().filter(|jobs| **jobs <= most_jobs(store)) {
                let work = Work { scheduler: *scheduler, jobs, seconds, jitter: true, kind: Kind::Idle };
                let first = format!("{store} | {} | {jobs}", scheduler.name);
                let resident = table.play(&first, |table| line(&work, store, least, table));
                least = least.or(resident.map(|resident| (jobs, resident)));
            }
        }
    }
}

fn line(work: &Work, store: &str, least: Option<(usize, u64)>, table: &mut Table) -> (String, u64) {
    let started = Started::new(store);
    table.made_with(&started.version());
    table.made_with(&work.scheduler.version());
    let folder = tempfile::tempdir().expect("a folder");
    let began = Instant::now();
    let mut instance = Instance::start(work, started.url(), folder.path().join("seen"));
    instance.wait_until_up();
    let up = began.elapsed().as_secs_f64();
    // What a start leaves to do is over by then.
    let first = second_in(6);
    instance.tell(first);
    sleep_until(first - 500);
    let before = (instance.cpu_seconds(), started.seen_at_first());
    sleep_until(first + work.seconds as i64 * 1000 - 500);
    let after = (instance.cpu_seconds(), started.seen_at_last());
    let resident = instance.resident();
    instance.wait();
    let of_store = after.1.zip(before.1).map(|(after, before)| after.since(before));
    let seconds = work.seconds as f64;
    let percent = |cpu: f64| format!("{:.2}", cpu * 100.0 / seconds);
    let a_minute = |count: u64| format!("{:.0}", count as f64 * 60.0 / seconds);
    let a_job = least.and_then(|least| bytes_a_job(least, (work.jobs, resident)));
    let cells = format!(
        "{store} | {} | {} | {up:.2} | {:.1} | {} | {} | {} | {} | {} | {}",
        work.scheduler.name,
        work.jobs,
        resident as f64 / 1e6,
        or_dash(a_job.map(|bytes| format!("{bytes:.0}"))),
        percent(after.0 - before.0),
        or_dash(of_store.map(|seen| percent(seen.cpu))),
        or_dash(calls_of_all(&[instance]).map(|(calls, _)| a_minute(calls))),
        or_dash(of_store.and_then(|seen| seen.bytes).map(a_minute)),
        or_dash(of_store.and_then(|seen| seen.commands).map(a_minute)),
    );
    (cells, resident)
}

/// Of two lines with their jobs and bytes, in whatever order; nothing if both have as many jobs.
fn bytes_a_job((jobs, bytes): (usize, u64), (more_jobs, more_bytes): (usize, u64)) -> Option<f64> {
    let a_job = (more_bytes as f64 - bytes as f64) / (more_jobs as f64 - jobs as f64);
    (more_jobs != jobs).then_some(a_job.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_may_have_more_jobs_or_as_many() {
        assert_eq!(bytes_a_job((1, 1000), (11, 6000)), Some(500.0));
        assert_eq!(bytes_a_job((11, 6000), (1, 1000)), Some(500.0));
        assert_eq!(bytes_a_job((1, 6000), (2, 1000)), Some(0.0));
        assert_eq!(bytes_a_job((1, 1000), (1, 1001)), None);
    }
}
