//! Reads a watch, until it loses a message or falls silent.

use std::{cell::RefCell, rc::Rc};

use anarchon::store::nats::{
    cache::{Cache, Told, is_news},
    names,
};
use tokio::sync::{mpsc, watch};

use super::{bucket::Message, client::Client};
use crate::plan::SECOND;

/// As the product has it; microseconds.
const SILENCE: u64 = 2 * SECOND;

pub(super) struct Reading {
    pub(super) client: Rc<Client>,
    pub(super) prefix: String,
    pub(super) cache: Rc<RefCell<Cache>>,
    pub(super) tell: watch::Sender<u64>,
    pub(super) delivered: u64,
}

impl Reading {
    pub(super) async fn read(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        while let Some(message) = self.next(&mut messages).await {
            let goes_on = match message {
                Message::Idle { delivered } => delivered == self.delivered,
                Message::Value { delivered, key, revision, stored, payload } => {
                    let follows = delivered == self.delivered + 1;
                    self.delivered = delivered;
                    if follows {
                        self.take_in(&key, revision, stored, payload.as_deref());
                    }
                    follows
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    async fn next(&self, messages: &mut mpsc::UnboundedReceiver<Message>) -> Option<Message> {
        for _ in 0..2 {
            if let Some(message) = self.client.site.tasks.timeout(SILENCE, messages.recv()).await {
                return message;
            }
        }
        None
    }

    fn take_in(&self, key: &str, revision: u64, stored: i64, payload: Option<&[u8]>) {
        let at = self.client.mono();
        if let Some(key) = key.strip_prefix(&self.prefix) {
            let mut cache = self.cache.borrow_mut();
            let before = names::job(key).and_then(|job| cache.record(&job).cloned());
            match cache.hear(key, revision, payload) {
                Told::Job(job) => {
                    let after = cache.record(&job);
                    self.client.saw(&job, after, at, Some(stored));
                    if is_news(before.as_ref(), after) {
                        self.client.site.hints.borrow_mut().push_back((self.client.i, job));
                    }
                }
                Told::Member(_) | Told::Nothing => {}
            }
        }
        self.client.clock.borrow_mut().heard(revision, stored, at);
        self.tell.send_replace(revision);
    }
}
