//! A job as one handle sees it, and the look for its token, in the order of the product's `token.rs`.

use std::{cell::Cell, rc::Rc, time::Duration};

use anarchon::{
    clock::Mono,
    protocol::{Fingerprint, JobName, Millis, Record, Status},
    store::{
        Answer, Stamped, StoreError,
        rabbitmq::{
            operation::Elsewhere,
            state::{Missing, Unseen},
        },
    },
};
use tokio::sync::Mutex;

use super::{
    broker::{Connection, Delivery, NotFound},
    client::{Channel, Client},
    judged::Judged,
    token::Held,
};
use crate::mutation::Mutation;

/// As the product has them; microseconds.
pub(super) const SOON: u64 = 5_000;
pub(super) const LATER: u64 = 50_000;

pub(super) struct Slot {
    pub(super) client: Rc<Client>,
    pub(super) queue: String,
    pub(super) mark: String,
    pub(super) boot: String,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub(super) held: Option<Held>,
    pub(super) birth: Option<u64>,
    pub(super) seen: Option<Record>,
    pub(super) registered: Option<Fingerprint>,
    pub(super) skipped: Millis,
    pub(super) torn: bool,
    /// On which connection the token was missed, from when on, and what the store makes of it.
    pub(super) missing: Option<(u64, Mono, Missing)>,
}

impl State {
    pub(super) fn new(birth: Option<u64>) -> Self {
        Self {
            held: None,
            birth,
            seen: None,
            registered: None,
            skipped: Millis(i64::MIN),
            torn: false,
            missing: None,
        }
    }
}

/// What only the judge may know of a job whose mark shows a run.
#[derive(Clone, Copy)]
pub(super) struct Truth {
    pub(super) is_run: bool,
    pub(super) birth: Option<u64>,
}

pub(super) enum Found {
    Token(Box<(Channel, Delivery)>),
    Absent,
    Held(Truth),
    Transit,
    Lost,
}

pub(super) enum Tried<T> {
    Answered(Stamped<T>),
    Held,
    Busy(u64),
}

impl Slot {
    pub(super) fn new(client: &Rc<Client>, job: &JobName) -> Self {
        Self {
            client: Rc::clone(client),
            queue: job.to_string(),
            mark: format!("{job}:mark"),
            boot: format!("{job}:boot"),
            state: Mutex::new(State::new(None)),
        }
    }

    pub(super) async fn carry_out<O: Judged>(
        self: &Rc<Self>,
        operation: &O,
        is_wanted: &Cell<bool>,
    ) -> Answer<O::Answer> {
        let site = &self.client.site;
        let patience = u64::try_from(O::PATIENCE.as_micros()).unwrap_or(u64::MAX);
        let mut first_in_vain = None;
        let mut waited = 0;
        loop {
            let mut state = self.state.lock().await;
            if !is_wanted.get() {
                return Err(StoreError::unavailable("nobody waits for it any more"));
            }
            let tried = self.attempt(&mut state, operation, waited).await;
            drop(state);
            let now = site.mono(self.client.i);
            waited = now.0 - first_in_vain.get_or_insert(now).0;
            let again = match tried? {
                Tried::Answered(answer) => return Ok(answer),
                Tried::Held if waited >= patience => {
                    return Err(StoreError::unavailable("a run has the record"));
                }
                Tried::Held => LATER,
                Tried::Busy(_) if waited >= patience => {
                    return Err(StoreError::unavailable("somebody else has the record"));
                }
                Tried::Busy(again) => again,
            };
            site.sleep(site.random(|rng| rng.u64(again / 2..=again))).await;
        }
    }

    async fn attempt<O: Judged>(
        self: &Rc<Self>,
        state: &mut State,
        operation: &O,
        waited: u64,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let live = self.client.live().await?;
        if state.held.as_ref().is_some_and(|held| !held.channel.live.is_open.get()) {
            state.held = None;
            state.torn = true;
        }
        if state.held.is_some() {
            let tried = self.on_held(state, operation).await;
            state.torn |= tried.is_err();
            return tried;
        }
        match self.look(state, &live).await? {
            Found::Token(taken) => self.on_token(state, operation, *taken).await,
            Found::Lost => Err(StoreError::misconfigured("the token is lost")),
            Found::Absent => self.on_absent(state, operation, &live).await,
            Found::Held(truth) => self.on_held_elsewhere(state, operation, truth),
            Found::Transit => Ok(Tried::Busy(if waited < LATER { SOON } else { LATER })),
        }
    }

    /// Takes the token out of its queue, or finds out where it is.
    async fn look(&self, state: &mut State, live: &Rc<Connection>) -> Result<Found, StoreError> {
        let channel = self.client.channel(live);
        let is_unknown = state.birth.is_none() && !self.client.site.is(Mutation::BrokenBirthStays);
        if is_unknown && !self.has(live, &self.mark).await? {
            channel.is_clean.set(true);
            *state = State::new(None);
            return Ok(Found::Absent);
        }
        let (queue, name) = (self.queue.clone(), channel.name());
        let got = channel.ask(move |broker| broker.get(&queue, name)).await?;
        let Some(delivery) = (match got {
            Ok(delivery) => delivery,
            Err(NotFound) => {
                channel.is_clean.set(true);
                return self.without_queue(state, live).await;
            }
        }) else {
            channel.is_clean.set(true);
            return self.without_message(state, live).await;
        };
        state.missing = None;
        state.torn = false;
        if state.birth != Some(delivery.body.birth) {
            if !self.has(live, &self.mark).await? {
                return Ok(Found::Absent);
            }
            let skipped = if state.birth.is_none() { state.skipped } else { Millis(i64::MIN) };
            *state = State { skipped, ..State::new(Some(delivery.body.birth)) };
        }
        Ok(Found::Token(Box::new((channel, delivery))))
    }

    pub(super) async fn has(&self, live: &Rc<Connection>, queue: &str) -> Result<bool, StoreError> {
        let queue = queue.to_owned();
        self.client.ask(live, move |broker| broker.has(&queue)).await
    }

    /// By the order of births and forgettings there is no mark without a queue.
    async fn without_queue(&self, state: &mut State, live: &Rc<Connection>) -> Result<Found, StoreError> {
        if self.has(live, &self.mark).await? {
            self.client.site.sleep(LATER).await;
            if self.has(live, &self.queue).await? {
                return Ok(Found::Transit);
            }
            if self.has(live, &self.mark).await? {
                return Ok(Found::Lost);
            }
        }
        *state = State::new(None);
        Ok(Found::Absent)
    }

    async fn without_message(&self, state: &mut State, live: &Rc<Connection>) -> Result<Found, StoreError> {
        let (mark, queue) = (self.mark.clone(), self.queue.clone());
        let looked = self.client.ask(live, move |broker| {
            let body = broker.body(&queue);
            let is_run = body.as_ref().is_some_and(|body| body.record.status == Status::Running);
            broker
                .consumers(&mark)
                .map(|consumers| (consumers, Truth { is_run, birth: body.map(|body| body.birth) }))
        });
        match looked.await? {
            // A birth that broke off left it, or one is going on: whoever makes the job looks again under the lock.
            Err(NotFound) if self.client.site.is(Mutation::BrokenBirthStays) => Ok(Found::Transit),
            Err(NotFound) => {
                *state = State::new(None);
                Ok(Found::Absent)
            }
            Ok((0, _)) => Ok(self.missed(state, live)),
            Ok((_, truth)) => {
                state.missing = None;
                Ok(Found::Held(truth))
            }
        }
    }

    fn missed(&self, state: &mut State, live: &Connection) -> Found {
        let now = self.client.site.mono(self.client.i);
        let (first, before) = match state.missing.take() {
            Some((_, first, _)) if self.client.site.is(Mutation::MissesAddUp) => {
                (first, Some(Missing::between(first, now)))
            }
            Some((seen_on, first, missing)) if seen_on == live.number => (first, Some(missing)),
            Some(_) | None => (now, None),
        };
        let missing = Missing::again(before, now);
        state.missing = Some((live.number, first, missing));
        let heartbeat = Duration::from_micros(self.client.heartbeat);
        if missing.is_lost(heartbeat) { Found::Lost } else { Found::Transit }
    }

    fn on_held_elsewhere<O: Judged>(
        &self,
        state: &mut State,
        operation: &O,
        truth: Truth,
    ) -> Result<Tried<O::Answer>, StoreError> {
        let heartbeat = Duration::from_micros(self.client.heartbeat);
        state.registered = operation.schedule().or(state.registered);
        let unseen = Unseen {
            seen: state.seen.clone(),
            registered: state.registered,
            skipped: state.skipped,
            torn: state.torn,
            heartbeat,
        };
        let now = self.client.now();
        match operation.elsewhere(&unseen, now) {
            Elsewhere::Told(value) => Ok(Tried::Answered(Stamped { value, now })),
            Elsewhere::Decided(value, at) => {
                state.skipped = state.skipped.max(at);
                if let Some(claim) = operation.claim().cloned() {
                    let is_known = state.birth.is_none() || state.birth == truth.birth;
                    self.client
                        .site
                        .note(move |judge| judge.skipped_elsewhere(&claim, truth.is_run, is_known));
                }
                Ok(Tried::Answered(Stamped { value, now }))
            }
            Elsewhere::Wait => Ok(Tried::Held),
            Elsewhere::Refused(error) => Err(error),
        }
    }
}
