//! A connection with a bucket on it, and a watch.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use anarchon::{
    clock::Mono,
    protocol::{Contested, InstanceId, JobName, Members, StoreNow},
    store::{
        Stamped, StoreError,
        nats::{
            cache::{Cache, Entry},
            members, names,
            value::Kept,
        },
    },
};
use tokio::sync::watch;

use super::{
    bucket::{Connection, Host, Judged, Written},
    client::Client,
    link::{Link, Trouble},
};
use crate::{mutation::Mutation, plan::SECOND};

/// As the product has them; microseconds.
const BEHIND: u64 = 3 * SECOND;
const BEAT: Duration = Duration::from_secs(15);

pub(crate) struct Wire {
    pub(super) client: Rc<Client>,
    pub(super) connection: Rc<Connection>,
    pub(super) is_given_up: Cell<bool>,
    pub(super) created: u64,
    pub(super) prefix: String,
    pub(super) cache: Rc<RefCell<Cache>>,
    /// The newest revision that was taken in; closed when the watch has ended.
    pub(super) seen: watch::Receiver<u64>,
}

/// The answer to a write, as the client sees it.
pub(super) enum Put {
    Stored(u64),
    Refused,
    NoTaker,
    Failed(StoreError),
    Unanswered(StoreError),
}

impl Wire {
    pub(super) fn is_open(&self) -> bool {
        self.is_link_open() && self.seen.has_changed().is_ok()
    }

    pub(super) fn is_link_open(&self) -> bool {
        self.connection.is_open.get() && !self.is_given_up.get()
    }

    fn give_up(&self) {
        self.is_given_up.set(true);
    }

    pub(super) fn link(&self) -> Link<'_> {
        Link { client: &self.client, connection: &self.connection, is_given_up: &self.is_given_up }
    }

    pub(super) fn job(&self, job: &JobName) -> Entry<Kept> {
        self.cache.borrow().job(job)
    }

    pub(super) fn now(&self, at: Mono) -> Result<StoreNow, StoreError> {
        let now = self.client.clock.borrow_mut().now(at);
        now.ok_or_else(|| StoreError::unavailable("the time is not known"))
    }

    pub(super) fn told(
        &self,
        now: StoreNow,
        known: bool,
        me: &InstanceId,
        contested: &[Contested],
    ) -> Stamped<Members> {
        let cache = self.cache.borrow();
        Stamped { value: members::told(cache.members(), now, known, me, contested), now }
    }

    pub(super) async fn freshen(&self) {
        let age = self.client.clock.borrow().own_age(self.client.mono());
        if age.is_none_or(|age| age > BEAT) {
            let _ = self.beat().await;
        }
    }

    pub(super) async fn beat(&self) -> Result<(), StoreError> {
        let sent = self.client.mono();
        match self.put(names::CLOCK, None, Some(Vec::new()), None).await {
            Put::Stored(revision) => {
                self.client.clock.borrow_mut().wrote(revision, sent);
                self.brings(revision).await
            }
            Put::NoTaker | Put::Refused => Err(no_taker()),
            Put::Failed(error) | Put::Unanswered(error) => Err(error),
        }
    }

    pub(super) async fn put(
        &self,
        key: &str,
        revision: Option<u64>,
        value: Option<Vec<u8>>,
        judged: Option<Judged>,
    ) -> Put {
        let key = format!("{}{key}", self.prefix);
        let payload = value.map(Rc::from);
        let link = self.link();
        let written = link.request(move |host| host.put(&key, revision, &payload, judged.as_ref()));
        match written.await {
            Ok(Written::Stored(revision)) => Put::Stored(revision),
            Ok(Written::Refused) => Put::Refused,
            Ok(Written::NoTaker) => Put::NoTaker,
            Err(Trouble::NotSent) => Put::Failed(StoreError::unavailable("the connection is broken")),
            Err(Trouble::Unanswered) => Put::Unanswered(StoreError::unknown("no answer")),
        }
    }

    pub(super) async fn catch_up(&self) -> Result<(), StoreError> {
        let seen = (*self.seen.borrow()).max(self.cache.borrow().newest());
        let info = self.link().request(Host::info).await.map_err(|_| StoreError::unavailable("no answer"))?;
        let is_same = |created| created == self.created || self.client.site.is(Mutation::LostBucketIsTheSame);
        match info {
            Some((created, newest)) if is_same(created) && newest >= seen => self.brings(newest).await,
            Some(_) | None => {
                self.give_up();
                Err(StoreError::unavailable("the bucket was lost"))
            }
        }
    }

    pub(super) async fn brings(&self, revision: u64) -> Result<(), StoreError> {
        let mut seen = self.seen.clone();
        let reaches = async move { seen.wait_for(|seen| *seen >= revision).await.is_ok() };
        match self.client.site.tasks.timeout(BEHIND, reaches).await {
            Some(true) => Ok(()),
            Some(false) | None => {
                self.give_up();
                Err(StoreError::unavailable("the watch has ended"))
            }
        }
    }

    pub(super) fn wrote(&self, job: &JobName, revision: u64, kept: Option<Kept>, decided: Mono) {
        self.client.clock.borrow_mut().wrote(revision, decided);
        let record = kept.as_ref().map(|kept| kept.record.clone());
        if self.cache.borrow_mut().wrote_job(job, revision, kept) {
            self.client.saw(job, record.as_ref(), decided, None);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.connection.is_open.set(false);
    }
}

pub(super) fn no_taker() -> StoreError {
    StoreError::unavailable("nobody takes writes")
}
