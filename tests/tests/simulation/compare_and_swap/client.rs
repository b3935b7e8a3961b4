//! One instance's client: what it knows across its connections, and how it makes them.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use anarchon::{
    clock::Mono,
    protocol::{
        Announcement, Contested, Fingerprint, InstanceId, JobName, LeaseEnd, Members, Record, StoreNow,
    },
    store::{
        Answer, Snapshot, Stamped, StoreError,
        nats::{
            cache::{Cache, Value},
            clock::ServerClock,
            decision::Rule,
            leases::Leases,
            members::Member,
            names,
            value::Kept,
        },
    },
};
use futures_util::{
    FutureExt as _,
    future::{LocalBoxFuture, Shared},
};
use tokio::sync::watch;

use super::{
    bucket::{Connection, Host, prefix},
    link::{Link, Trouble},
    watch::Reading,
    wire::{Put, Wire, no_taker},
};
use crate::{
    mutation::Mutation,
    plan::SECOND,
    site::{Item, Server, Site},
};

/// As the product has it; microseconds.
const CONNECTING: u64 = 5 * SECOND;

type Opening = Shared<LocalBoxFuture<'static, Result<Rc<Wire>, StoreError>>>;

enum State {
    None,
    Opening(Opening),
    Open(Rc<Wire>),
}

/// What one process knows across its connections.
pub(crate) struct Client {
    pub(super) site: Rc<Site>,
    pub(super) host: Rc<Host>,
    pub(super) i: usize,
    pub(super) clock: RefCell<ServerClock>,
    pub(super) leases: RefCell<Leases>,
    state: RefCell<State>,
}

impl Client {
    pub(crate) fn new(site: &Rc<Site>, host: &Rc<Host>, i: usize) -> Rc<Self> {
        Rc::new(Self {
            site: Rc::clone(site),
            host: Rc::clone(host),
            i,
            clock: RefCell::default(),
            leases: RefCell::default(),
            state: RefCell::new(State::None),
        })
    }

    pub(super) fn mono(&self) -> Mono {
        self.site.mono(self.i)
    }

    /// The process is gone: the server sees its connection end.
    pub(crate) fn cut(&self) {
        if let State::Open(wire) = &*self.state.borrow() {
            wire.connection.is_open.set(false);
        }
    }

    async fn wire(self: &Rc<Self>) -> Result<Rc<Wire>, StoreError> {
        let opening = {
            let mut state = self.state.borrow_mut();
            match &*state {
                State::Open(wire) if wire.is_open() => return Ok(Rc::clone(wire)),
                State::Opening(opening) => opening.clone(),
                State::Open(_) | State::None => {
                    let opening = Rc::clone(self).open().boxed_local().shared();
                    *state = State::Opening(opening.clone());
                    opening
                }
            }
        };
        let opened = opening.clone().await;
        let mut state = self.state.borrow_mut();
        if matches!(&*state, State::Opening(current) if current.ptr_eq(&opening)) {
            *state = match &opened {
                Ok(wire) => State::Open(Rc::clone(wire)),
                Err(_) => State::None,
            };
        }
        opened.map_err(StoreError::unavailable)
    }

    async fn open(self: Rc<Self>) -> Result<Rc<Wire>, StoreError> {
        let connection = Rc::new(Connection { i: self.i, is_open: Cell::new(true), heard: Cell::new(0) });
        let link = Link { client: &self, connection: &connection, is_given_up: &Cell::new(false) };
        let unreached = |_| StoreError::unavailable("not connected");
        if self.site.server() == Server::Down {
            self.site.sleep(1_000).await;
            return Err(StoreError::unavailable("refused"));
        }
        let connected = self.site.tasks.timeout(CONNECTING, link.request(|_| ())).await;
        connected.unwrap_or(Err(Trouble::Unanswered)).map_err(unreached)?;
        let created = link.request(Host::make).await.map_err(unreached)?;
        self.clock.borrow_mut().reconnected();
        let to = Rc::clone(&connection);
        let messages = link.request(move |host| host.watch(&to)).await.map_err(unreached)?;
        let messages = messages.ok_or_else(|| StoreError::unavailable("no bucket"))?;
        let (tell, seen) = watch::channel(0);
        let cache = Rc::new(RefCell::new(Cache::default()));
        let wire = Rc::new(Wire {
            client: Rc::clone(&self),
            connection,
            is_given_up: Cell::new(false),
            created,
            prefix: prefix(&self.site, created),
            cache: Rc::clone(&cache),
            seen,
        });
        let reading =
            Reading { client: Rc::clone(&self), prefix: wire.prefix.clone(), cache, tell, delivered: 0 };
        self.site.tasks.spawn(Some(self.i), reading.read(messages));
        for _ in 0..2 {
            wire.beat().await?;
        }
        Ok(wire)
    }

    pub(super) fn saw(&self, job: &JobName, record: Option<&Record>, at: Mono, stored: Option<i64>) {
        match record {
            Some(record) => self.leases.borrow_mut().see(job, record, at, stored),
            None => self.leases.borrow_mut().forget(job),
        }
    }

    pub(super) fn lease_end(&self, job: &JobName, kept: &Kept, now: StoreNow, at: Mono) -> LeaseEnd {
        if self.site.is(Mutation::LeaseEndsByUntil) {
            return LeaseEnd::ByClock;
        }
        let own = self.clock.borrow().newest_own();
        if self.site.is(Mutation::VoidIsIgnored) {
            let mut kept = kept.clone();
            kept.void_after = None;
            return self.leases.borrow().end(job, &kept, now, at, own);
        }
        self.leases.borrow().end(job, kept, now, at, own)
    }

    /// Carries out the items of one call.
    pub(crate) async fn batch<I: Item>(
        self: Rc<Self>,
        items: Vec<I>,
        rule: Rule<I, I::Answer>,
    ) -> Vec<Answer<I::Answer>> {
        match self.wire().await {
            Ok(wire) => wire.batch(&items, &rule).await,
            Err(error) => items.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    pub(crate) async fn inspect(self: Rc<Self>, jobs: Vec<JobName>) -> Vec<Answer<Option<Snapshot>>> {
        let all = |error: StoreError| jobs.iter().map(|_| Err(error.clone())).collect();
        let wire = match self.wire().await {
            Ok(wire) => wire,
            Err(error) => return all(error),
        };
        wire.freshen().await;
        if let Err(error) = wire.catch_up().await {
            return all(error);
        }
        let read = |job: &JobName| {
            let now = wire.now(self.mono())?;
            let value = match wire.job(job).value {
                Value::None => None,
                Value::Some(kept) => Some(Snapshot { record: kept.record, history: Vec::new() }),
                Value::Damaged(damage) => return Err(StoreError::misconfigured(damage)),
            };
            Ok(Stamped { value, now })
        };
        jobs.iter().map(read).collect()
    }

    pub(crate) async fn beat(self: Rc<Self>, announcement: Announcement) -> Answer<Members> {
        match &announcement {
            Announcement::Present { instance, schedules, zones, contested } => {
                self.announce(instance, contested, Some((schedules, zones))).await
            }
            Announcement::Withdrawn { instance } => self.announce(instance, &[], None).await,
        }
    }

    async fn announce(
        self: &Rc<Self>,
        me: &InstanceId,
        contested: &[Contested],
        present: Option<(&[(JobName, Fingerprint)], &str)>,
    ) -> Answer<Members> {
        let wire = self.wire().await?;
        wire.freshen().await;
        if wire.cache.borrow().member(me).revision == 0 {
            wire.catch_up().await?;
        }
        for _ in 0..6 {
            let decided = self.mono();
            let now = wire.now(decided)?;
            let entry = wire.cache.borrow().member(me);
            let known = entry.value().is_some_and(|member| member.is_live(now));
            let member = match present {
                Some((schedules, zones)) => Member::new(now, schedules, contested, zones),
                None if known => Member::withdrawn(now),
                None => {
                    wire.catch_up().await?;
                    return Ok(wire.told(now, false, me, contested));
                }
            };
            match wire.put(&names::of_member(me), Some(entry.revision), Some(member.encode()), None).await {
                Put::Stored(revision) => {
                    self.clock.borrow_mut().wrote(revision, decided);
                    wire.cache.borrow_mut().wrote_member(me, revision, Some(member));
                    wire.brings(revision).await?;
                    return Ok(wire.told(now, known, me, contested));
                }
                Put::Refused => wire.catch_up().await?,
                Put::NoTaker => return Err(no_taker()),
                Put::Failed(error) | Put::Unanswered(error) => return Err(error),
            }
        }
        Err(StoreError::unavailable("written by somebody else too"))
    }
}
