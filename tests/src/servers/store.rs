//! A server as the store of a scenario.

use std::{cell::Cell, sync::Arc};

use anarchon::{NatsBackend, PostgresBackend, RabbitMqBackend, SqliteBackend, store::Store};

use super::{Server, redis::Kind};
use crate::{
    proxy::Proxy,
    site::{Outage, TestStore},
};

/// The backend of a URL, for looking into a store.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn backend(url: &str) -> Arc<dyn Store> {
    let valid = "a valid URL";
    match url.split(['+', ':']).next() {
        Some("amqp") => Arc::new(RabbitMqBackend::connect(url).expect(valid)),
        Some("nats") => Arc::new(NatsBackend::connect(url).expect(valid)),
        Some("postgres") => Arc::new(PostgresBackend::connect(url).expect(valid)),
        Some("redis") => Kind::Redis.backend(url),
        Some("sqlite") => Arc::new(SqliteBackend::connect(url).expect(valid)),
        Some("valkey") => Kind::Valkey.backend(url),
        _ => panic!("{url} is of no kind that scenarios play on"),
    }
}

/// A server that is frozen where it hangs, and killed where it vanishes; then it is started again, with its data if it is not to
/// forget them.
#[derive(Debug)]
pub struct ServerStore {
    server: Server,
    /// The URL of a port.
    url: fn(u16) -> String,
    forgets: bool,
    outage: Option<Outage>,
}

impl ServerStore {
    /// A server with the URL that it has by its port.
    #[must_use]
    pub fn new(server: Server, url: fn(u16) -> String) -> Self {
        Self { server, url, forgets: false, outage: None }
    }

    /// One that has lost its data when it comes back.
    #[must_use]
    pub fn forgetful(self) -> Self {
        Self { forgets: true, ..self }
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.port()
    }
}

impl TestStore for ServerStore {
    fn url(&self) -> String {
        (self.url)(self.port())
    }

    fn stop(&mut self, how: Outage) {
        self.outage = Some(how);
        self.server.fail(how);
    }

    fn resume(&mut self) {
        match self.outage.take() {
            Some(Outage::Vanishes) if self.forgets => self.server.restart_empty(),
            Some(how) => self.server.recover(how),
            None => {}
        }
    }
}

/// A server that the first processes reach through a proxy, and others directly.
#[derive(Debug)]
pub struct Proxied {
    store: ServerStore,
    proxy: Arc<Proxy>,
    /// How many more.
    through: Cell<usize>,
}

impl Proxied {
    /// So many processes through a new proxy, and that proxy.
    #[must_use]
    pub fn new(store: ServerStore, processes: usize) -> (Self, Arc<Proxy>) {
        let proxy = Arc::new(Proxy::to(store.port()));
        (Self { store, proxy: Arc::clone(&proxy), through: Cell::new(processes) }, proxy)
    }
}

impl TestStore for Proxied {
    fn url(&self) -> String {
        match self.through.get() {
            0 => self.store.url(),
            more => {
                self.through.set(more - 1);
                (self.store.url)(self.proxy.port())
            }
        }
    }

    fn stop(&mut self, how: Outage) {
        self.store.stop(how);
    }

    fn resume(&mut self) {
        self.store.resume();
    }
}

/// A server that processes reach in turn through each of some proxies, and directly.
#[derive(Debug)]
pub struct Proxies {
    store: ServerStore,
    proxies: Vec<Arc<Proxy>>,
    started: Cell<usize>,
}

impl Proxies {
    /// So many proxies: the process that is started as number `n`, from 0, is on way `n % (proxies + 1)`, the last being the direct one.
    #[must_use]
    pub fn new(store: ServerStore, proxies: usize) -> Self {
        let proxies = (0..proxies).map(|_| Arc::new(Proxy::to(store.port()))).collect();
        Self { store, proxies, started: Cell::new(0) }
    }

    /// Them.
    #[must_use]
    pub fn proxies(&self) -> &[Arc<Proxy>] {
        &self.proxies
    }
}

impl TestStore for Proxies {
    fn url(&self) -> String {
        let number = self.started.replace(self.started.get() + 1);
        match self.proxies.get(number % (self.proxies.len() + 1)) {
            Some(proxy) => (self.store.url)(proxy.port()),
            None => self.store.url(),
        }
    }

    fn stop(&mut self, how: Outage) {
        self.store.stop(how);
    }

    fn resume(&mut self) {
        self.store.resume();
    }
}
