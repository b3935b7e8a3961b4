//! One instance's client: its connection and its channels.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

use anarchon::{
    protocol::{JobName, Members, StoreNow},
    store::{Answer, Stamped, StoreError},
};
use tokio::sync::{Mutex, oneshot};

use super::{
    broker::{Broker, Connection},
    judged::Judged,
    slot::Slot,
};
use crate::{
    plan::SECOND,
    site::{Server, Site},
};

/// As the product has them; microseconds.
const CONNECTING: u64 = 5 * SECOND;
pub(super) const LEAST_PATIENCE: u64 = 2 * SECOND;
pub(super) const MOST_PATIENCE: u64 = 10 * SECOND;

pub(crate) struct Client {
    pub(super) site: Rc<Site>,
    pub(super) broker: Rc<Broker>,
    pub(super) i: usize,
    pub(super) heartbeat: u64,
    pub(super) live: Mutex<Option<Rc<Connection>>>,
    /// What there is now, for those who must not wait.
    pub(super) current: RefCell<Vec<Rc<Connection>>>,
    pub(super) slots: RefCell<HashMap<JobName, Rc<Slot>>>,
}

/// A channel; what is open on it ends with it.
pub(super) struct Channel {
    pub(super) client: Rc<Client>,
    pub(super) live: Rc<Connection>,
    pub(super) number: u64,
    pub(super) is_clean: Cell<bool>,
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.is_clean.get() && self.live.is_open.get() {
            let number = self.number;
            self.client.send(&self.live, move |broker| broker.close(number));
        }
    }
}

impl Client {
    pub(crate) fn new(site: &Rc<Site>, broker: &Rc<Broker>, i: usize, heartbeat: u64) -> Rc<Self> {
        Rc::new(Self {
            site: Rc::clone(site),
            broker: Rc::clone(broker),
            i,
            heartbeat,
            live: Mutex::new(None),
            current: RefCell::default(),
            slots: RefCell::default(),
        })
    }

    /// The process is gone.
    pub(crate) fn cut(&self) {
        for connection in self.current.borrow_mut().drain(..) {
            self.broker.closed(&connection);
        }
    }

    pub(crate) async fn item<O: Judged>(
        self: Rc<Self>,
        operation: O,
        is_wanted: Rc<Cell<bool>>,
    ) -> Answer<O::Answer> {
        let slot = self.slot(operation.job());
        slot.carry_out(&operation, &is_wanted).await
    }

    fn slot(self: &Rc<Self>, job: &JobName) -> Rc<Slot> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.entry(job.clone()).or_insert_with(|| Rc::new(Slot::new(self, job)));
        Rc::clone(slot)
    }

    pub(super) fn now(&self) -> StoreNow {
        self.site.wall(self.i)
    }

    pub(super) async fn live(&self) -> Result<Rc<Connection>, StoreError> {
        let mut live = self.live.lock().await;
        if let Some(live) = live.as_ref().filter(|live| live.is_open.get()) {
            return Ok(Rc::clone(live));
        }
        *live = None;
        if self.site.server() == Server::Down {
            self.site.sleep(1_000).await;
            return Err(StoreError::unavailable("refused"));
        }
        let made = Connection::new(self.site.random(|rng| rng.u64(..)), self.i, self.heartbeat);
        self.current.borrow_mut().retain(|connection| connection.is_open.get());
        self.current.borrow_mut().push(Rc::clone(&made));
        let (tell, told) = oneshot::channel();
        let (site, broker, connection, life) =
            (Rc::clone(&self.site), Rc::clone(&self.broker), Rc::clone(&made), self.site.life());
        self.site.tasks.spawn(None, async move {
            let Some(at) = connection.reaches(&site) else { return site.sleep(CONNECTING).await };
            site.tasks.sleep_until(at).await;
            if site.is_taken_in(life).await && connection.is_open.get() {
                broker.accept(&connection);
                if broker.serve(&connection, |_| ()).await.is_some() {
                    let _ = tell.send(());
                }
            }
        });
        match self.site.tasks.timeout(CONNECTING, told).await {
            Some(Ok(())) => {
                *live = Some(Rc::clone(&made));
                Ok(made)
            }
            Some(Err(_)) | None => {
                self.broker.closed(&made);
                Err(StoreError::unavailable("not connected"))
            }
        }
    }

    pub(super) fn channel(self: &Rc<Self>, live: &Rc<Connection>) -> Channel {
        let number = self.site.random(|rng| rng.u64(..));
        Channel { client: Rc::clone(self), live: Rc::clone(live), number, is_clean: Cell::new(false) }
    }

    /// Sends a request; its answer comes, if it does.
    pub(super) fn send<T: 'static>(
        &self,
        live: &Rc<Connection>,
        work: impl FnOnce(&Broker) -> T + 'static,
    ) -> oneshot::Receiver<T> {
        let (tell, told) = oneshot::channel();
        let (site, broker, live, life) =
            (Rc::clone(&self.site), Rc::clone(&self.broker), Rc::clone(live), self.site.life());
        if !live.is_open.get() {
            return told;
        }
        if site.loses_request() {
            // Nothing of what is sent from here on comes.
            broker.closed(&live);
            return told;
        }
        let reaches = live.reaches(&site);
        self.site.tasks.spawn(None, async move {
            let Some(at) = reaches else { return };
            site.tasks.sleep_until(at).await;
            if !site.is_taken_in(life).await {
                return;
            }
            let answer = broker.serve(&live, work).await;
            if site.loses_reply() {
                broker.closed(&live);
            }
            if let Some(answer) = answer
                && live.is_open.get()
            {
                let _ = tell.send(answer);
            }
        });
        told
    }

    /// Waits for an answer; a broker that gives none has lost this connection.
    pub(super) async fn answer<T>(
        &self,
        live: &Rc<Connection>,
        told: oneshot::Receiver<T>,
    ) -> Result<T, StoreError> {
        let patience = self.heartbeat.clamp(LEAST_PATIENCE, MOST_PATIENCE);
        match self.site.tasks.timeout(patience, told).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(_)) => Err(StoreError::unavailable("the connection broke")),
            None => {
                self.broker.closed(live);
                Err(StoreError::unavailable("no answer in time"))
            }
        }
    }

    /// Shows that the broker takes writes.
    pub(super) async fn write_to_nobody(&self) -> Answer<Members> {
        let live = self.live().await?;
        self.ask(&live, |_| ()).await?;
        Ok(Stamped { value: Members::default(), now: self.now() })
    }

    pub(super) async fn ask<T: 'static>(
        &self,
        live: &Rc<Connection>,
        work: impl FnOnce(&Broker) -> T + 'static,
    ) -> Result<T, StoreError> {
        let told = self.send(live, work);
        self.answer(live, told).await
    }
}

impl Channel {
    pub(super) fn name(&self) -> (u64, u64) {
        (self.live.number, self.number)
    }

    pub(super) async fn ask<T: 'static>(
        &self,
        work: impl FnOnce(&Broker) -> T + 'static,
    ) -> Result<T, StoreError> {
        self.client.ask(&self.live, work).await
    }
}
