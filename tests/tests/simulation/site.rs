//! What the clients of a store share with its server: time, the network between them, and what befalls both.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::Duration,
};

use anarchon::{
    clock::Mono,
    engine::{Call, CallId, EngineJob, Reply},
    protocol::{
        Claim, Control, Controlled, Finish, Finished, JobName, JobSpec, Record, Registered, Renewal, Renewed,
        StoreNow, Verdict,
    },
    store::Guarantees,
};
use fastrand::Rng;
use tokio::sync::Notify;

use crate::{
    judge::{Judge, Op},
    mutation::Mutation,
    plan::{Net, Plan, SECOND},
    tasks::Tasks,
};

/// A store whose clients decide.
pub(crate) trait Remote {
    /// A process begins, with a client that knows nothing.
    fn start(&self, i: usize, jobs: &[EngineJob]) -> Guarantees;
    /// It is gone, and its connections with it.
    fn killed(&self, i: usize);
    /// Carries out a call; the reply goes to [`Site::replies`].
    fn call(&self, i: usize, epoch: u64, id: CallId, call: Call);
    /// Nobody waits for it any more.
    fn given_up(&self, i: usize, id: CallId);
    /// An operator's order through this instance.
    fn control(&self, i: usize, control: Control);
    fn record(&self, job: &JobName) -> Option<Record>;
    fn kept_runs(&self, job: &JobName) -> usize;
    /// The server has died with all of its connections.
    fn server_died(&self);
    fn lose_data(&self);
    /// Undoes the writes since `time`, where the newest ones can be lost; the answer is whether they can.
    fn lose_newest(&self, time: u64) -> bool;
}

/// One item of a call.
pub(crate) trait Item: Clone + 'static {
    type Answer: Clone + 'static;
    fn op<'a>(&'a self, answer: &'a Self::Answer) -> Op<'a>;
}

impl Item for JobSpec {
    type Answer = Registered;
    fn op<'a>(&'a self, answer: &'a Registered) -> Op<'a> {
        Op::Register(self, answer)
    }
}

impl Item for Claim {
    type Answer = Verdict;
    fn op<'a>(&'a self, answer: &'a Verdict) -> Op<'a> {
        Op::Claim(self, answer)
    }
}

impl Item for Renewal {
    type Answer = Renewed;
    fn op<'a>(&'a self, answer: &'a Renewed) -> Op<'a> {
        Op::Renew(self, answer)
    }
}

impl Item for Finish {
    type Answer = Finished;
    fn op<'a>(&'a self, answer: &'a Finished) -> Op<'a> {
        Op::Finish(self, answer)
    }
}

impl Item for Control {
    type Answer = Controlled;
    fn op<'a>(&'a self, answer: &'a Controlled) -> Op<'a> {
        Op::Control(self, answer)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Up,
    /// Takes in what is sent to it, and does nothing.
    Frozen,
    Down,
}

/// The clocks of an instance's machine, and its network.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    pub(crate) base: u64,
    pub(crate) ppm: i64,
    /// Its wall clock minus true time.
    pub(crate) wall: i64,
    pub(crate) cut_off_until: u64,
}

impl Place {
    pub(crate) fn mono(&self, time: u64) -> Mono {
        let drift = time as i128 * i128::from(self.ppm) / 1_000_000;
        Mono((i128::from(self.base) + i128::from(time) + drift) as u64)
    }
}

/// What is to be judged, in the order in which it happened.
type Note = Box<dyn FnOnce(&mut Judge)>;

pub(crate) struct Site {
    pub(crate) tasks: Tasks,
    rng: RefCell<Rng>,
    net: Net,
    pub(crate) mutation: Option<Mutation>,
    epoch: i64,
    /// The server's clock minus true time.
    pub(crate) offset: Cell<i64>,
    pub(crate) quiet: Cell<bool>,
    server: Cell<Server>,
    /// Counts its deaths: what was sent to it before is gone.
    life: Cell<u64>,
    awake: Notify,
    places: RefCell<Vec<Place>>,
    notes: RefCell<Vec<Note>>,
    pub(crate) replies: RefCell<VecDeque<(usize, u64, CallId, Reply)>>,
    pub(crate) hints: RefCell<VecDeque<(usize, JobName)>>,
    log: RefCell<Option<Vec<String>>>,
}

impl Site {
    pub(crate) fn new(plan: &Plan, mutation: Option<Mutation>, verbose: bool) -> Rc<Self> {
        Rc::new(Self {
            tasks: Tasks::default(),
            rng: RefCell::new(Rng::with_seed(plan.seed ^ 0x517e)),
            net: plan.net,
            mutation,
            epoch: plan.epoch,
            offset: Cell::new(0),
            quiet: Cell::new(false),
            server: Cell::new(Server::Up),
            life: Cell::new(0),
            awake: Notify::new(),
            places: RefCell::new(vec![Place::default(); plan.instances]),
            notes: RefCell::default(),
            replies: RefCell::default(),
            hints: RefCell::default(),
            log: RefCell::new(verbose.then(Vec::new)),
        })
    }

    pub(crate) fn time(&self) -> u64 {
        self.tasks.time()
    }

    pub(crate) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(crate) fn random<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.borrow_mut())
    }

    pub(crate) fn log(&self, text: impl FnOnce() -> String) {
        if let Some(log) = &mut *self.log.borrow_mut() {
            log.push(text());
        }
    }

    pub(crate) fn logged(&self) -> Vec<String> {
        self.log.borrow_mut().as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn note(&self, note: impl FnOnce(&mut Judge) + 'static) {
        self.notes.borrow_mut().push(Box::new(note));
    }

    pub(crate) fn noted(&self) -> Vec<Note> {
        std::mem::take(&mut self.notes.borrow_mut())
    }

    // Clocks.

    pub(crate) fn place(&self, i: usize, change: impl FnOnce(&mut Place)) {
        change(&mut self.places.borrow_mut()[i]);
    }

    pub(crate) fn mono(&self, i: usize) -> Mono {
        self.places.borrow()[i].mono(self.time())
    }

    /// The clock of an instance's machine.
    pub(crate) fn wall(&self, i: usize) -> StoreNow {
        StoreNow(self.time() as i64 + self.epoch + self.places.borrow()[i].wall)
    }

    /// The largest difference between two wall clocks.
    pub(crate) fn skew(&self) -> Duration {
        let places = self.places.borrow();
        let walls = places.iter().map(|place| place.wall);
        let (least, most) = (walls.clone().min().unwrap_or(0), walls.max().unwrap_or(0));
        Duration::from_micros(most.max(0).abs_diff(least.min(0)))
    }

    pub(crate) fn server_now(&self) -> StoreNow {
        StoreNow(self.time() as i64 + self.epoch + self.offset.get())
    }

    // The server.

    pub(crate) fn server(&self) -> Server {
        self.server.get()
    }

    pub(crate) fn life(&self) -> u64 {
        self.life.get()
    }

    pub(crate) fn set_server(&self, server: Server) {
        if server == Server::Down {
            self.life.set(self.life.get() + 1);
        }
        self.server.set(server);
        self.awake.notify_waiters();
    }

    /// Waits until the server looks at what has come; false if it has died since it was sent in `life`.
    pub(crate) async fn is_taken_in(&self, life: u64) -> bool {
        while self.life() == life && self.server() == Server::Frozen {
            self.awake.notified().await;
        }
        self.life() == life && self.server() == Server::Up
    }

    // The network.

    pub(crate) fn is_cut_off(&self, i: usize) -> bool {
        self.places.borrow()[i].cut_off_until > self.time()
    }

    fn happens(&self, chance: f64) -> bool {
        !self.quiet.get() && chance > 0.0 && self.random(Rng::f64) < chance
    }

    pub(crate) fn loses_request(&self) -> bool {
        self.happens(self.net.lost_request)
    }

    pub(crate) fn loses_reply(&self) -> bool {
        self.happens(self.net.lost_reply)
    }

    pub(crate) fn doubles(&self) -> bool {
        self.happens(self.net.duplicate)
    }

    /// The message of a watch that does not come.
    pub(crate) fn loses_message(&self) -> bool {
        self.happens(self.net.lost_reply / 20.0)
    }

    /// When what is sent now is there, between an instance and the server; `None` if never.
    pub(crate) fn arrival(&self, i: usize) -> Option<u64> {
        let now = self.time();
        if self.quiet.get() {
            return Some(now + self.random(|rng| rng.u64(50..1_500)));
        }
        let latency = self.random(|rng| rng.u64(50..50 + self.net.latency));
        if self.is_cut_off(i) {
            // It is sent again by the kernel, as long as there is a connection.
            let back = self.places.borrow()[i].cut_off_until;
            return self.random(Rng::bool).then(|| back + self.random(|rng| rng.u64(0..SECOND)));
        }
        if self.happens(self.net.delayed) {
            return Some(now + self.random(|rng| rng.u64(0..40 * SECOND)));
        }
        Some(now + latency)
    }

    /// When a message of a watch is there: seconds late at times.
    pub(crate) fn heard_at(&self, i: usize) -> u64 {
        let now = self.time();
        if self.quiet.get() {
            return now + self.random(|rng| rng.u64(50..1_500));
        }
        let back = self.places.borrow()[i].cut_off_until;
        let late = if self.happens(self.net.delayed) { 8 * SECOND } else { 50 + self.net.latency };
        now.max(back) + self.random(|rng| rng.u64(50..=late))
    }

    pub(crate) async fn sleep(&self, micros: u64) {
        self.tasks.sleep_until(self.time() + micros).await;
    }
}
