//! Compare-and-swap, like NATS: each instance decides on what its watch has brought, and the server takes a write only on
//! top of the revision that it was decided on. Messages of the watch come late or get lost, writes lie in the socket of a
//! frozen server, and a bucket that was lost begins its revisions anew.
//!
//! The product's own code decides: `decision.rs` (what an item comes to, and which of our writes was stored), `cache.rs`,
//! `clock.rs`, `leases.rs`, `members.rs`, `names.rs` and `value.rs` of `store::nats`, on values in their bytes. Restated here
//! is the order of the I/O around it, in files that are named like the product's: `rounds.rs`, `wire.rs`, `watch.rs`,
//! `link.rs`. What changes there has to change here too. Left out: keys that somebody purged, clusters, permissions.

mod bucket;
mod client;
mod link;
mod rounds;
mod watch;
mod wire;

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use anarchon::{
    engine::{Call, CallId, EngineJob, Reply},
    protocol::{Control, JobName, Record},
    store::{
        ClockSource, Guarantees,
        nats::{decision, names},
    },
};

use self::{bucket::Host, client::Client};
use crate::site::{Remote, Site};

pub(crate) struct CompareAndSwap {
    site: Rc<Site>,
    host: Rc<Host>,
    clients: RefCell<HashMap<usize, Rc<Client>>>,
    calls: RefCell<HashMap<(usize, CallId), u64>>,
    can_lose: bool,
}

impl CompareAndSwap {
    /// `can_lose`: whether the newest writes are not on disk when the server dies.
    pub(crate) fn new(site: &Rc<Site>, can_lose: bool) -> Self {
        Self {
            site: Rc::clone(site),
            host: Host::new(Rc::clone(site)),
            clients: RefCell::default(),
            calls: RefCell::default(),
            can_lose,
        }
    }
}

impl Remote for CompareAndSwap {
    fn start(&self, i: usize, _jobs: &[EngineJob]) -> Guarantees {
        self.clients.borrow_mut().insert(i, Client::new(&self.site, &self.host, i));
        let mut guarantees = Guarantees::new("compare and swap");
        guarantees.clock = ClockSource::Estimated;
        guarantees.changes = true;
        guarantees
    }

    fn killed(&self, i: usize) {
        if let Some(client) = self.clients.borrow_mut().remove(&i) {
            client.cut();
        }
    }

    fn call(&self, i: usize, epoch: u64, id: CallId, call: Call) {
        let Some(client) = self.clients.borrow().get(&i).cloned() else { return };
        let site = Rc::clone(&self.site);
        let task = self.site.tasks.spawn(Some(i), async move {
            let reply = match call {
                Call::Beat(announcement) => Reply::Beat(client.beat(announcement).await),
                Call::Register(specs) => Reply::Register(client.batch(specs, decision::REGISTER).await),
                Call::Claim(claims) => Reply::Claim(client.batch(claims, decision::CLAIM).await),
                Call::Renew(renewals) => Reply::Renew(client.batch(renewals, decision::RENEW).await),
                Call::Finish(finishes) => Reply::Finish(client.batch(finishes, decision::FINISH).await),
                Call::Inspect(jobs) => Reply::Inspect(client.inspect(jobs).await),
            };
            site.replies.borrow_mut().push_back((i, epoch, id, reply));
        });
        self.calls.borrow_mut().insert((i, id), task);
    }

    fn given_up(&self, i: usize, id: CallId) {
        if let Some(task) = self.calls.borrow_mut().remove(&(i, id)) {
            self.site.tasks.end(task);
        }
    }

    fn control(&self, i: usize, control: Control) {
        let Some(client) = self.clients.borrow().get(&i).cloned() else { return };
        self.site.tasks.spawn(Some(i), async move {
            client.batch(vec![control], decision::CONTROL).await;
        });
    }

    fn record(&self, job: &JobName) -> Option<Record> {
        self.host.record(&names::of_job(job))
    }

    fn kept_runs(&self, job: &JobName) -> usize {
        self.host.kept_runs(&names::of_job(job))
    }

    fn server_died(&self) {
        self.host.drop_consumers();
        for client in self.clients.borrow().values() {
            client.cut();
        }
    }

    fn lose_data(&self) {
        self.host.lose_data();
    }

    fn lose_newest(&self, time: u64) -> bool {
        if self.can_lose {
            self.host.lose_newest(time);
        }
        self.can_lose
    }
}
