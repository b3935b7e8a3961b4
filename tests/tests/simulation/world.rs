//! Virtual time: engines, a network between them and the store, handlers, and the faults of a plan.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque},
    rc::Rc,
    time::Duration,
};

use anarchon::{
    clock::Mono,
    engine::{
        Action, Call, CallId, CancelReason, Engine, Event, Reply, Report, RunEnd, RunId, Settings, Start,
        Trust,
    },
    policy::CatchUp,
    protocol::{
        Control, ControlAction, InstanceId, JobName, Millis, Nonce, Record, Renewed, Status, Token, Verdict,
        What,
    },
    store::{Answer, Guarantees, Stamped, StoreError},
};
use chrono::DateTime;
use fastrand::Rng;

use crate::{
    compare_and_swap::CompareAndSwap,
    judge::Judge,
    mutation::Mutation,
    plan::{Fault, Kind, Plan, SECOND},
    site::{Place, Remote, Server, Site},
    store::{KEEP, Store},
    token_queue::TokenQueue,
};

/// How late a wake-up may be handled in quiet times.
const LATENESS: u64 = 2_000;
/// How often the quiet-time invariants are judged.
const JUDGED: u64 = SECOND / 4;
/// Faults may leave announcements and leases behind: how long until all must be well.
const SETTLED: u64 = 48 * SECOND;

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

#[derive(Debug)]
struct Handler {
    name: JobName,
    token: Token,
    /// The sending that the trust counts from, in own and true time.
    sent: Mono,
    sent_true: u64,
    lease: Duration,
    ends: u64,
    error: bool,
    blocks: bool,
    ignores: bool,
    kills: bool,
    cancelled: Option<CancelReason>,
    lost: bool,
}

impl Handler {
    fn drop_at(&self) -> Mono {
        self.sent.plus(self.lease.mul_f64(0.85))
    }
}

#[derive(Debug)]
struct Asked {
    call: Call,
    sent: Mono,
    sent_true: u64,
}

#[derive(Debug)]
struct Instance {
    epoch: u64,
    version: usize,
    next_version: usize,
    engine: Option<Engine>,
    place: Place,
    frozen: bool,
    inbox: VecDeque<Ev>,
    wake: u64,
    asked: HashMap<CallId, Asked>,
    first_sent: HashMap<Nonce, (Mono, u64)>,
    won: HashMap<(JobName, Token), (Mono, u64, Duration)>,
    handlers: BTreeMap<RunId, Handler>,
    ready: bool,
    shutting_down: Option<u64>,
    lost_tokens: HashSet<(JobName, Token)>,
    handled: u64,
    /// True time at which the last call left that was answered.
    heard: u64,
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
            judge: Judge::new(plan.kind, &plan.versions),
            instances: Vec::new(),
            quiet: false,
            quiet_since: 0,
            shut: false,
            excuses: Vec::new(),
            clock_moved: 0,
            set_ahead: None,
            asked: HashMap::new(),
            verbose,
            out: Outcome::default(),
            plan,
        };
        for i in 0..world.plan.instances {
            world.instances.push(Instance {
                epoch: 0,
                version: 0,
                next_version: 0,
                engine: None,
                place: Place {
                    base: world.rng.u64(0..1 << 40),
                    ppm: world.rng.i64(-100..=100),
                    ..Place::default()
                },
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
            });
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

    fn start(&mut self, i: usize) {
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

    fn handle(&mut self, i: usize, event: Event) {
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

    // The network.

    fn send(&mut self, i: usize, id: CallId, mut call: Call, deadline: Duration) {
        if self.store.mutation == Some(Mutation::OldestFirst) {
            self.ask_for_the_oldest(i, &mut call);
        }
        let sent = self.mono(i);
        self.check_call(i, &call, sent);
        let kind = kind(&call);
        self.out.calls.push((self.time, i, kind));
        let instance = &mut self.instances[i];
        let asked = Asked { call: call.clone(), sent, sent_true: self.time };
        instance.asked.insert(id, asked);
        let epoch = instance.epoch;
        let until = self.time + u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX / 4);
        self.push(until, Ev::Deadline(i, epoch, id));
        if let Some((_, remote)) = &self.remote {
            return remote.call(i, epoch, id, call);
        }
        let message = Rc::new(Message { instance: i, epoch, id, call });
        let net = self.plan.net;
        if self.quiet {
            let at = self.time + self.rng.u64(50..1_500);
            return self.push(at, Ev::Arrive(message));
        }
        if (self.is_cut_off(i) || self.store_down) && self.rng.bool() {
            // The connection is refused.
            let reply = failed(&message.call, &StoreError::unavailable("refused"));
            let at = self.time + 500;
            return self.push(at, Ev::Reply(i, epoch, id, reply));
        }
        if self.rng.f64() < net.duplicate {
            let at = self.time + self.rng.u64(50..20 * SECOND);
            self.push(at, Ev::Arrive(message.clone()));
        }
        if self.is_cut_off(i) || self.store_down || self.rng.f64() < net.lost_request {
            return;
        }
        let mut delay = self.rng.u64(50..50 + net.latency);
        if self.rng.f64() < net.delayed {
            delay = self.rng.u64(0..40 * SECOND);
        }
        let at = self.time + delay;
        self.push(at, Ev::Arrive(message));
    }

    fn ask_for_the_oldest(&self, i: usize, call: &mut Call) {
        let Call::Claim(claims) = call else { return };
        for claim in claims {
            let job = self.plan.versions[self.instances[i].version].iter().find(|j| j.name == claim.job);
            if let (What::Planned(at), Some(job), Some(record)) =
                (&mut claim.what, job, self.record(&claim.job))
                && let Some(decided) = DateTime::from_timestamp_millis(record.decided.0)
                && let Some(oldest) = job.schedule.next_after(decided)
            {
                *at = Millis(at.0.min(oldest.timestamp_millis()));
            }
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

    fn is_cut_off(&self, i: usize) -> bool {
        self.instances[i].place.cut_off_until > self.time
    }

    fn arrive(&mut self, message: &Message) {
        if self.store_down {
            return;
        }
        // A late double of a beat announces who has left: 30 s more, which the quiet time does not allow for.
        let gone = self.instances[message.instance].epoch != message.epoch;
        if self.quiet && gone && matches!(message.call, Call::Beat(_)) {
            return;
        }
        let chance = if self.quiet { 0.0 } else { self.plan.net.bad_item };
        let (rng, store, judge) = (&mut self.rng, &mut self.store, &mut self.judge);
        let bad = || (chance > 0.0 && rng.f64() < chance).then(|| rng.bool());
        let reply = store.call(&message.call, self.time, judge, bad);
        if self.verbose {
            self.log(|| format!("store: {:?} -> {reply:?}", message.call));
        }
        self.check_store();
        self.check_expiry(&message.call, &reply);
        let net = self.plan.net;
        let i = message.instance;
        let mut delay = self.rng.u64(50..1_500);
        if !self.quiet {
            if self.is_cut_off(i) || self.rng.f64() < net.lost_reply {
                return;
            }
            delay = self.rng.u64(50..50 + net.latency);
            if self.rng.f64() < net.delayed {
                delay = self.rng.u64(0..40 * SECOND);
            }
        }
        let at = self.time + delay;
        self.push(at, Ev::Reply(i, message.epoch, message.id, reply));
    }

    fn check_store(&mut self) {
        let jobs: Vec<JobName> = self.plan.versions[0].iter().map(|j| j.name.clone()).collect();
        for job in &jobs {
            let kept = match &self.remote {
                Some((_, remote)) => remote.kept_runs(job),
                None => self.store.history(job).len(),
            };
            if kept > KEEP {
                self.judge.broke("I15", format!("{job} keeps {kept} runs"));
            }
        }
    }

    /// A store awards nothing that could not be started any more, give or take what the asker may know of its clock: half
    /// of the longest call that told it.
    fn check_expiry(&mut self, call: &Call, reply: &Reply) {
        let (Call::Claim(claims), Reply::Claim(answers)) = (call, reply) else { return };
        for (claim, answer) in claims.iter().zip(answers) {
            let Ok(Stamped { value: Verdict::Awarded(award), now }) = answer else { continue };
            let fresh = award.started == now.millis();
            let Some(&sent) = self.asked.get(&claim.nonce).filter(|sent| **sent > self.clock_moved) else {
                continue;
            };
            let age = Duration::from_micros(self.time - sent);
            if fresh && age > claim.lease / 2 + Duration::from_secs(6) {
                self.judge.broke("I21", format!("awarded {age:?} after it was asked for: {claim:?}"));
            }
        }
    }

    fn reply(&mut self, i: usize, id: CallId, reply: Reply) {
        // The driver hands in one answer per call; whatever is later than its deadline is dropped.
        let Some(asked) = self.instances[i].asked.remove(&id) else { return };
        self.note_leases(i, &asked, &reply);
        if !refused(&reply) {
            self.instances[i].heard = asked.sent_true;
        }
        let received = self.mono(i);
        self.handle(i, Event::Reply { call: id, sent: asked.sent, received, reply });
    }

    fn deadline(&mut self, i: usize, id: CallId) {
        let Some(asked) = self.instances[i].asked.remove(&id) else { return };
        if let Some((_, remote)) = &self.remote {
            remote.given_up(i, id);
        }
        let reply = failed(&asked.call, &StoreError::unknown("no reply"));
        let received = self.mono(i);
        self.handle(i, Event::Reply { call: id, sent: asked.sent, received, reply });
    }

    /// What an instance learns of its leases, noted apart from the engine.
    fn note_leases(&mut self, i: usize, asked: &Asked, reply: &Reply) {
        let instance = &mut self.instances[i];
        match (&asked.call, reply) {
            (Call::Claim(claims), Reply::Claim(answers)) => {
                for (claim, answer) in claims.iter().zip(answers) {
                    if let Ok(stamped) = answer
                        && let Verdict::Awarded(award) = &stamped.value
                    {
                        let (sent, sent_true) = instance.first_sent[&claim.nonce];
                        let key = (claim.job.clone(), award.token);
                        instance.won.insert(key, (sent, sent_true, claim.lease));
                    }
                }
            }
            (Call::Renew(renewals), Reply::Renew(answers)) => {
                for (renewal, answer) in renewals.iter().zip(answers) {
                    let extended = matches!(answer, Ok(s) if matches!(s.value, Renewed::Extended { .. }));
                    if extended {
                        for handler in instance.handlers.values_mut() {
                            if (&handler.name, handler.token) == (&renewal.job, renewal.token)
                                && !handler.lost
                            {
                                handler.sent = handler.sent.max(asked.sent);
                                handler.sent_true = handler.sent_true.max(asked.sent_true);
                            }
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// What an instance may not ask.
    fn check_call(&mut self, i: usize, call: &Call, sent: Mono) {
        let (store_now, skew) = (self.store.now(self.time), self.skew());
        match call {
            Call::Claim(claims) => {
                let mut jobs = HashSet::new();
                for claim in claims {
                    let instance = &mut self.instances[i];
                    if !jobs.insert(&claim.job) {
                        self.judge.broke("claims", format!("i{i} claims {} twice in one call", claim.job));
                    }
                    if instance.handlers.values().any(|h| h.name == claim.job && h.lost) {
                        self.judge.broke("I1", format!("i{i} claims {} beside its own handler", claim.job));
                    }
                    // Only what may have reached the store is asked for again.
                    if instance.shutting_down.is_some() && !instance.first_sent.contains_key(&claim.nonce) {
                        self.judge.broke("shutdown", format!("i{i} claims {claim:?}"));
                    }
                    instance.first_sent.entry(claim.nonce).or_insert((sent, self.time));
                    // A watch tells of a step of the clock when its messages come.
                    let told = if self.plan.kind == Kind::CompareAndSwap { 10 * SECOND } else { 0 };
                    let known_clock = instance.heard > self.clock_moved + told;
                    if known_clock {
                        self.asked.entry(claim.nonce).or_insert(self.time);
                        let record = match &self.remote {
                            Some((_, remote)) => remote.record(&claim.job),
                            None => self.store.record(&claim.job).cloned(),
                        };
                        self.judge.asks(claim, record.as_ref(), store_now, Duration::from_secs(6) + skew);
                    }
                }
            }
            Call::Renew(renewals) => {
                for renewal in renewals {
                    if self.instances[i].lost_tokens.contains(&(renewal.job.clone(), renewal.token)) {
                        self.judge.broke("I10", format!("i{i} renews after it gave up: {renewal:?}"));
                    }
                }
            }
            Call::Beat(_) | Call::Register(_) | Call::Finish(_) | Call::Inspect(_) => {}
        }
    }

    // Handlers.

    fn start_handler(&mut self, i: usize, start: &Start) {
        let job = &self.plan.versions[self.instances[i].version][start.job];
        let name = job.name.clone();
        let award = start.award;
        self.judge.count("started");
        self.out.starts.push((self.time, i, name.to_string(), award, start.catch_up));
        let Some(&(sent, sent_true, lease)) = self.instances[i].won.get(&(name.clone(), award.token)) else {
            return self.judge.broke("I1", format!("i{i} starts what it never won: {start:?}"));
        };
        // After a loss with the clock set back the same token may be given out again.
        self.instances[i].lost_tokens.remove(&(name.clone(), award.token));
        if self.mono(i) > sent.plus(lease / 2) {
            self.judge.broke("I10", format!("i{i} starts an old award: {start:?}"));
        }
        if self.instances[i].handlers.values().any(|h| h.name == name) {
            self.judge.broke("I1", format!("i{i} starts {name} beside its own handler"));
        }
        self.check_overlap(i, &name, sent_true);
        let odds = self.plan.handlers;
        let rng = &mut self.rng;
        let long = if self.quiet { odds.longest.min(3 * SECOND) } else { odds.longest };
        let handler = Handler {
            name,
            token: award.token,
            sent,
            sent_true,
            lease,
            ends: self.time + rng.u64(0..=long),
            error: rng.f64() < odds.error,
            blocks: rng.f64() < odds.blocks,
            ignores: rng.f64() < odds.ignores_cancel,
            kills: !self.quiet && rng.f64() < odds.kills,
            cancelled: None,
            lost: false,
        };
        let epoch = self.instances[i].epoch;
        self.push(handler.ends, Ev::Ends(i, epoch, start.run));
        self.instances[i].handlers.insert(start.run, handler);
        self.check_trust(i, start.run, start.trust);
    }

    /// No other handler of the job may be executing. One on a frozen instance is not, and one that blocks its thread
    /// cannot be stopped when its lease is over.
    fn check_overlap(&mut self, i: usize, name: &JobName, sent_true: u64) {
        for (other, instance) in self.instances.iter().enumerate() {
            // Without an engine there are only handlers that still block after a shutdown.
            if other == i || instance.frozen {
                continue;
            }
            let mono = self.mono(other);
            for handler in instance.handlers.values().filter(|h| h.name == *name) {
                let unstoppable = handler.blocks && mono > handler.drop_at();
                // Either lease may be the one that was ended early.
                let first = handler.sent_true.min(sent_true);
                // The last 15 % of a lease make up for no more.
                let is_out_of_step = self.skew() >= handler.lease.mul_f64(0.14);
                // For so long a client may go by what it knew of the server's clock.
                let is_set = self.plan.kind == Kind::CompareAndSwap
                    && self.set_ahead.is_some_and(|set| set + 30 * SECOND >= first);
                let is_forgotten = self.judge.last_forgotten.get(name).is_some_and(|at| *at >= first);
                let excused =
                    is_out_of_step || is_set || is_forgotten || self.excuses.iter().any(|at| *at >= first);
                if !unstoppable && !excused {
                    let what = format!("i{i} starts {name} while i{other} runs it: {handler:?}");
                    return self.judge.broke("I1", what);
                }
            }
        }
    }

    fn check_trust(&mut self, i: usize, run: RunId, trust: Trust) {
        let Some(handler) = self.instances[i].handlers.get(&run) else { return };
        let (drop_at, lease) = (handler.drop_at(), handler.lease);
        if trust.drop_at > drop_at.plus(Duration::from_micros(2)) || trust.ends_at > handler.sent.plus(lease)
        {
            self.judge.broke("I10", format!("i{i} trusts {trust:?} for {handler:?}"));
            return;
        }
        let epoch = self.instances[i].epoch;
        let at = self.true_time(i, drop_at) + 20 * LATENESS + 1_000;
        self.push(at, Ev::MustBeGone(i, epoch, run, drop_at));
    }

    fn must_be_gone(&mut self, i: usize, epoch: u64, run: RunId, limit: Mono) {
        let instance = &self.instances[i];
        if instance.epoch != epoch || instance.frozen {
            return;
        }
        if let Some(handler) = instance.handlers.get(&run)
            && !handler.blocks
            && handler.drop_at() == limit
        {
            let what = format!("i{i} runs on without trust: {handler:?}");
            self.judge.broke("I10", what);
        }
    }

    fn cancel(&mut self, i: usize, run: RunId, reason: CancelReason) {
        let at = self.time + self.rng.u64(0..3 * SECOND);
        let Some(handler) = self.instances[i].handlers.get_mut(&run) else { return };
        handler.cancelled = Some(reason);
        self.judge.count(match reason {
            CancelReason::LeaseLost => "lease lost",
            CancelReason::Timeout => "timed out",
            CancelReason::Shutdown => "cancelled at shutdown",
            CancelReason::Operator => "cancelled by operator",
            _ => "cancelled otherwise",
        });
        if reason == CancelReason::LeaseLost {
            handler.lost = true;
            let key = (handler.name.clone(), handler.token);
            self.instances[i].lost_tokens.insert(key);
        }
        let instance = &mut self.instances[i];
        let Some(handler) = instance.handlers.get_mut(&run) else { return };
        if !handler.ignores && at < handler.ends {
            handler.ends = at;
            let epoch = instance.epoch;
            self.push(at, Ev::Ends(i, epoch, run));
        }
    }

    fn drop_handler(&mut self, i: usize, run: RunId) {
        if self.store.mutation == Some(Mutation::NoDrop) {
            return;
        }
        let Some(handler) = self.instances[i].handlers.get(&run) else { return };
        if !handler.blocks {
            self.judge.count("dropped");
            self.instances[i].handlers.remove(&run);
            self.handle(i, Event::RunEnded { run, end: RunEnd::Dropped });
        }
    }

    fn natural_end(&mut self, i: usize, run: RunId) {
        let mono = self.mono(i);
        let Some(handler) = self.instances[i].handlers.get(&run) else { return };
        if handler.ends > self.time {
            return;
        }
        let Some(handler) = self.instances[i].handlers.remove(&run) else { return };
        if handler.kills {
            self.judge.count("handler killed its process");
            return self.kill(i);
        }
        let saw_cancel = handler.cancelled.is_some() && !handler.ignores;
        let end = if !handler.blocks && mono > handler.drop_at() {
            // The driver looks at the trust itself before it polls.
            RunEnd::Dropped
        } else {
            RunEnd::Returned { error: handler.error.then(|| "no luck".to_owned()), saw_cancel }
        };
        self.handle(i, Event::RunEnded { run, end });
    }

    // Faults.

    fn kill(&mut self, i: usize) {
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

    fn thaw(&mut self, i: usize, epoch: u64) {
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

    fn begin_shutdown(&mut self, i: usize) {
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

    fn lose_data(&mut self) {
        self.log(|| "the store loses its data".to_owned());
        match &self.remote {
            Some((_, remote)) => remote.lose_data(),
            None => self.store.lose_data(),
        }
        self.judge.lost(None);
        self.excuses.push(self.time);
    }

    fn fail_over(&mut self, time: u64) {
        self.log(|| format!("the store forgets what was written since {:.6}", time as f64 / 1e6));
        if let Some((_, remote)) = &self.remote {
            if !remote.lose_newest(time) {
                return;
            }
            let left: HashMap<JobName, Record> = self.plan.versions[0]
                .iter()
                .filter_map(|job| Some((job.name.clone(), remote.record(&job.name)?)))
                .collect();
            self.judge.failed_over(|job| left.get(job));
        } else {
            self.store.fail_over(time);
            self.judge.failed_over(|job| self.store.record(job));
        }
        self.judge.count("failed over");
        self.excuses.push(self.time);
    }

    fn cut_off(&mut self, i: usize, until: u64) {
        self.instances[i].place.cut_off_until = until;
        if let Some((site, _)) = &self.remote {
            site.place(i, |place| place.cut_off_until = until);
        }
    }

    fn set_server(&mut self, server: Server) {
        let Some((site, remote)) = &self.remote else { return };
        site.set_server(server);
        if server == Server::Down {
            remote.server_died();
        }
    }

    /// The store's clock is set, or where it has none that of an instance.
    fn step_clock(&mut self, by: i64) {
        if self.plan.kind == Kind::TokenQueue {
            let by = by.clamp(-40 * SECOND as i64, 40 * SECOND as i64);
            let i = self.rng.usize(0..self.instances.len());
            self.set_wall(i, self.instances[i].place.wall + by);
            // What one has seen by its clock, another has not.
            self.excuses.push(self.time);
            self.clock_moved = self.time;
            return;
        }
        self.store.offset += by;
        if let Some((site, _)) = &self.remote {
            site.offset.set(site.offset.get() + by);
        }
        self.clock_moved = self.time;
        self.judge.clock_set(by, self.time);
        if by > 0 {
            self.set_ahead = Some(self.time);
            self.excuses.push(self.time);
        }
    }

    fn set_wall(&mut self, i: usize, wall: i64) {
        self.instances[i].place.wall = wall;
        if let Some((site, _)) = &self.remote {
            site.place(i, |place| place.wall = wall);
        }
    }

    fn fault(&mut self, fault: &Fault) {
        self.log(|| format!("fault: {fault:?}"));
        match *fault {
            Fault::Kill(i) => self.kill(i),
            Fault::Freeze(i, long) => {
                if self.instances[i].engine.is_some() && !self.instances[i].frozen {
                    self.instances[i].frozen = true;
                    if let Some((site, _)) = &self.remote {
                        site.tasks.freeze(i);
                    }
                    let event = Ev::Thaw(i, self.instances[i].epoch);
                    let at = (self.time + long).min(self.plan.faulty);
                    self.push(at, event);
                }
            }
            Fault::CutOff(i, long) => self.cut_off(i, self.time + long),
            Fault::Shutdown(i) => self.begin_shutdown(i),
            Fault::StoreDown(long) => {
                self.store_down = true;
                let back = if self.rng.u8(0..3) == 0 { Back::Empty } else { Back::Whole };
                let is_frozen =
                    matches!(back, Back::Whole) && self.plan.kind != Kind::OneMap && self.rng.bool();
                self.set_server(if is_frozen { Server::Frozen } else { Server::Down });
                let at = (self.time + long).min(self.plan.faulty);
                self.push(at, Ev::StoreUp(back));
            }
            Fault::FailOver(long, loses) => {
                self.store_down = true;
                self.set_server(Server::Down);
                let at = (self.time + long).min(self.plan.faulty);
                self.push(at, Ev::StoreUp(Back::AsOf(self.time.saturating_sub(loses))));
            }
            Fault::StoreLosesData => self.lose_data(),
            Fault::ClockStep(by) => self.step_clock(by),
            Fault::Deploy(version, pause, by_kill) => {
                let mut at = self.time;
                for i in 0..self.instances.len() {
                    self.instances[i].next_version = version;
                    let epoch = self.instances[i].epoch;
                    self.push(at, if by_kill { Ev::Fault(Fault::Kill(i)) } else { Ev::Stop(i, epoch) });
                    at += pause;
                    if at >= self.plan.faulty {
                        break;
                    }
                }
            }
            Fault::Trigger(j) => self.control(j, ControlAction::Trigger),
            Fault::Pause(j) => self.control(j, ControlAction::Pause),
            Fault::Resume(j) => self.control(j, ControlAction::Resume),
            Fault::Forget(j) => self.control(j, ControlAction::Forget),
            Fault::Cancel(j) => {
                let name = self.plan.versions[0][j].name.clone();
                if let Some(token) = self.record(&name).map(|r| r.token) {
                    self.control(j, ControlAction::Cancel(token));
                }
            }
        }
    }

    fn control(&mut self, j: usize, action: ControlAction) {
        if self.store_down {
            return;
        }
        let job = self.plan.versions[0][j].name.clone();
        let control = Control { job: job.clone(), action };
        if let Some((_, remote)) = &self.remote {
            let up = |i: &usize| self.instances[*i].engine.is_some();
            let all: Vec<usize> = (0..self.instances.len()).filter(up).collect();
            if !all.is_empty() {
                remote.control(all[self.rng.usize(0..all.len())], control);
            }
            return;
        }
        self.store.control(&control, self.time, &mut self.judge);
        let i = self.rng.usize(0..self.instances.len());
        if self.rng.bool() && self.instances[i].engine.is_some() && !self.instances[i].frozen {
            self.handle(i, Event::Changed(job));
        }
    }

    // Quiet times.

    fn become_quiet(&mut self) {
        self.log(|| "quiet from here".to_owned());
        self.quiet = true;
        self.quiet_since = self.time;
        self.store_down = false;
        if let Some((site, _)) = &self.remote {
            site.quiet.set(true);
        }
        self.set_server(Server::Up);
        if self.plan.kind == Kind::TokenQueue {
            // All clocks are set right.
            self.clock_moved = self.time;
            self.excuses.push(self.time);
        }
        for i in 0..self.instances.len() {
            let most = SECOND as i64 / 5;
            self.set_wall(i, self.instances[i].place.wall.clamp(-most, most));
            self.cut_off(i, 0);
            let epoch = self.instances[i].epoch;
            self.thaw(i, epoch);
            if self.instances[i].engine.is_none() {
                let at = self.time + 1_000;
                self.push(at, Ev::Start(i));
            }
        }
        self.push(self.time + JUDGED, Ev::Judge);
    }

    fn judge_quiet(&mut self) {
        if self.shut {
            return;
        }
        self.push(self.time + JUDGED, Ev::Judge);
        if self.time < self.quiet_since + SETTLED {
            return;
        }
        self.check_store();
        let now = self.store.now(self.time);
        for j in 0..self.plan.versions[0].len() {
            let name = self.plan.versions[0][j].name.clone();
            let record = self.record(&name);
            let all_there = self.instances.iter().all(|i| i.ready && i.engine.is_some());
            if record.is_some() && !all_there || !self.can_run(&name, record.as_ref()) {
                self.judge.not_quiet(&name);
                continue;
            }
            let (ranks, skew) = (self.instances.len() as u64, self.skew());
            self.judge.quiet(&name, record.as_ref(), now, self.time, ranks, skew);
        }
    }

    /// Whether an instance of the schedule in force has room for a run of the job. With all instances up and none of
    /// that schedule, somebody should have put another in force.
    fn can_run(&mut self, name: &JobName, record: Option<&Record>) -> bool {
        let in_force = record.map(|record| record.schedule);
        let mut of_schedule = false;
        let mut room = false;
        for instance in self.instances.iter().filter(|i| i.engine.is_some() && i.shutting_down.is_none()) {
            let jobs = &self.plan.versions[instance.version];
            let same = jobs.iter().any(|j| j.name == *name && in_force.is_none_or(|f| f == j.fingerprint));
            of_schedule |= same;
            let free = self.plan.concurrency.is_none_or(|limit| instance.handlers.len() < limit);
            let stuck = instance.handlers.values().any(|h| h.name == *name && h.lost);
            room |= same && free && !stuck;
        }
        let waits = self.plan.kind == Kind::TokenQueue
            && !record.is_some_and(|record| self.is_abandoned(name, record));
        if !of_schedule && !waits && self.instances.iter().all(|i| i.ready && i.engine.is_some()) {
            self.judge.broke("I7", format!("{name}: the schedule in force is nobody's"));
        }
        room
    }

    /// Whether nobody can have the schedule in force any more, where nothing but its next occurrence tells.
    fn is_abandoned(&self, name: &JobName, record: &Record) -> bool {
        let windows =
            self.plan.versions.iter().flatten().filter(|job| job.name == *name).map(|job| {
                match job.policy.catch_up {
                    CatchUp::Window(window) => window,
                    CatchUp::None => Duration::from_secs(10),
                }
            });
        let window = windows.max().unwrap_or_default();
        record.next.is_none_or(|next| {
            self.store.now(self.time).millis() > next.plus(window + Duration::from_secs(10) + 2 * self.skew())
        })
    }

    fn at_the_end(&mut self) {
        if self.judge.broken.is_some() {
            return;
        }
        for (i, instance) in self.instances.iter().enumerate() {
            if instance.engine.is_some() && instance.handlers.is_empty() {
                let what = format!("i{i} has not stopped: {:?}", instance.engine);
                return self.judge.broke("shutdown", what);
            }
        }
        let records =
            self.plan.versions[0].iter().filter_map(|j| self.record(&j.name).map(|r| (j.name.clone(), r)));
        for (name, record) in records.collect::<Vec<_>>() {
            // One that died long before is followed once its lease is over, by whatever clock: in quiet times that is judged.
            let by_the_last = |(i, instance): (usize, &Instance)| {
                record.holder.as_str() == format!("i{i}-{}", instance.epoch - 1)
            };
            let held = record.status == Status::Running && self.instances.iter().enumerate().any(by_the_last);
            if held
                && self.instances.iter().all(|i| i.engine.is_none())
                && record.until.0 * 1000 > self.store.now(self.time).0
            {
                let what = format!("{name} is held by an instance that has stopped: {record:?}");
                return self.judge.broke("shutdown", what);
            }
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

fn kind(call: &Call) -> &'static str {
    match call {
        Call::Beat(_) => "beat",
        Call::Register(_) => "register",
        Call::Claim(_) => "claim",
        Call::Renew(_) => "renew",
        Call::Finish(_) => "finish",
        Call::Inspect(_) => "inspect",
    }
}

/// Whether no item was answered.
fn refused(reply: &Reply) -> bool {
    match reply {
        Reply::Beat(answer) => answer.is_err(),
        Reply::Register(answers) => answers.iter().all(Result::is_err),
        Reply::Claim(answers) => answers.iter().all(Result::is_err),
        Reply::Renew(answers) => answers.iter().all(Result::is_err),
        Reply::Finish(answers) => answers.iter().all(Result::is_err),
        Reply::Inspect(answers) => answers.iter().all(Result::is_err),
    }
}

fn failed(call: &Call, error: &StoreError) -> Reply {
    fn all<T>(n: usize, error: &StoreError) -> Vec<Answer<T>> {
        (0..n).map(|_| Err(error.clone())).collect()
    }
    match call {
        Call::Beat(_) => Reply::Beat(Err(error.clone())),
        Call::Register(items) => Reply::Register(all(items.len(), error)),
        Call::Claim(items) => Reply::Claim(all(items.len(), error)),
        Call::Renew(items) => Reply::Renew(all(items.len(), error)),
        Call::Finish(items) => Reply::Finish(all(items.len(), error)),
        Call::Inspect(items) => Reply::Inspect(all(items.len(), error)),
    }
}
