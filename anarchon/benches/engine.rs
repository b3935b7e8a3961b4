//! What an instance does in memory for an occurrence: a decision of the protocol, and the steps of the engine around it.
//! `cargo bench -p anarchon --bench engine`

#![expect(clippy::unwrap_used, reason = "a benchmark may end at the first surprise")]

use std::{hint::black_box, time::Duration};

use anarchon::{
    Every,
    clock::Mono,
    engine::{Action, Call, Engine, EngineJob, Event, Reply, RunEnd, RunId, Settings},
    policy::{Jitter, Policy},
    protocol::{
        self, Claim, Fingerprint, InstanceId, JobName, JobSpec, LeaseEnd, Members, Millis, Nonce, Record,
        StoreNow, What, Write,
    },
    store::{Guarantees, Stamped},
};
use anarchon_schedule::Spec;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const SECOND: u64 = 1_000_000;

fn decision(c: &mut Criterion) {
    let (schedule, by) = (Fingerprint::of("every 1 s"), InstanceId::new("bench").unwrap());
    let job = JobName::new("job").unwrap();
    let spec = JobSpec { job: job.clone(), schedule, by: by.clone(), replace: None, next: None };
    let now = StoreNow(1_000_000_000);
    let Some(Write::Put { record, .. }) = protocol::register(None, &spec, now).write else {
        panic!("it is new")
    };
    let claim = Claim {
        job,
        what: What::Planned(Millis(1_000_001)),
        lease: Duration::from_secs(30),
        window: Duration::from_secs(300),
        max_attempts: 3,
        schedule,
        holder: by,
        nonce: Nonce { instance: 1, seq: 1 },
        next: None,
        expires: Millis::MAX,
    };
    let later = StoreNow(now.0 + 2000);
    c.bench_function("a claim that wins", |b| {
        b.iter(|| protocol::claim(Some(black_box(&record)), &claim, later, LeaseEnd::ByClock));
    });
    let decided = Record { decided: Millis(1_000_001), ..(*record).clone() };
    c.bench_function("a claim that comes too late", |b| {
        b.iter(|| protocol::claim(Some(black_box(&decided)), &claim, later, LeaseEnd::ByClock));
    });
}

/// An engine, and a store that gives it what it asks for.
struct World {
    engine: Engine,
    records: std::collections::HashMap<JobName, Record>,
    now: u64,
    started: Vec<RunId>,
}

impl World {
    fn new(jobs: usize) -> Self {
        let schedule = Spec::from(Every::new("1s")).check().unwrap();
        let fingerprint = Fingerprint::of(&schedule.canonical());
        let policy = Policy { jitter: Jitter::UpTo(Duration::ZERO), ..Policy::default() };
        let job = |i| EngineJob {
            name: JobName::new(&format!("job-{i:05}")).unwrap(),
            schedule: schedule.clone(),
            fingerprint,
            policy: policy.clone(),
        };
        let settings = Settings {
            instance: InstanceId::new("bench").unwrap(),
            nonce: 7,
            seed: 7,
            concurrency: None,
            drain: Duration::from_secs(5),
            zones: "2026a".to_owned(),
        };
        let engine = Engine::new(settings, (0..jobs).map(job));
        let mut world =
            Self { engine, records: Default::default(), now: 100 * SECOND + 2000, started: Vec::new() };
        world.hand(Event::Opened(Guarantees::new("bench")));
        world
    }

    /// One event, with all that follows from it.
    fn hand(&mut self, event: Event) {
        self.engine.handle(event, Mono(self.now));
        while let Some(action) = self.engine.next_action() {
            match action {
                Action::Call { id, call, .. } => {
                    let reply = self.reply(&call);
                    let (sent, received) = (Mono(self.now), Mono(self.now));
                    self.engine.handle(Event::Reply { call: id, sent, received, reply }, Mono(self.now));
                }
                Action::Start(start) => self.started.push(start.run),
                _ => {}
            }
        }
    }

    fn reply(&mut self, call: &Call) -> Reply {
        let now = StoreNow(i64::try_from(self.now).unwrap());
        fn all<I, T>(
            world: &mut World,
            items: &[I],
            job: impl Fn(&I) -> &JobName,
            rule: impl Fn(Option<&Record>, &I) -> protocol::Decision<T>,
            now: StoreNow,
        ) -> Vec<anarchon::store::Answer<T>> {
            let one = |item| {
                let decision = rule(world.records.get(job(item)), item);
                if let Some(Write::Put { record, .. }) = decision.write {
                    world.records.insert(job(item).clone(), *record);
                }
                Ok(Stamped { value: decision.answer, now })
            };
            items.iter().map(one).collect()
        }
        match call {
            Call::Beat(_) => {
                Reply::Beat(Ok(Stamped { value: Members { known: true, ..Members::default() }, now }))
            }
            Call::Register(items) => {
                Reply::Register(all(self, items, |i| &i.job, |r, i| protocol::register(r, i, now), now))
            }
            Call::Claim(items) => Reply::Claim(all(
                self,
                items,
                |i| &i.job,
                |r, i| protocol::claim(r, i, now, LeaseEnd::ByClock),
                now,
            )),
            Call::Renew(items) => {
                Reply::Renew(all(self, items, |i| &i.job, |r, i| protocol::renew(r, i, now), now))
            }
            Call::Finish(items) => {
                Reply::Finish(all(self, items, |i| &i.job, |r, i| protocol::finish(r, i, now), now))
            }
            Call::Inspect(items) => {
                Reply::Inspect(items.iter().map(|_| Ok(Stamped { value: None, now })).collect())
            }
        }
    }

    /// Each job runs once.
    fn second(&mut self) {
        self.now += SECOND;
        self.hand(Event::Tick);
        for run in std::mem::take(&mut self.started) {
            self.hand(Event::RunEnded { run, end: RunEnd::Returned { error: None, saw_cancel: false } });
        }
        // Ends that came together leave a moment later.
        while let Some(at) = self.engine.next_wakeup().filter(|at| at.0 < self.now + SECOND / 2) {
            self.now = self.now.max(at.0);
            self.hand(Event::Tick);
        }
        self.now = self.now / SECOND * SECOND + 2000;
    }
}

fn engine(c: &mut Criterion) {
    let mut group = c.benchmark_group("an occurrence of one of so many jobs that are due each second");
    group.sample_size(10);
    for jobs in [1, 100, 10_000] {
        group.throughput(Throughput::Elements(jobs as u64));
        let mut world = World::new(jobs);
        group.bench_function(jobs.to_string(), |b| {
            b.iter_batched(|| (), |()| world.second(), BatchSize::PerIteration)
        });
    }
}

criterion_group!(benches, decision, engine);
criterion_main!(benches);
