//! The broker: queues of tokens, and connections that give back what they have when they end.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    fmt,
    rc::Rc,
};

use anarchon::store::rabbitmq::body::Body;
use tokio::sync::mpsc;

use crate::{
    mutation::Mutation,
    plan::SECOND,
    site::{Server, Site},
};

/// One connection. Each side sees for itself that it has ended.
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) i: usize,
    /// Seconds, in microseconds.
    pub(crate) heartbeat: u64,
    /// Whether the client can use it.
    pub(crate) is_open: Cell<bool>,
    /// Whether the broker has it.
    is_known: Cell<bool>,
    /// When the newest is there, on the way to the broker and on the way back: nothing overtakes.
    up: Cell<u64>,
    down: Cell<u64>,
}

impl Connection {
    pub(crate) fn new(number: u64, i: usize, heartbeat: u64) -> Rc<Self> {
        Rc::new(Self {
            number,
            i,
            heartbeat,
            is_open: Cell::new(true),
            is_known: Cell::new(false),
            up: Cell::new(0),
            down: Cell::new(0),
        })
    }

    /// When what the client sends now is at the broker; `None` if never.
    pub(crate) fn reaches(&self, site: &Site) -> Option<u64> {
        self.there(site, &self.up)
    }

    fn returns(&self, site: &Site) -> Option<u64> {
        self.there(site, &self.down)
    }

    fn there(&self, site: &Site, newest: &Cell<u64>) -> Option<u64> {
        let Some(at) = site.arrival(self.i) else {
            // What does not come is the end of a connection.
            self.is_open.set(false);
            return None;
        };
        newest.set(at.max(newest.get()));
        Some(newest.get())
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {:x} of i{}", self.number, self.i)
    }
}

/// The token of a job, and for which channel it is named how.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) tag: u64,
    pub(crate) body: Body,
}

#[derive(Debug)]
struct Unacked {
    connection: u64,
    channel: u64,
    tag: u64,
    body: Body,
}

#[derive(Debug)]
struct Consumer {
    connection: u64,
    channel: u64,
    number: u64,
    to: mpsc::UnboundedSender<Delivery>,
}

#[derive(Debug, Default)]
struct Queue {
    ready: VecDeque<Body>,
    unacked: Vec<Unacked>,
    consumers: Vec<Consumer>,
    /// The connection that alone may use it, and with which it ends.
    owner: Option<u64>,
}

/// Whether there is such a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotFound;

#[derive(Default)]
struct State {
    queues: BTreeMap<String, Queue>,
    connections: BTreeMap<u64, Rc<Connection>>,
    tags: u64,
}

pub(crate) struct Broker {
    site: Rc<Site>,
    state: RefCell<State>,
}

impl Broker {
    pub(crate) fn new(site: &Rc<Site>) -> Rc<Self> {
        Rc::new(Self { site: Rc::clone(site), state: RefCell::default() })
    }

    fn log(&self, text: impl FnOnce() -> String) {
        self.site.log(|| format!("broker: {}", text()));
    }

    // Connections.

    pub(crate) fn accept(self: &Rc<Self>, connection: &Rc<Connection>) {
        self.log(|| format!("{connection} is accepted"));
        connection.is_known.set(true);
        self.state.borrow_mut().connections.insert(connection.number, Rc::clone(connection));
        self.site.tasks.spawn(None, Rc::clone(self).watch(Rc::clone(connection)));
    }

    /// Ends a connection of which nothing is heard for two to three heartbeats.
    async fn watch(self: Rc<Self>, connection: Rc<Connection>) {
        let heartbeat = connection.heartbeat;
        self.site.sleep(self.site.random(|rng| rng.u64(0..heartbeat))).await;
        let mut missed = 0;
        while connection.is_known.get() {
            let is_silent = self.site.tasks.is_frozen(connection.i)
                || self.site.is_cut_off(connection.i)
                || !connection.is_open.get();
            missed = if is_silent && self.site.server() == Server::Up { missed + 1 } else { 0 };
            if missed >= 3 {
                connection.is_open.set(false);
                self.ended(&connection).await;
                return;
            }
            self.site.sleep(heartbeat).await;
        }
    }

    /// The broker sees that a connection has ended, and gives back what it has.
    pub(crate) async fn ended(&self, connection: &Connection) {
        if self.site.is(Mutation::TokenComesBackLate) {
            self.site.sleep(100 * SECOND).await;
        }
        if !connection.is_known.replace(false) {
            return;
        }
        self.log(|| format!("{connection} has ended"));
        let number = connection.number;
        let mut state = self.state.borrow_mut();
        state.connections.remove(&number);
        state.queues.retain(|_, queue| queue.owner != Some(number));
        for queue in state.queues.values_mut() {
            queue.consumers.retain(|consumer| consumer.connection != number);
            queue.give_back(|unacked| unacked.connection == number);
        }
        drop(state);
        self.deliver();
    }

    /// A client closes its side, or its process is gone: the broker hears of it when that can reach it.
    pub(crate) fn closed(self: &Rc<Self>, connection: &Rc<Connection>) {
        connection.is_open.set(false);
        let (broker, connection, life) = (Rc::clone(self), Rc::clone(connection), self.site.life());
        let Some(at) = connection.reaches(&self.site).filter(|_| !self.site.is_cut_off(connection.i)) else {
            return;
        };
        self.site.tasks.spawn(None, async move {
            broker.site.tasks.sleep_until(at).await;
            if broker.site.is_taken_in(life).await {
                broker.ended(&connection).await;
            }
        });
    }

    /// A request that has come is done, if its connection is still there, and its answer is on its way.
    pub(crate) async fn serve<T>(&self, connection: &Connection, work: impl FnOnce(&Self) -> T) -> Option<T> {
        if !connection.is_known.get() {
            return None;
        }
        let answer = work(self);
        self.deliver();
        let at = connection.returns(&self.site)?;
        self.site.tasks.sleep_until(at).await;
        Some(answer)
    }

    /// All connections end with the broker; what was committed is there again.
    pub(crate) fn restart(&self) {
        let mut state = self.state.borrow_mut();
        for connection in std::mem::take(&mut state.connections).into_values() {
            connection.is_known.set(false);
            connection.is_open.set(false);
        }
        state.queues.retain(|_, queue| queue.owner.is_none());
        for queue in state.queues.values_mut() {
            queue.consumers.clear();
            queue.give_back(|_| true);
        }
    }

    pub(crate) fn lose_data(&self) {
        self.restart();
        self.state.borrow_mut().queues.clear();
    }

    // What a client asks for.

    pub(crate) fn has(&self, queue: &str) -> bool {
        self.state.borrow().queues.contains_key(queue)
    }

    pub(crate) fn consumers(&self, queue: &str) -> Result<usize, NotFound> {
        self.state.borrow().queues.get(queue).map(|queue| queue.consumers.len()).ok_or(NotFound)
    }

    /// Makes a queue; as a lock, it is the connection's. False where another connection has it.
    pub(crate) fn declare(&self, queue: &str, owner: Option<u64>) -> bool {
        let mut state = self.state.borrow_mut();
        let found =
            state.queues.entry(queue.to_owned()).or_insert_with(|| Queue { owner, ..Queue::default() });
        found.owner == owner
    }

    pub(crate) fn delete(&self, queue: &str) {
        self.log(|| format!("delete {queue}"));
        self.state.borrow_mut().queues.remove(queue);
    }

    pub(crate) fn get(
        &self,
        queue: &str,
        (connection, channel): (u64, u64),
    ) -> Result<Option<Delivery>, NotFound> {
        let mut state = self.state.borrow_mut();
        state.tags += 1;
        let tag = state.tags;
        let queue = state.queues.get_mut(queue).ok_or(NotFound)?;
        let Some(body) = queue.ready.pop_front() else { return Ok(None) };
        self.log(|| format!("get {tag} by {connection:x}/{channel:x}"));
        queue.unacked.push(Unacked { connection, channel, tag, body: body.clone() });
        Ok(Some(Delivery { tag, body }))
    }

    pub(crate) fn give_back(&self, queue: &str, tag: u64) {
        self.log(|| format!("give back {tag} of {queue}"));
        if let Some(queue) = self.state.borrow_mut().queues.get_mut(queue) {
            queue.give_back(|unacked| unacked.tag == tag);
        }
    }

    /// The channel ends, and what it has goes back.
    pub(crate) fn close(&self, channel: u64) {
        self.log(|| format!("close {channel:x}"));
        for queue in self.state.borrow_mut().queues.values_mut() {
            queue.consumers.retain(|consumer| consumer.channel != channel);
            queue.give_back(|unacked| unacked.channel == channel);
        }
    }

    pub(crate) fn consume(
        &self,
        queue: &str,
        (connection, channel): (u64, u64),
        number: u64,
        to: mpsc::UnboundedSender<Delivery>,
    ) -> Result<(), NotFound> {
        self.log(|| format!("consume {queue} by {connection:x}/{channel:x}"));
        let mut state = self.state.borrow_mut();
        let queue = state.queues.get_mut(queue).ok_or(NotFound)?;
        queue.consumers.push(Consumer { connection, channel, number, to });
        Ok(())
    }

    pub(crate) fn cancel(&self, consumer: u64) {
        for queue in self.state.borrow_mut().queues.values_mut() {
            queue.consumers.retain(|known| known.number != consumer);
        }
    }

    /// A new token in the place of the old one, in one transaction; what there was, if the old one was still there.
    pub(crate) fn replace(
        &self,
        queue: &str,
        tag: Option<u64>,
        body: &Body,
    ) -> Result<Option<Body>, NotFound> {
        self.log(|| format!("replace {tag:?} of {queue} by {:?}", body.record));
        let mut state = self.state.borrow_mut();
        let queue = state.queues.get_mut(queue).ok_or(NotFound)?;
        let before = match tag {
            None => None,
            Some(tag) => {
                let place = queue.unacked.iter().position(|unacked| unacked.tag == tag).ok_or(NotFound)?;
                if self.site.is(Mutation::TwoTokens) && self.site.random(|rng| rng.u8(0..8)) == 0 {
                    let copy = queue.unacked[place].body.clone();
                    queue.ready.push_back(copy);
                }
                Some(queue.unacked.remove(place).body)
            }
        };
        queue.ready.push_back(body.clone());
        Ok(before)
    }

    /// Hands out what waits to those who consume.
    fn deliver(&self) {
        let mut sent = Vec::new();
        let mut state = self.state.borrow_mut();
        let State { queues, connections, tags } = &mut *state;
        for queue in queues.values_mut() {
            while let (Some(consumer), Some(body)) = (queue.consumers.first(), queue.ready.front().cloned()) {
                queue.ready.pop_front();
                *tags += 1;
                let (connection, channel, tag) = (consumer.connection, consumer.channel, *tags);
                if let Some(connection) = connections.get(&connection) {
                    sent.push((
                        Rc::clone(connection),
                        consumer.to.clone(),
                        Delivery { tag, body: body.clone() },
                    ));
                }
                queue.unacked.push(Unacked { connection, channel, tag, body });
            }
        }
        drop(state);
        for (connection, to, delivery) in sent {
            let Some(at) = connection.returns(&self.site) else { continue };
            let tasks = self.site.tasks.clone();
            self.site.tasks.spawn(None, async move {
                tasks.sleep_until(at).await;
                // Whoever consumed may be gone.
                let _ = to.send(delivery);
            });
        }
    }

    /// The record as it was committed last, whoever has it.
    pub(crate) fn body(&self, queue: &str) -> Option<Body> {
        let state = self.state.borrow();
        let queue = state.queues.get(queue)?;
        queue.ready.back().or(queue.unacked.last().map(|unacked| &unacked.body)).cloned()
    }
}

impl Queue {
    fn give_back(&mut self, is_given: impl Fn(&Unacked) -> bool) {
        let (given, kept) = std::mem::take(&mut self.unacked).into_iter().partition(is_given);
        self.unacked = kept;
        let given: Vec<Unacked> = given;
        self.ready.extend(given.into_iter().map(|unacked| unacked.body));
    }
}
