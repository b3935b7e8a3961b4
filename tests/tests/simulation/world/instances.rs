//! The processes: how they begin, do what their engine says, freeze and end.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::Duration,
};

use anarchon::{
    clock::Mono,
    engine::{Action, Call, CallId, Engine, Event, Report, RunId, Settings},
    protocol::{InstanceId, JobName, Nonce, Token},
    store::Guarantees,
};
use fastrand::Rng;

use super::{Ev, World, handlers::Handler};
use crate::{plan::SECOND, site::Place};

/// How late a wake-up may be handled in quiet times.
pub(super) const LATENESS: u64 = 2_000;

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) call: Call,
    pub(super) sent: Mono,
    pub(super) sent_true: u64,
}

#[derive(Debug)]
pub(super) struct Instance {
    pub(super) epoch: u64,
    pub(super) version: usize,
    pub(super) next_version: usize,
    pub(super) engine: Option<Engine>,
    pub(super) place: Place,
    pub(super) frozen: bool,
    pub(super) inbox: VecDeque<Ev>,
    pub(super) wake: u64,
    pub(super) asked: HashMap<CallId, Asked>,
    pub(super) first_sent: HashMap<Nonce, (Mono, u64)>,
    pub(super) won: HashMap<(JobName, Token), (Mono, u64, Duration)>,
    pub(super) handlers: BTreeMap<RunId, Handler>,
    pub(super) ready: bool,
    pub(super) shutting_down: Option<u64>,
    pub(super) lost_tokens: HashSet<(JobName, Token)>,
    pub(super) handled: u64,
    /// True time at which the last call left that was answered.
    pub(super) heard: u64,
}

impl Instance {
    /// A machine with clocks of its own, on which nothing runs yet.
    pub(super) fn new(rng: &mut Rng) -> Self {
        let place = Place { base: rng.u64(0..1 << 40), ppm: rng.i64(-100..=100), ..Place::default() };
        Self {
            epoch: 0,
            version: 0,
            next_version: 0,
            engine: None,
            place,
            frozen: false,
            inbox: VecDeque::new(),
            wake: 0,
            asked: HashMap::new(),
            first_sent: HashMap::new(),
            won: HashMap::new(),
            handlers: BTreeMap::new(),
            ready: false,
            shutting_down: None,
            lost_tokens: HashSet::new(),
            handled: 0,
            heard: 0,
        }
    }
}

impl World {
    pub(super) fn start(&mut self, i: usize) {
        if self.instances[i].engine.is_some() || self.shut {
            return;
        }
        let instance = &mut self.instances[i];
        instance.epoch += 1;
        instance.version = instance.next_version;
        instance.place.base = instance.place.base.wrapping_add(self.rng.u64(0..1 << 30));
        let settings = Settings {
            instance: InstanceId::new(&format!("i{i}-{}", instance.epoch)).expect("a right name"),
            nonce: self.rng.u64(..),
            seed: self.rng.u64(..),
            concurrency: self.plan.concurrency,
            drain: Duration::from_secs(5),
            zones: "2026a".to_owned(),
        };
        let jobs = self.plan.versions[instance.version].clone();
        instance.engine = Some(Engine::new(settings, jobs));
        instance.frozen = false;
        instance.inbox.clear();
        instance.asked.clear();
        instance.won.clear();
        instance.first_sent.clear();
        instance.handlers.clear();
        instance.ready = false;
        instance.shutting_down = None;
        instance.lost_tokens.clear();
        let (epoch, version) = (instance.epoch, instance.version);
        self.log(|| format!("i{i}-{epoch} starts with version {version}"));
        let guarantees = self.open(i);
        self.handle(i, Event::Opened(guarantees));
    }

    fn open(&mut self, i: usize) -> Guarantees {
        // A little off, and sometimes more.
        let most = if self.plan.seed.is_multiple_of(4) { 3 * SECOND } else { SECOND / 5 } as i64;
        let Some((site, remote)) = &self.remote else { return Guarantees::new("simulation") };
        let instance = &mut self.instances[i];
        instance.place.wall = self.rng.i64(-most..=most);
        site.tasks.kill(i);
        site.place(i, |place| *place = instance.place);
        remote.start(i, &self.plan.versions[instance.version])
    }

    pub(super) fn handle(&mut self, i: usize, event: Event) {
        let now = self.mono(i);
        if self.verbose && !matches!(event, Event::Tick) {
            self.log(|| format!("i{i} <- {event:?}"));
        }
        let Some(engine) = &mut self.instances[i].engine else { return };
        engine.handle(event, now);
        self.instances[i].handled += 1;
        self.act(i);
        self.arm(i);
    }

    fn arm(&mut self, i: usize) {
        let Some(engine) = &self.instances[i].engine else { return };
        let Some(next) = engine.next_wakeup() else { return };
        let late = if self.quiet { self.rng.u64(0..LATENESS) } else { self.rng.u64(0..20 * LATENESS) };
        let at = self.true_time(i, next).max(self.time) + late;
        let instance = &mut self.instances[i];
        instance.wake += 1;
        // Well above what the busiest of these instances needs.
        if instance.handled > 400 * (self.time / SECOND + 20) {
            self.judge.broke("cost", format!("i{i} handled {} events", self.instances[i].handled));
            return;
        }
        let event = Ev::Wake(i, instance.epoch, instance.wake);
        self.push(at, event);
    }

    fn act(&mut self, i: usize) {
        while let Some(action) = self.instances[i].engine.as_mut().and_then(Engine::next_action) {
            self.log(|| format!("i{i} -> {action:?}"));
            match action {
                Action::Call { id, call, deadline } => self.send(i, id, call, deadline),
                Action::Ready => self.instances[i].ready = true,
                Action::Failed(error) => self.judge.broke("start", error),
                Action::Start(start) => self.start_handler(i, &start),
                Action::Trust { run, trust } => self.check_trust(i, run, trust),
                Action::Cancel { run, reason } => self.cancel(i, run, reason),
                Action::Drop { run } => self.drop_handler(i, run),
                Action::Report(report) => self.out.reports.push((self.time, i, report)),
                Action::Stopped => {
                    self.check_left(i);
                    let instance = &mut self.instances[i];
                    instance.engine = None;
                    instance.epoch += 1;
                    self.end_client(i);
                    if !self.shut {
                        let at = self.time + self.rng.u64(0..8 * SECOND);
                        self.push(at, Ev::Start(i));
                    }
                }
            }
        }
    }

    /// Only a handler that blocks its thread may be left when its instance has stopped, and the operator is told.
    fn check_left(&mut self, i: usize) {
        for handler in self.instances[i].handlers.values() {
            let told = self.out.reports.iter().any(|(_, by, report)| {
                let Report::StillBlocking { job, token, .. } = report else { return false };
                *by == i && *job == handler.name && *token == handler.token
            });
            if !handler.blocks || !told {
                return self.judge.broke("shutdown", format!("i{i} stopped with {handler:?}"));
            }
            self.judge.count("left blocking at shutdown");
        }
    }

    pub(super) fn kill(&mut self, i: usize) {
        let instance = &mut self.instances[i];
        if instance.engine.take().is_none() {
            return;
        }
        instance.epoch += 1;
        instance.handlers.clear();
        instance.frozen = false;
        self.log(|| format!("i{i} is killed"));
        self.end_client(i);
        let at = self.time + self.rng.u64(0..20 * SECOND);
        self.push(at, Ev::Start(i));
    }

    fn end_client(&mut self, i: usize) {
        if let Some((site, remote)) = &self.remote {
            site.tasks.kill(i);
            remote.killed(i);
        }
    }

    pub(super) fn thaw(&mut self, i: usize, epoch: u64) {
        let instance = &mut self.instances[i];
        if instance.epoch != epoch || !instance.frozen {
            return;
        }
        instance.frozen = false;
        self.log(|| format!("i{i} is resumed"));
        let inbox: Vec<Ev> = self.instances[i].inbox.drain(..).collect();
        if !self.plan.reply_first {
            self.handle(i, Event::Tick);
        }
        if let Some((site, _)) = &self.remote {
            site.tasks.thaw(i);
            self.run_clients();
        }
        let (replies, others): (Vec<Ev>, Vec<Ev>) =
            inbox.into_iter().partition(|ev| matches!(ev, Ev::Reply(..)));
        for event in replies.into_iter().chain(others) {
            self.step(event);
        }
        self.handle(i, Event::Tick);
    }

    pub(super) fn begin_shutdown(&mut self, i: usize) {
        if self.instances[i].engine.is_some() && self.instances[i].shutting_down.is_none() {
            self.instances[i].shutting_down = Some(self.time);
            if self.instances[i].frozen {
                let epoch = self.instances[i].epoch;
                self.instances[i].shutting_down = None;
                let event = Ev::Stop(i, epoch);
                return self.instances[i].inbox.push_back(event);
            }
            self.handle(i, Event::Shutdown);
        }
    }
}
