//! What is lost and doubled when a process dies, when one stands still, and when the store is away.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anarchon::protocol::{JobName, Namespace, Occurrence, RunOutcome};
use anarchon_bench::{instance::Kind, micros};
use anarchon_tests::servers::store::backend;
use rustix::process::Signal;

use crate::{
    child::{Instance, Scheduler, Work, second_in, sleep_until},
    page::Table,
    stores::{Started, wait_for},
};

const HEAD: [&str; 12] = [
    "store",
    "scheduler",
    "disturbance",
    "due",
    "once",
    "again, as the next attempt",
    "twice",
    "given up for a newer one",
    "the run before held its lease",
    "missed",
    "late by > 1 s",
    "latest s",
];

const JOBS: usize = 50;
const INSTANCES: usize = 3;
const FROZEN: Duration = Duration::from_secs(10);
const AWAY: Duration = Duration::from_secs(5);

/// Plays each disturbance on each store, with jobs that are due each second.
pub fn play(stores: &[&'static str], schedulers: &[Scheduler], seconds: usize, table: &mut Table) {
    table.head(&HEAD, 3);
    for store in stores {
        for scheduler in schedulers.iter().filter(|scheduler| scheduler.stores.contains(store)) {
            let work = Work { scheduler: *scheduler, jobs: JOBS, seconds, jitter: true, kind: Kind::Watched };
            for disturbance in [Disturbance::Kill, Disturbance::Freeze, Disturbance::Outage] {
                let first = format!("{store} | {} | {}", scheduler.name, disturbance.name());
                table.play(&first, |table| (line(&work, store, disturbance, table), ()));
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Disturbance {
    Kill,
    Freeze,
    Outage,
}

impl Disturbance {
    fn name(self) -> String {
        match self {
            Self::Kill => "kill -9 of a process, which is started again".to_owned(),
            Self::Freeze => format!("a process stands still for {} s", FROZEN.as_secs()),
            Self::Outage => format!("the store is away for {:.1} s", AWAY.as_secs_f64()),
        }
    }
}

fn line(work: &Work, store: &str, disturbance: Disturbance, table: &mut Table) -> String {
    let mut started = Started::new(store);
    table.made_with(&started.version());
    table.made_with(&work.scheduler.version());
    let folder = tempfile::tempdir().expect("a folder");
    let url = started.url().to_owned();
    let start = |i| Instance::start(work, &url, folder.path().join(format!("{i}.runs")));
    let mut instances: Vec<Instance> = (0..INSTANCES).map(start).collect();
    instances.iter_mut().for_each(Instance::wait_until_up);
    let first = second_in(3);
    instances.iter_mut().for_each(|instance| instance.tell(first));
    // Claims are under way then, and runs go on.
    sleep_until(first + work.seconds as i64 / 3 * 1000 + 50);
    let (began, from) = (Instant::now(), micros());
    let what = match disturbance {
        Disturbance::Kill => {
            instances[0].kill();
            instances[0] = start(0);
            instances[0].wait_until_up();
            instances[0].tell(first);
            disturbance.name()
        }
        Disturbance::Freeze => {
            instances[0].signal(Signal::STOP);
            thread::sleep(FROZEN);
            instances[0].signal(Signal::CONT);
            disturbance.name()
        }
        Disturbance::Outage => {
            started.fail_for(AWAY);
            format!("the store is away for {:.1} s", began.elapsed().as_secs_f64())
        }
    };
    let to = micros();
    let mut runs = Runs::default();
    let last = first + work.seconds as i64 * SECOND;
    while micros() / 1000 + ASKED < last {
        sleep_until(micros() / 1000 + ASKED);
        runs.ask(started.url());
    }
    instances.iter_mut().for_each(Instance::wait);
    instances.iter().for_each(|instance| runs.read(instance.file()));
    runs.ask(started.url());
    let away = match disturbance {
        // It answers before all of it is seen to be back.
        Disturbance::Outage => Some(Away { from, back: from + AWAY.as_micros() as i64, to }),
        // Who stands still while it writes to the file locks it for all.
        Disturbance::Freeze if store == "sqlite" => runs.silence(from, to),
        Disturbance::Freeze | Disturbance::Kill => None,
    };
    let due = Due { jobs: work.jobs, first, seconds: work.seconds };
    format!("{store} | {} | {what} | {}", work.scheduler.name, runs.judge(&due, away.as_ref()))
}

/// When nobody has the store, in µs: from when on, when the first may have it again, and when all can.
struct Away {
    from: i64,
    back: i64,
    to: i64,
}

/// What is to run.
struct Due {
    jobs: usize,
    /// ms since the epoch.
    first: i64,
    seconds: usize,
}

/// What ran: by job and planned time, in ms since the epoch.
#[derive(Default)]
struct Runs {
    /// Those whose handler came to its end: attempt, and its beginning in µs.
    ended: BTreeMap<(usize, i64), Vec<(u32, i64)>>,
    /// Until when a run held its lease, in ms, as far as that shows: by a next attempt, or in the store.
    held: BTreeMap<(usize, i64), i64>,
    /// Those that were awarded to somebody who never said that they were over, when a newer one was.
    given_up: BTreeSet<(usize, i64)>,
}

impl Runs {
    fn read(&mut self, file: &Path) {
        for line in fs::read_to_string(file).expect("an instance wrote it").lines() {
            let numbers: Vec<i64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
            let [job, planned, attempt, began] = numbers[..] else { panic!("{line:?} tells no run") };
            let (job, attempt) = (job as usize, attempt as u32);
            self.ended.entry((job, planned)).or_default().push((attempt, began));
            if attempt > 1 {
                self.hold(job, planned, began / 1000);
            }
        }
    }

    /// Asks the store for the newest runs.
    fn ask(&mut self, url: &str) {
        let name = |job| JobName::new(&anarchon_bench::job(job)).expect("a valid name");
        let names: Vec<JobName> = (0..JOBS).map(name).collect();
        let store = backend(url);
        let looks = wait_for(async {
            store.open(&Namespace::new("bench").expect("a valid name")).await.expect("it is back");
            let looks = store.inspect(&names, u8::MAX).await;
            store.close().await;
            looks
        });
        for (job, look) in looks.into_iter().enumerate() {
            for run in look.ok().and_then(|look| look.value).map(|look| look.history).into_iter().flatten() {
                if let Occurrence::Planned(planned) = run.occurrence {
                    self.hold(job, planned.0, run.ended.0);
                    if run.outcome == RunOutcome::Lost {
                        self.given_up.insert((job, planned.0));
                    }
                }
            }
        }
    }

    /// Whether the next run of this job came after this time, in µs: then it was the first that somebody asked for. There may be none
    /// where all was over, in ms, before the store was back.
    fn is_newest_later(&self, job: usize, planned: i64, time: i64, end: i64) -> bool {
        let next = self.ended.range((job, planned)..(job + 1, 0)).flat_map(|(_, runs)| runs).next();
        next.map_or(time / 1000 >= end, |(_, began)| *began >= time)
    }

    /// The longest time without any run that began in this time, if it is longer than it is by nature.
    fn silence(&self, from: i64, to: i64) -> Option<Away> {
        let mut began: Vec<i64> = self.ended.values().flatten().map(|(_, began)| *began).collect();
        began.sort_unstable();
        let gaps = began.windows(2).map(|pair| (pair[0], pair[1]));
        let longest = gaps.filter(|(last, _)| (from - SECOND * 1000..to).contains(last));
        let (last, next) = longest.max_by_key(|(last, next)| next - last)?;
        (next - last > 2 * SECOND * 1000).then_some(Away { from: last, back: next, to: next })
    }

    fn hold(&mut self, job: usize, planned: i64, until: i64) {
        let held = self.held.entry((job, planned)).or_default();
        *held = until.max(*held);
    }

    /// The cells of a line.
    fn judge(&self, due: &Due, away: Option<&Away>) -> String {
        let [mut once, mut again, mut twice, mut newer, mut held, mut missed, mut late] = [0; 7];
        let mut latest = 0;
        for job in 0..due.jobs {
            for planned in (0..due.seconds as i64).map(|second| due.first + second * SECOND) {
                let runs = self.ended.get(&(job, planned)).map_or(&[][..], Vec::as_slice);
                let most = runs.iter().map(|(_, began)| began / 1000 - planned).max().unwrap_or(0);
                latest = latest.max(most);
                late += usize::from(most > SECOND);
                let is_given_up = || {
                    self.given_up.contains(&(job, planned))
                        || away.is_some_and(|Away { from, back, to }| {
                            (from / 1000 - JITTER..to / 1000 + RECONNECTING).contains(&planned)
                                && self.is_newest_later(
                                    job,
                                    planned,
                                    *back,
                                    due.first + due.seconds as i64 * SECOND,
                                )
                        })
                };
                let is_held =
                    || self.held.range((job, 0)..(job, planned)).any(|(_, until)| *until >= planned);
                match runs {
                    [_] => once += 1,
                    [_, ..] if has_each_attempt_once(runs) => again += 1,
                    [_, ..] => twice += 1,
                    [] if is_held() => held += 1,
                    [] if is_given_up() => newer += 1,
                    [] => missed += 1,
                }
            }
        }
        format!(
            "{} | {once} | {again} | {twice} | {newer} | {held} | {missed} | {late} | {:.1}",
            due.jobs * due.seconds,
            latest as f64 / 1000.0
        )
    }
}

/// Between two questions for the newest runs, in ms: a store keeps twenty of a job, which are those of twenty seconds, and tells of the
/// disturbance only so long.
const ASKED: i64 = 15_000;
/// ms.
const SECOND: i64 = 1000;
/// That of jobs due each second; who has not yet claimed as the store goes away does not.
const JITTER: i64 = 100;
/// The longest that an instance waits before it tries again whether the store is back.
const RECONNECTING: i64 = 5000;

fn has_each_attempt_once(runs: &[(u32, i64)]) -> bool {
    let mut attempts: Vec<u32> = runs.iter().map(|(attempt, _)| *attempt).collect();
    attempts.sort_unstable();
    attempts.windows(2).all(|pair| pair[0] != pair[1])
}
