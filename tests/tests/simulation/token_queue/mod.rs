//! The token queue, like RabbitMQ: the record of a job is the one message of its queue, and whoever has it unacknowledged owns
//! it. A connection that ends gives it back, at once or after two to three heartbeats; every instance goes by its own clock.
//!
//! The product's own code decides: `operation.rs` (what an item comes to, with the token and without), `state.rs` (when a
//! token is lost, and what is told of one that somebody else has) and `body.rs` of `store::rabbitmq`. Restated here is the
//! order of the I/O around it, that of `token.rs` and `link.rs`: what changes there has to change here too. Left out:
//! quorum queues and their returns, alarms, queues that operators delete, the limits of channels.

mod birth;
mod broker;
mod client;
mod judged;
mod slot;
mod token;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    time::Duration,
};

use anarchon::{
    engine::{Call, CallId, EngineJob, Reply},
    protocol::{Control, JobName, Record},
    store::{Answer, ClockSource, Guarantees, HeldRecord, LeaseScope, StoreError, rabbitmq::operation::Look},
};
use futures_util::future::join_all;
use tokio::sync::oneshot;

use self::{broker::Broker, client::Client, judged::Judged};
use crate::site::{Remote, Site};

pub(crate) struct TokenQueue {
    site: Rc<Site>,
    broker: Rc<Broker>,
    clients: RefCell<HashMap<usize, Rc<Client>>>,
    calls: RefCell<HashMap<(usize, CallId), Waiting>>,
}

/// Whether somebody still waits for a call, and the task that does.
type Waiting = (Rc<Cell<bool>>, u64);

impl TokenQueue {
    pub(crate) fn new(site: &Rc<Site>) -> Self {
        Self {
            site: Rc::clone(site),
            broker: Broker::new(site),
            clients: RefCell::default(),
            calls: RefCell::default(),
        }
    }
}

/// Each item is a task of its own, which comes to its end also when nobody waits for it any more.
async fn batch<O: Judged>(
    site: &Site,
    i: usize,
    client: &Rc<Client>,
    is_wanted: &Rc<Cell<bool>>,
    items: Vec<O>,
) -> Vec<Answer<O::Answer>> {
    let begun: Vec<_> = items
        .into_iter()
        .map(|item| {
            let (tell, told) = oneshot::channel();
            let (client, is_wanted) = (Rc::clone(client), Rc::clone(is_wanted));
            site.tasks.spawn(Some(i), async move {
                let _ = tell.send(client.item(item, is_wanted).await);
            });
            told
        })
        .collect();
    let ended = |_| Err(StoreError::unknown("the process ended"));
    join_all(begun).await.into_iter().map(|answer| answer.unwrap_or_else(ended)).collect()
}

/// Half of the shortest lease in whole seconds.
fn heartbeat(jobs: &[EngineJob]) -> Duration {
    let shortest = jobs.iter().map(|job| job.policy.lease).min().unwrap_or_default();
    Duration::from_secs((shortest.as_secs() / 2).max(1))
}

impl Remote for TokenQueue {
    fn start(&self, i: usize, jobs: &[EngineJob]) -> Guarantees {
        let heartbeat = heartbeat(jobs);
        let micros = u64::try_from(heartbeat.as_micros()).unwrap_or(u64::MAX);
        self.clients.borrow_mut().insert(i, Client::new(&self.site, &self.broker, i, micros));
        let mut guarantees = Guarantees::new("token queue");
        guarantees.clock = ClockSource::Local;
        guarantees.lease = LeaseScope::PerConnection(2 * heartbeat..=3 * heartbeat);
        guarantees.beat = false;
        guarantees.held = HeldRecord::HolderOnly;
        guarantees
    }

    fn killed(&self, i: usize) {
        if let Some(client) = self.clients.borrow_mut().remove(&i) {
            client.cut();
        }
    }

    fn call(&self, i: usize, epoch: u64, id: CallId, call: Call) {
        let Some(client) = self.clients.borrow().get(&i).cloned() else { return };
        let (site, is_wanted) = (Rc::clone(&self.site), Rc::new(Cell::new(true)));
        let wanted = Rc::clone(&is_wanted);
        let task = self.site.tasks.spawn(Some(i), async move {
            let reply = match call {
                Call::Beat(_) => Reply::Beat(client.write_to_nobody().await),
                Call::Register(specs) => Reply::Register(batch(&site, i, &client, &wanted, specs).await),
                Call::Claim(claims) => Reply::Claim(batch(&site, i, &client, &wanted, claims).await),
                Call::Renew(renewals) => Reply::Renew(batch(&site, i, &client, &wanted, renewals).await),
                Call::Finish(finishes) => Reply::Finish(batch(&site, i, &client, &wanted, finishes).await),
                Call::Inspect(jobs) => {
                    let looks = jobs.into_iter().map(|job| Look { job, history: 0 }).collect();
                    Reply::Inspect(batch(&site, i, &client, &wanted, looks).await)
                }
            };
            site.replies.borrow_mut().push_back((i, epoch, id, reply));
        });
        self.calls.borrow_mut().insert((i, id), (is_wanted, task));
    }

    fn given_up(&self, i: usize, id: CallId) {
        if let Some((is_wanted, task)) = self.calls.borrow_mut().remove(&(i, id)) {
            is_wanted.set(false);
            self.site.tasks.end(task);
        }
    }

    fn control(&self, i: usize, control: Control) {
        let Some(client) = self.clients.borrow().get(&i).cloned() else { return };
        self.site.tasks.spawn(Some(i), async move {
            let _ = client.item(control, Rc::new(Cell::new(true))).await;
        });
    }

    fn record(&self, job: &JobName) -> Option<Record> {
        Some(self.broker.body(job.as_str())?.record)
    }

    fn kept_runs(&self, job: &JobName) -> usize {
        self.broker.body(job.as_str()).map_or(0, |body| body.snapshot(u8::MAX).history.len())
    }

    fn server_died(&self) {
        self.broker.restart();
    }

    fn lose_data(&self) {
        self.broker.lose_data();
    }

    fn lose_newest(&self, _time: u64) -> bool {
        false
    }
}
