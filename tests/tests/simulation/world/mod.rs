//! Virtual time: engines, a network between them and the store, handlers, and the faults of a plan.

mod faults;
mod handlers;
mod instances;
mod network;
mod quiet;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    rc::Rc,
    time::Duration,
};

use anarchon::{
    clock::Mono,
    engine::{Call, CallId, Event, Reply, Report, RunId},
    protocol::{JobName, Nonce, Record},
};
use fastrand::Rng;

use self::instances::Instance;
use crate::{
    compare_and_swap::CompareAndSwap,
    judge::Judge,
    mutation::Mutation,
    plan::{Fault, Kind, Plan, SECOND},
    site::{Remote, Server, Site},
    store::Store,
    token_queue::TokenQueue,
};

#[derive(Debug)]
enum Ev {
    Start(usize),
    Wake(usize, u64, u64),
    /// A request reaches the store.
    Arrive(Rc<Message>),
    Reply(usize, u64, CallId, Reply),
    Deadline(usize, u64, CallId),
    Ends(usize, u64, RunId),
    MustBeGone(usize, u64, RunId, Mono),
    Thaw(usize, u64),
    Fault(Fault),
    StoreUp(Back),
    Quiet,
    Judge,
    ShutAll,
    Stop(usize, u64),
}

/// How a store comes back.
#[derive(Debug)]
enum Back {
    Whole,
    Empty,
    /// Without what was written since then.
    AsOf(u64),
}

#[derive(Debug)]
struct Message {
    instance: usize,
    epoch: u64,
    id: CallId,
    call: Call,
}

/// The facts a test may look at.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) broken: Option<String>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) history: Vec<String>,
    pub(crate) reports: Vec<(u64, usize, Report)>,
    pub(crate) calls: Vec<(u64, usize, &'static str)>,
    pub(crate) starts: Vec<(u64, usize, String, anarchon::protocol::Award, bool)>,
}

pub(crate) struct World {
    plan: Plan,
    time: u64,
    seq: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: HashMap<u64, Ev>,
    rng: Rng,
    store: Store,
    /// Where the clients decide, and what they share; the store above is not used then but for its clock.
    remote: Option<(Rc<Site>, Box<dyn Remote>)>,
    store_down: bool,
    judge: Judge,
    instances: Vec<Instance>,
    quiet: bool,
    quiet_since: u64,
    shut: bool,
    /// True times of what may let two handlers overlap: steps ahead of the store's clock, losses of data.
    excuses: Vec<u64>,
    clock_moved: u64,
    /// When the store's clock was set ahead last.
    set_ahead: Option<u64>,
    /// Until when an announcement may count that is stamped by a clock which was set back since.
    announced_until: u64,
    /// When each claim was first sent by an instance that knew the store's clock.
    asked: HashMap<Nonce, u64>,
    verbose: bool,
    out: Outcome,
}

impl World {
    pub(crate) fn new(plan: Plan, mutation: Option<Mutation>, verbose: bool) -> Self {
        let rng = Rng::with_seed(plan.seed ^ 0x5eed);
        let has_replica = plan.faults.iter().any(|(_, fault)| matches!(fault, Fault::FailOver(..)));
        let mut world = Self {
            time: 0,
            seq: 0,
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            rng,
            store: Store::new(plan.epoch, mutation, has_replica),
            remote: remote(&plan, mutation, verbose),
            store_down: false,
            judge: Judge::new(&plan),
            instances: Vec::new(),
            quiet: false,
            quiet_since: 0,
            shut: false,
            excuses: Vec::new(),
            clock_moved: 0,
            set_ahead: None,
            announced_until: 0,
            asked: HashMap::new(),
            verbose,
            out: Outcome::default(),
            plan,
        };
        for i in 0..world.plan.instances {
            let instance = Instance::new(&mut world.rng);
            world.instances.push(instance);
            let at = world.rng.u64(0..3 * SECOND);
            world.push(at, Ev::Start(i));
        }
        for (at, fault) in world.plan.faults.clone() {
            world.push(at, Ev::Fault(fault));
        }
        world.push(world.plan.faulty, Ev::Quiet);
        world.push(world.plan.faulty + world.plan.quiet, Ev::ShutAll);
        world
    }

    pub(crate) fn run(mut self) -> Outcome {
        let end = self.plan.faulty + self.plan.quiet + 60 * SECOND;
        loop {
            let tasks = self.remote.as_ref().and_then(|(site, _)| site.tasks.next());
            let event = self.queue.peek().map(|Reverse((at, _))| *at);
            let Some(at) = [tasks, event].into_iter().flatten().min().filter(|at| *at <= end) else { break };
            if self.judge.broken.is_some() {
                break;
            }
            self.time = at.max(self.time);
            if tasks.is_some_and(|tasks| event.is_none_or(|event| tasks <= event)) {
                self.run_clients();
            } else if let Some(Reverse((_, seq))) = self.queue.pop()
                && let Some(event) = self.events.remove(&seq)
            {
                self.run_clients();
                self.step(event);
            }
        }
        self.at_the_end();
        self.out.broken = self.judge.broken.take();
        self.out.counts = std::mem::take(&mut self.judge.counts);
        self.out
    }

    /// Lets the clients of a store do what they can do now, and takes in what comes of it.
    fn run_clients(&mut self) {
        let Some((site, _)) = &self.remote else { return };
        let site = Rc::clone(site);
        site.tasks.run(self.time);
        for note in site.noted() {
            note(&mut self.judge);
        }
        for text in site.logged() {
            self.log(|| text);
        }
        loop {
            let reply = site.replies.borrow_mut().pop_front();
            let Some((i, epoch, id, reply)) = reply else { break };
            self.step(Ev::Reply(i, epoch, id, reply));
        }
        loop {
            let hint = site.hints.borrow_mut().pop_front();
            let Some((i, job)) = hint else { break };
            if self.instances[i].engine.is_some() && !self.instances[i].frozen {
                self.handle(i, Event::Changed(job));
            }
        }
    }

    fn push(&mut self, at: u64, event: Ev) {
        self.seq += 1;
        self.queue.push(Reverse((at, self.seq)));
        self.events.insert(self.seq, event);
    }

    fn log(&mut self, text: impl FnOnce() -> String) {
        if self.verbose {
            let seconds = self.time as f64 / 1e6;
            let text = text();
            self.out.history.push(format!("{seconds:10.6} {text}"));
        }
    }

    fn mono(&self, i: usize) -> Mono {
        self.instances[i].place.mono(self.time)
    }

    /// True time at which the clock of an instance shows this.
    fn true_time(&self, i: usize, mono: Mono) -> u64 {
        let place = &self.instances[i].place;
        let elapsed = i128::from(mono.0) - i128::from(place.base);
        let time = elapsed * 1_000_000 / (1_000_000 + i128::from(place.ppm));
        u64::try_from(time + 2).unwrap_or(0).min(u64::MAX / 2)
    }

    fn step(&mut self, event: Ev) {
        match &event {
            Ev::Wake(i, epoch, _)
            | Ev::Reply(i, epoch, _, _)
            | Ev::Deadline(i, epoch, _)
            | Ev::Ends(i, epoch, _)
            | Ev::Stop(i, epoch) => {
                let instance = &mut self.instances[*i];
                if instance.epoch != *epoch || instance.engine.is_none() {
                    return;
                }
                if instance.frozen {
                    instance.inbox.push_back(event);
                    return;
                }
            }
            _ => {}
        }
        match event {
            Ev::Start(i) => self.start(i),
            Ev::Wake(i, _, wake) => {
                if self.instances[i].wake == wake {
                    self.handle(i, Event::Tick);
                }
            }
            Ev::Arrive(message) => self.arrive(&message),
            Ev::Reply(i, _, id, reply) => self.reply(i, id, reply),
            Ev::Deadline(i, _, id) => self.deadline(i, id),
            Ev::Ends(i, _, run) => self.natural_end(i, run),
            Ev::MustBeGone(i, epoch, run, limit) => self.must_be_gone(i, epoch, run, limit),
            Ev::Thaw(i, epoch) => self.thaw(i, epoch),
            Ev::Fault(fault) => self.fault(&fault),
            Ev::StoreUp(back) => {
                self.store_down = false;
                self.set_server(Server::Up);
                match back {
                    Back::Whole => {}
                    Back::Empty => self.lose_data(),
                    Back::AsOf(time) => self.fail_over(time),
                }
            }
            Ev::Quiet => self.become_quiet(),
            Ev::Judge => self.judge_quiet(),
            Ev::ShutAll => {
                self.shut = true;
                for i in 0..self.instances.len() {
                    self.begin_shutdown(i);
                }
            }
            Ev::Stop(i, _) => self.begin_shutdown(i),
        }
    }

    /// The record of a job as the store has it.
    fn record(&self, job: &JobName) -> Option<Record> {
        match &self.remote {
            Some((_, remote)) => remote.record(job),
            None => self.store.record(job).cloned(),
        }
    }

    /// How far the clocks that decide differ.
    fn skew(&self) -> Duration {
        match (&self.remote, self.plan.kind) {
            (Some((site, _)), Kind::TokenQueue) => site.skew(),
            (_, Kind::OneMap | Kind::CompareAndSwap | Kind::TokenQueue) => Duration::ZERO,
        }
    }
}

fn remote(plan: &Plan, mutation: Option<Mutation>, verbose: bool) -> Option<(Rc<Site>, Box<dyn Remote>)> {
    let site = Site::new(plan, mutation, verbose);
    let remote: Box<dyn Remote> = match plan.kind {
        Kind::OneMap => return None,
        Kind::CompareAndSwap => {
            let can_lose = plan.faults.iter().any(|(_, fault)| matches!(fault, Fault::FailOver(..)));
            Box::new(CompareAndSwap::new(&site, can_lose))
        }
        Kind::TokenQueue => Box::new(TokenQueue::new(&site)),
    };
    Some((site, remote))
}
