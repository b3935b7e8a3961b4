//! Ten processes on a real server, for as long as one likes, while they are killed, frozen, cut off and replaced, and the server
//! with them; then the checker.

use std::{
    collections::BTreeMap,
    fmt, mem,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anarchon::{clock::Mono, protocol::Status};
use fastrand::Rng;

use crate::{
    deeds::What,
    faults::{clocks::FakeClock, mono},
    process::{Orders, Worker},
    proxy::{Mode, Proxy},
    servers::{
        nats, postgres,
        rabbitmq::Broker,
        redis::Kind,
        sqlite::SqliteStore,
        store::{Proxies, ServerStore},
        target,
    },
    site::{Outage, Site},
    wait::until_so,
};

const PROCESSES: usize = 10;
/// Through a proxy each; the others reach the server directly.
const WAYS: usize = 3;
/// How many may be disturbed at the same time.
const DISTURBED: usize = 5;
/// Between two deeds, on average twice that.
const PACE: Duration = Duration::from_millis(1500);
const SECOND: Duration = Duration::from_secs(1);

/// The stores that can be soaked, by what they are called, each with its server; SQLite has none.
const STORES: [(&str, StartServer); 6] = [
    ("sqlite", None),
    ("redis", Some(|| Kind::Redis.store())),
    ("valkey", Some(|| Kind::Valkey.store())),
    ("postgres", Some(|| postgres::Release::System.store())),
    ("nats", Some(|| nats::Release::Newer.store())),
    ("rabbitmq", Some(|| Broker::start().store())),
];

type StartServer = Option<fn() -> ServerStore>;

/// What happened, for the record.
#[derive(Debug, Default)]
pub struct Summary {
    counts: BTreeMap<&'static str, usize>,
    runs: usize,
    takeovers: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} runs, {} of them further attempts", self.runs, self.takeovers)?;
        self.counts.iter().try_for_each(|(what, count)| write!(f, ", {what} {count}"))
    }
}

/// Soaks a store for so long, and panics with what went wrong.
///
/// # Panics
/// When a promise was broken, with the seed; and for a store that is none.
#[must_use]
pub fn soak(worker: &str, store: &str, length: Duration, seed: u64) -> Summary {
    println!("{PROCESSES} processes on {store} for {length:?}, seed {seed}");
    let mut soak = Soak::new(Path::new(worker), store, seed);
    let end = mono().plus(length);
    soak.start_all();
    while mono() < end {
        let next = mono().plus(soak.random_up_to(2 * PACE));
        until_so("it is time for the next deed", || mono() >= next);
        soak.settle();
        soak.disturb();
    }
    soak.finish()
}

/// The program: `soak STORE MINUTES [SEED]`.
#[must_use]
pub fn main(worker: &str) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (store, minutes, seed) = match words[..] {
        [store, minutes] => (store, minutes.parse::<f64>(), Ok(fastrand::u64(..))),
        [store, minutes, seed] => (store, minutes.parse(), seed.parse()),
        _ => ("", "0".parse(), Ok(0)),
    };
    let is_known = STORES.iter().any(|(name, _)| *name == store);
    let (Ok(minutes), Ok(seed), true) = (minutes, seed, is_known) else {
        eprintln!("soak STORE MINUTES [SEED], where STORE is one of {}", names());
        return ExitCode::from(2);
    };
    let length = Duration::try_from_secs_f64(minutes * 60.0).unwrap_or(Duration::MAX);
    println!("{}", soak(worker, store, length, seed));
    println!("no promise was broken");
    ExitCode::SUCCESS
}

fn names() -> String {
    STORES.map(|(name, _)| name).join(", ")
}

struct Soak {
    site: Site,
    random: Rng,
    proxies: Vec<Arc<Proxy>>,
    /// For two processes whose wall clock is set now and then; none where the store goes by it.
    clocks: Vec<FakeClock>,
    places: Vec<Place>,
    version: usize,
    /// When something comes to its end.
    ends: Vec<(Mono, End)>,
    store_is_gone: bool,
    /// A file whose directory is not there is a mistake in the configuration: a process that starts then ends at once, as it should.
    starts_need_the_store: bool,
    no_outage_before: Mono,
    no_deployment_before: Mono,
    started: usize,
    summary: Summary,
    /// Where history and deeds go, to be judged again.
    kept: PathBuf,
}

/// A process, or the gap that it left.
#[derive(Debug, Default)]
struct Place {
    worker: Option<Worker>,
    /// With their ways.
    leaving: Vec<(usize, Worker)>,
    way: usize,
    clock: Option<usize>,
    is_ready: bool,
    is_frozen: bool,
}

impl Place {
    /// Nobody is there, or somebody who listens to signals or has ended.
    fn may_leave(&mut self) -> bool {
        self.worker.as_mut().is_none_or(|worker| worker.is_starting() || worker.has_ended())
    }
}

#[derive(Debug, Clone, Copy)]
enum End {
    /// Another process takes the place.
    Start(usize),
    /// To be replaced by the newest version.
    Replace(usize),
    Thaw(usize),
    Heal(usize),
    Store,
}

impl Soak {
    fn new(worker: &Path, store: &str, seed: u64) -> Self {
        let mut proxies = Vec::new();
        let server = STORES.iter().find(|(name, _)| *name == store);
        let (_, server) = server.unwrap_or_else(|| panic!("{store} is none of {}", names()));
        let site = Site::new(worker, |directory| match server {
            None => Box::new(SqliteStore::new(directory)),
            Some(start) => {
                let store = Proxies::new(start(), WAYS);
                proxies = store.proxies().to_vec();
                Box::new(store)
            }
        });
        let has_own_clock = !["sqlite", "rabbitmq"].contains(&store);
        let clocks = if has_own_clock {
            vec![FakeClock::new(&site, "clock-0"), FakeClock::new(&site, "clock-1")]
        } else {
            Vec::new()
        };
        Self {
            random: Rng::with_seed(seed),
            proxies,
            clocks,
            places: (0..PROCESSES).map(|_| Place::default()).collect(),
            version: 0,
            ends: Vec::new(),
            store_is_gone: false,
            starts_need_the_store: server.is_none(),
            no_outage_before: mono().plus(10 * SECOND),
            no_deployment_before: mono().plus(30 * SECOND),
            started: 0,
            summary: Summary::default(),
            kept: target().join("soak").join(format!("{store}-{seed}")),
            site,
        }
    }

    fn random_up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.random.f64())
    }

    fn count(&mut self, what: &'static str) {
        *self.summary.counts.entry(what).or_default() += 1;
    }

    fn start_all(&mut self) {
        for place in 0..PROCESSES {
            self.places[place].clock = (place < self.clocks.len()).then_some(place);
            self.start(place);
        }
        until_so("all have started", || {
            self.settle();
            self.places.iter().all(|place| place.is_ready)
        });
    }

    fn start(&mut self, at: usize) {
        let mut orders = orders(self.version);
        if let Some(clock) = self.places[at].clock {
            orders = orders.environment(self.clocks[clock].environment());
        }
        let place = &mut self.places[at];
        place.worker = Some(self.site.start(&orders));
        place.way = self.started % (self.proxies.len() + 1);
        (place.is_ready, place.is_frozen) = (false, false);
        self.started += 1;
    }

    /// Carries out what is due, and sees who is there.
    fn settle(&mut self) {
        for place in &mut self.places {
            place.leaving.retain_mut(|(_, worker)| !worker.has_ended());
            let Some(worker) = place.worker.as_ref().filter(|worker| !place.is_ready && worker.has_started())
            else {
                continue;
            };
            place.is_ready = true;
            if place.clock.is_none() {
                self.site.deeds().note(What::Ready(worker.pid()));
            }
        }
        let now = mono();
        let waits = self.store_is_gone && self.starts_need_the_store;
        let may_leave: Vec<bool> = self.places.iter_mut().map(Place::may_leave).collect();
        let is_due = |(at, end): &(Mono, End)| {
            let can_be = match end {
                End::Start(_) => !waits,
                // To wait for it here would keep what it waits for, as a cut, from its end.
                End::Replace(place) => !waits && may_leave[*place],
                End::Thaw(_) | End::Heal(_) | End::Store => true,
            };
            *at <= now && can_be
        };
        let (due, later): (Vec<_>, Vec<_>) = self.ends.drain(..).partition(is_due);
        self.ends = later;
        due.into_iter().for_each(|(_, end)| self.end(end));
    }

    fn end(&mut self, end: End) {
        match end {
            // A deployment may have done so.
            End::Start(at) if self.places[at].worker.is_some() => {}
            End::Start(at) => self.start(at),
            End::Replace(at) => {
                self.terminate(at);
                self.start(at);
            }
            End::Thaw(at) => {
                self.places[at].is_frozen = false;
                if let Some(worker) = &self.places[at].worker {
                    worker.thaw();
                }
            }
            End::Heal(way) => {
                self.proxies[way].set(Mode::Pass);
                self.note_of(way, What::Heal);
            }
            End::Store => {
                self.site.resume_store();
                self.store_is_gone = false;
            }
        }
    }

    /// Those that are about to leave as well.
    fn note_of(&self, way: usize, what: fn(u32) -> What) {
        for place in &self.places {
            let workers = place.worker.iter().map(|worker| (place.way, worker));
            let all = workers.chain(place.leaving.iter().map(|(way, worker)| (*way, worker)));
            all.filter(|(its, _)| *its == way)
                .for_each(|(_, worker)| self.site.deeds().note(what(worker.pid())));
        }
    }

    fn terminate(&mut self, at: usize) {
        let place = &mut self.places[at];
        if place.is_frozen
            && let Some(worker) = &place.worker
        {
            worker.thaw();
        }
        if let Some(mut worker) = place.worker.take() {
            worker.terminate();
            place.leaving.push((place.way, worker));
        }
    }

    /// Does something to somebody.
    fn disturb(&mut self) {
        let busy = |end: &&(Mono, End)| !matches!(end.1, End::Store | End::Replace(_));
        if self.ends.iter().filter(busy).count() >= DISTURBED {
            return;
        }
        let at = self.random.usize(..PROCESSES);
        let is_steady =
            self.places[at].is_ready && !self.places[at].is_frozen && self.places[at].worker.is_some();
        let long = SECOND + self.random_up_to(14 * SECOND);
        let end = mono().plus(long);
        match self.random.u8(..100) {
            0..30 if is_steady => {
                self.count("killed");
                if let Some(mut worker) = self.places[at].worker.take() {
                    worker.kill();
                }
                self.ends.push((end, End::Start(at)));
            }
            30..50 if is_steady => {
                self.count("frozen");
                if let Some(worker) = &self.places[at].worker {
                    worker.freeze();
                }
                self.places[at].is_frozen = true;
                self.ends.push((end, End::Thaw(at)));
            }
            50..65 if is_steady => {
                self.count("told to end");
                self.terminate(at);
                self.ends.push((end, End::Start(at)));
            }
            65..82 if !self.proxies.is_empty() => {
                let way = self.random.usize(..self.proxies.len());
                if self.ends.iter().any(|(_, end)| matches!(end, End::Heal(other) if *other == way)) {
                    return;
                }
                self.count("cut off");
                self.note_of(way, What::Cut);
                self.proxies[way].set(if self.random.bool() { Mode::Hole } else { Mode::Cut });
                self.ends.push((end, End::Heal(way)));
            }
            82..88 if !self.store_is_gone && mono() >= self.no_outage_before && self.may_lose_the_store() => {
                self.count("outages");
                let how = if self.random.bool() { Outage::Hangs } else { Outage::Vanishes };
                self.site.stop_store(how);
                self.store_is_gone = true;
                self.ends.push((end, End::Store));
                self.no_outage_before = end.plus(40 * SECOND);
            }
            88..95 if mono() >= self.no_deployment_before => {
                self.count("deployments");
                self.version = 1 - self.version;
                let mut at = mono();
                for place in 0..PROCESSES {
                    self.ends.push((at, End::Replace(place)));
                    at = at.plus(self.random_up_to(3 * SECOND));
                }
                self.no_deployment_before = at.plus(60 * SECOND);
            }
            95.. if !self.clocks.is_empty() => {
                self.count("clocks set");
                let clock = self.random.usize(..self.clocks.len());
                let hours = self.random.i64(-2..=2);
                self.clocks[clock].set(hours * 3_600_000_000);
            }
            _ => {}
        }
    }

    fn may_lose_the_store(&self) -> bool {
        !self.starts_need_the_store
            || self.places.iter().all(|place| place.worker.is_none() || place.is_ready)
    }

    /// Lets all be well again, ends all, and judges.
    fn finish(mut self) -> Summary {
        until_so("all that was begun has come to its end", || {
            self.settle();
            self.ends.is_empty() && self.places.iter().all(|place| place.is_ready)
        });
        let well = mono();
        for (job, _) in jobs(self.version) {
            self.site
                .run(&job, "has ended well since all is well", |run| run.start.mono > well && run.is_done());
        }
        (0..PROCESSES).for_each(|place| self.terminate(place));
        for place in &mut self.places {
            for (_, mut worker) in place.leaving.drain(..) {
                let status = worker.ended();
                assert!(
                    status.success(),
                    "process {} ended badly: {status:?}\n{}",
                    worker.pid(),
                    worker.log()
                );
            }
        }
        for (job, _) in jobs(self.version) {
            let record = self.site.record(&job).record;
            assert_ne!(record.status, Status::Running, "nobody is there to run {job}: {record:?}");
        }
        self.site.verify();
        let history = self.site.history();
        let runs: Vec<_> = history.jobs().into_iter().flat_map(|job| history.runs(job)).collect();
        self.summary.runs = runs.len();
        self.summary.takeovers = runs.iter().filter(|run| run.is_further()).count();
        mem::take(&mut self.summary)
    }
}

impl Drop for Soak {
    /// However it ended: whoever looks for the cause needs them.
    fn drop(&mut self) {
        match self.site.keep(&self.kept) {
            Ok(()) => println!("history and deeds are kept in {}", self.kept.display()),
            Err(error) => println!("history and deeds cannot be kept in {}: {error}", self.kept.display()),
        }
    }
}

/// The jobs of a version of the program: some quick, one that takes longer than its interval, one that errs at first.
fn jobs(version: usize) -> Vec<(String, &'static str)> {
    let quick = (0..4).map(|n| (format!("quick-{n}"), "every=6s,run=300ms"));
    let middle =
        if version == 0 { "every=20s,run=4s,step=200ms,mode=polite" } else { "every=25s,run=4s,step=200ms" };
    let others = [
        ("middle", middle),
        ("long", "every=20s,run=25s,step=500ms,max_attempts=1000"),
        ("errs", "every=15s,mode=err,fails=1,retries=2,backoff=1s..5s"),
        ("athens", "cron=*/20 * * * * *,tz=Europe/Athens,run=1s"),
    ];
    let one_more = if version == 0 { None } else { Some(("of-version-one", "every=10s")) };
    quick.chain(others.into_iter().chain(one_more).map(|(name, line)| (name.to_owned(), line))).collect()
}

fn orders(version: usize) -> Orders {
    Orders::new(jobs(version).into_iter().map(|(name, line)| format!("{name},{line},lease=5s,catch_up=30s")))
        .option("--drain", "3s")
        // One cut may follow on another.
        .option("--start-timeout", "1h")
}
