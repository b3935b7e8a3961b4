//! What a seed stands for: the jobs, the instances, and what befalls them.

use std::time::Duration;

use anarchon::{
    engine::EngineJob,
    policy::{Backoff, CatchUp, Jitter, Policy},
    protocol::{Fingerprint, JobName},
};
use anarchon_schedule::{Cron, Every, Spec};
use fastrand::Rng;

/// The kinds of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    /// One map that decides, as in memory, SQLite, PostgreSQL and Redis.
    #[default]
    OneMap,
    /// Every instance decides on a cache, as with NATS.
    CompareAndSwap,
    /// Whoever has the message has the record, as in RabbitMQ.
    TokenQueue,
}

/// A simulation's course, all drawn from its seed.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    /// True time at the start, by which the store's clock is right; microseconds since 1970.
    pub(crate) epoch: i64,
    /// The jobs of each version of the program; the same names with other schedules.
    pub(crate) versions: Vec<Vec<EngineJob>>,
    pub(crate) instances: usize,
    pub(crate) concurrency: Option<usize>,
    /// How long faults happen, and the quiet time after them; microseconds.
    pub(crate) faulty: u64,
    pub(crate) quiet: u64,
    pub(crate) net: Net,
    pub(crate) handlers: Handlers,
    pub(crate) faults: Vec<(u64, Fault)>,
    /// Whether the process is resumed by a reply rather than by its timer.
    pub(crate) reply_first: bool,
}

/// Chances of what befalls one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Net {
    pub(crate) lost_request: f64,
    pub(crate) lost_reply: f64,
    pub(crate) duplicate: f64,
    pub(crate) delayed: f64,
    pub(crate) bad_item: f64,
    /// Usual one-way delay at most; microseconds.
    pub(crate) latency: u64,
}

/// Chances of what a handler does, and how long it takes at most; microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handlers {
    pub(crate) longest: u64,
    pub(crate) error: f64,
    pub(crate) blocks: f64,
    pub(crate) ignores_cancel: f64,
    pub(crate) kills: f64,
}

/// Something that happens once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    Kill(usize),
    /// Microseconds.
    Freeze(usize, u64),
    CutOff(usize, u64),
    Shutdown(usize),
    StoreDown(u64),
    StoreLosesData,
    /// Another server goes on in its place after so long, and the writes of so long before are gone; microseconds.
    FailOver(u64, u64),
    /// Microseconds.
    ClockStep(i64),
    /// To a version, with pauses of so many microseconds between instances, by kill or by shutdown.
    Deploy(usize, u64, bool),
    Trigger(usize),
    Pause(usize),
    Resume(usize),
    Cancel(usize),
    Forget(usize),
}

pub(crate) const SECOND: u64 = 1_000_000;

/// 2026-01-01T00:00:00Z: no clock is changed anywhere near.
const CALM: i64 = 1_767_225_600_000_000;

/// A change of the clocks: zone, instant in seconds since 1970, and schedules that are due before it, in what it skips or
/// repeats, and after it.
type Change = (&'static str, i64, [&'static str; 4]);

/// Both changes of Athens and New York, the half hours of Lord Howe, and the day that Apia skipped.
const CHANGES: [Change; 7] = [
    ("Europe/Athens", 1_774_746_000, ["59 2 * * *", "30 3 * * *", "0 4 * * *", "*/10 * 2-4 * * *"]),
    ("Europe/Athens", 1_792_890_000, ["59 3 * * *", "0 3 * * *", "1 3 * * *", "*/10 * 3 * * *"]),
    ("America/New_York", 1_772_953_200, ["59 1 * * *", "30 2 * * *", "1 3 * * *", "*/10 * 1-3 * * *"]),
    ("America/New_York", 1_793_512_800, ["59 1 * * *", "0 1 * * *", "1 1 * * *", "*/10 * 1 * * *"]),
    ("Australia/Lord_Howe", 1_775_314_800, ["59 1 * * *", "30 1 * * *", "31 1 * * *", "*/10 * 1 * * *"]),
    ("Australia/Lord_Howe", 1_791_041_400, ["59 1 * * *", "15 2 * * *", "31 2 * * *", "*/10 * 1-2 * * *"]),
    ("Pacific/Apia", 1_325_239_200, ["59 23 * * *", "0 12 * * *", "0 0 * * *", "*/10 * * * * *"]),
];

pub(crate) fn job(name: &str, schedule: &str, policy: Policy) -> EngineJob {
    of_spec(
        name,
        &match schedule.contains(' ') {
            true => Spec::from(Cron::new(schedule)),
            false => Spec::from(Every::new(schedule)),
        },
        policy,
    )
}

fn of_spec(name: &str, spec: &Spec, policy: Policy) -> EngineJob {
    let schedule = spec.check().expect("a right schedule");
    let fingerprint = Fingerprint::of(&schedule.canonical());
    EngineJob { name: JobName::new(name).expect("a right name"), schedule, fingerprint, policy }
}

fn policy(rng: &mut Rng) -> Policy {
    let lease = Duration::from_secs(*pick(rng, &[5, 5, 6, 10, 30]));
    Policy {
        lease,
        catch_up: match rng.u8(0..4) {
            0 => CatchUp::None,
            1 => CatchUp::Window(Duration::from_secs(10)),
            _ => CatchUp::Window(Duration::from_secs(300)),
        },
        jitter: match rng.u8(0..4) {
            0 => Jitter::UpTo(Duration::ZERO),
            1 => Jitter::UpTo(Duration::from_millis(300)),
            _ => Jitter::Default,
        },
        timeout: (rng.u8(0..3) == 0).then(|| Duration::from_millis(rng.u64(500..8000))),
        max_attempts: rng.u32(1..4),
        retries: rng.u32(0..3),
        backoff: Backoff { first: Duration::from_millis(rng.u64(100..3000)), max: Duration::from_secs(5) },
    }
}

fn pick<'a, T>(rng: &mut Rng, all: &'a [T]) -> &'a T {
    &all[rng.usize(0..all.len())]
}

impl Plan {
    pub(crate) fn of(kind: Kind, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let instances = match rng.u16(0..1000) {
            0 => rng.usize(100..301),
            1..=25 => rng.usize(8..41),
            _ => rng.usize(2..5),
        };
        let jobs = rng.usize(1..4);
        let policies: Vec<Policy> = (0..jobs).map(|_| policy(&mut rng)).collect();
        let schedules = ["1s", "2s", "3s", "5s", "10s", "30s", "* * * * *", "*/7 * * * * *"];
        let change = (rng.u8(0..3) == 0).then(|| *pick(&mut rng, &CHANGES));
        let epoch = change.map_or(CALM, |(_, at, _)| (at - rng.i64(0..90)) * SECOND as i64);
        let versions = (0..3)
            .map(|_| {
                (0..jobs)
                    .map(|j| {
                        // Between versions also the lease may differ.
                        let policy = if rng.u8(0..4) == 0 {
                            Policy { lease: Duration::from_secs(5), ..policies[j].clone() }
                        } else {
                            policies[j].clone()
                        };
                        let name = format!("job-{j}");
                        match change.filter(|_| rng.bool()) {
                            Some((zone, _, due)) => {
                                let cron = Cron::new(*pick(&mut rng, &due)).tz(zone);
                                of_spec(&name, &Spec::from(cron), policy)
                            }
                            None => {
                                let schedule = *pick(&mut rng, &schedules);
                                job(&name, schedule, policy)
                            }
                        }
                    })
                    .collect()
            })
            .collect();
        let faulty = rng.u64(20..70) * SECOND;
        let harsh = rng.u8(0..3);
        let chance = |rng: &mut Rng, most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
        let net = Net {
            lost_request: chance(&mut rng, 0.2),
            lost_reply: chance(&mut rng, 0.2),
            duplicate: chance(&mut rng, 0.2),
            delayed: chance(&mut rng, 0.05),
            bad_item: chance(&mut rng, 0.1),
            latency: *pick(&mut rng, &[200, 2_000, 20_000, 200_000]),
        };
        let handlers = Handlers {
            longest: *pick(&mut rng, &[100_000, SECOND, 5 * SECOND, 40 * SECOND]),
            error: chance(&mut rng, 0.6),
            blocks: chance(&mut rng, 0.3),
            ignores_cancel: chance(&mut rng, 0.7),
            kills: chance(&mut rng, 0.05),
        };
        let mut faults = Vec::new();
        for _ in 0..rng.usize(0..(3 + 6 * usize::from(harsh))) {
            faults.push((rng.u64(0..faulty), Self::fault(&mut rng, instances, jobs)));
        }
        faults.sort_by_key(|(at, _)| *at);
        Self {
            kind,
            seed,
            epoch,
            versions,
            instances,
            concurrency: (rng.u8(0..4) == 0).then(|| rng.usize(1..3)),
            faulty,
            quiet: 70 * SECOND,
            net,
            handlers,
            faults,
            reply_first: rng.bool(),
        }
    }

    fn fault(rng: &mut Rng, instances: usize, jobs: usize) -> Fault {
        let (i, j) = (rng.usize(0..instances), rng.usize(0..jobs));
        match rng.u8(0..21) {
            0 | 1 => Fault::Kill(i),
            2..=4 => Fault::Freeze(i, rng.u64(SECOND..45 * SECOND)),
            5 | 6 => Fault::CutOff(i, rng.u64(SECOND..45 * SECOND)),
            7 => Fault::Shutdown(i),
            8 => Fault::StoreDown(rng.u64(SECOND..40 * SECOND)),
            9 => Fault::StoreLosesData,
            10 => Fault::ClockStep(*pick(rng, &[3_600, -3_600, 40, -40, 2, -2]) * SECOND as i64),
            11 | 12 => Fault::Deploy(rng.usize(0..3), rng.u64(0..15 * SECOND), rng.bool()),
            13 | 14 => Fault::Trigger(j),
            15 => Fault::Pause(j),
            16 | 17 => Fault::Resume(j),
            18 => Fault::Cancel(j),
            19 => Fault::FailOver(rng.u64(0..10 * SECOND), rng.u64(0..3 * SECOND)),
            _ => Fault::Forget(j),
        }
    }

    /// A plan without faults, to be changed by a test.
    pub(crate) fn calm(seed: u64, versions: Vec<Vec<EngineJob>>, instances: usize) -> Self {
        Self {
            kind: Kind::OneMap,
            seed,
            epoch: CALM,
            versions,
            instances,
            concurrency: None,
            faulty: 60 * SECOND,
            quiet: 70 * SECOND,
            net: Net {
                lost_request: 0.0,
                lost_reply: 0.0,
                duplicate: 0.0,
                delayed: 0.0,
                bad_item: 0.0,
                latency: 2_000,
            },
            handlers: Handlers { longest: SECOND, error: 0.0, blocks: 0.0, ignores_cancel: 0.0, kills: 0.0 },
            faults: Vec::new(),
            reply_first: false,
        }
    }
}
