//! One connection, which ends when it breaks, and the requests that are made over it.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, Event, HeaderMap, Request, RequestErrorKind, connection::State};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    address::Address,
    fault::{self, Refusal},
};
use crate::store::{StoreError, StoreErrorKind};

/// A request is taken for lost when it was not answered in this time, nor was any other.
const LOST: Duration = Duration::from_millis(1500);

/// For so many times that long it is waited for while others are answered.
const BUSY: u32 = 8;
/// A connection that brought nothing at all in this time, of a call that ended without an answer, is given up: even a ping
/// would have been answered.
const SILENT: Duration = Duration::from_millis(700);

/// How many complaints are kept: more than there are kinds.
const COMPLAINTS: usize = 64;
/// What the server writes to who does what it may not do, with the subject in quotes.
const FORBIDDEN: [&str; 2] =
    ["ermissions Violation for Publish to", "ermissions Violation for Subscription to"];

/// Where connections come from.
#[derive(Debug, Clone)]
pub(super) enum Door {
    Address(Address),
    /// The application's, which comes back by itself.
    Client(Client),
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Client(client) => {
                let server = client.server_info();
                write!(f, "nats://{}:{}", server.host, server.port)
            }
        }
    }
}

/// A connection. What was sent before it broke is never sent again.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) client: Client,
    shown: String,
    /// How often the client had connected: more often, and it is another connection.
    connects: u64,
    is_given_up: AtomicBool,
    /// How many answers came.
    answers: AtomicU64,
    complaints: Complaints,
}

/// What the server complained of, beside the answers: it does not say of which request.
#[derive(Debug, Clone, Default)]
struct Complaints(Arc<Mutex<VecDeque<(Instant, String)>>>);

impl Complaints {
    fn hear(&self, complaint: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= COMPLAINTS {
            all.pop_front();
        }
        all.push_back((Instant::now(), complaint));
    }

    /// The newest since then that tells of this.
    fn of(&self, what: &str, since: Instant) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().rev().find(|(at, told)| *at >= since && told.contains(what)).map(|(_, told)| told.clone())
    }
}

/// What became of a write.
#[derive(Debug)]
pub(super) enum Put {
    /// Stored as this revision.
    Stored(u64),
    /// The key has another revision than the one that was named: this one, where it was told.
    Refused(Option<u64>),
    /// Nobody takes writes at the moment: there is no stream, or it has no leader. It did not happen.
    NoTaker,
    /// It did not happen, for this reason.
    Failed(StoreError),
    /// No answer came: it may have happened.
    Unanswered(StoreError),
}

/// Why there is no answer to a request.
enum Trouble {
    NoTaker,
    NotSent(String),
    NotAllowed(StoreError),
    Unanswered(String),
}

impl Link {
    /// Connects to the first host that can be reached.
    pub(super) async fn open(door: &Door) -> Result<Self, StoreError> {
        match door {
            Door::Client(client) if client.connection_state() == State::Connected => {
                Ok(Self::over(client.clone(), door, Complaints::default()))
            }
            Door::Client(_) => Err(StoreError::unavailable(format_args!(
                "the client that was handed in is not connected to {door}"
            ))),
            Door::Address(address) => {
                // Else rustls panics where the program has linked two providers and chosen none.
                if rustls::crypto::CryptoProvider::get_default().is_none() {
                    // Somebody else was faster: fine too.
                    let _ = rustls::crypto::ring::default_provider().install_default();
                }
                let mut failures: Vec<StoreError> = Vec::new();
                for host in address.hosts() {
                    let complaints = Complaints::default();
                    let (options, servers) = address.options(host)?;
                    let heard = complaints.clone();
                    let options = options.event_callback(move |event| {
                        if let Event::ServerError(error) = event {
                            heard.hear(error.to_string());
                        }
                        async {}
                    });
                    match options.connect(&servers[..]).await {
                        Ok(client) => return Ok(Self::over(client, door, complaints)),
                        Err(error) => {
                            failures.push(fault::unreached(&format!("the server {host} of {door}"), &error));
                        }
                    }
                }
                let is_final = failures.iter().all(|error| error.kind == StoreErrorKind::Misconfigured);
                let told = failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                Err(if is_final { StoreError::misconfigured(told) } else { StoreError::unavailable(told) })
            }
        }
    }

    fn over(client: Client, door: &Door, complaints: Complaints) -> Self {
        let connects = client.statistics().connects.load(Ordering::Relaxed);
        Self {
            client,
            shown: door.to_string(),
            connects,
            is_given_up: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            complaints,
        }
    }

    /// Whether it is still the connection that it was.
    pub(super) fn is_open(&self) -> bool {
        !self.is_given_up.load(Ordering::Acquire)
            && self.client.connection_state() == State::Connected
            && self.client.statistics().connects.load(Ordering::Relaxed) == self.connects
    }

    /// The next call makes another one.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
    }

    /// Asks JetStream.
    pub(super) async fn ask(
        &self,
        what: &str,
        question: &Value,
    ) -> Result<Result<Value, Refusal>, StoreError> {
        let request = Request::new().payload(question.to_string().into_bytes().into());
        let answer = self.request(format!("$JS.API.{what}"), request).await.map_err(|trouble| match trouble {
            Trouble::NoTaker => StoreError::unavailable(format_args!(
                "{self} has no JetStream that answers; start the servers with -js, or wait until they have found each other"
            )),
            Trouble::NotSent(why) | Trouble::Unanswered(why) => StoreError::unavailable(why),
            Trouble::NotAllowed(error) => error,
        })?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|error| self.foreign(&error))?;
        Ok(match Refusal::of(&answer) {
            Some(refusal) => Err(refusal),
            None => Ok(answer),
        })
    }

    /// Writes a key: on top of `revision`, where one is named. `None` deletes.
    pub(super) async fn put(&self, subject: String, revision: Option<u64>, value: Option<Vec<u8>>) -> Put {
        let mut headers = HeaderMap::new();
        if let Some(revision) = revision {
            headers.insert("Nats-Expected-Last-Subject-Sequence", revision.to_string().as_str());
        }
        if value.is_none() {
            headers.insert("KV-Operation", "DEL");
        }
        let request = Request::new().headers(headers).payload(value.unwrap_or_default().into());
        let answer = match self.request(subject, request).await {
            Ok(answer) => answer,
            Err(Trouble::NoTaker) => return Put::NoTaker,
            Err(Trouble::NotSent(why)) => return Put::Failed(StoreError::unavailable(why)),
            Err(Trouble::NotAllowed(error)) => return Put::Unanswered(error),
            Err(Trouble::Unanswered(why)) => return Put::Unanswered(StoreError::unknown(why)),
        };
        let answer: Value = match serde_json::from_slice(&answer) {
            Ok(answer) => answer,
            Err(error) => return Put::Unanswered(self.foreign(&error)),
        };
        match (Refusal::of(&answer), answer.get("seq").and_then(Value::as_u64)) {
            (Some(refusal), _) if refusal.is_wrong_revision() => Put::Refused(refusal.revision()),
            (Some(refusal), _) => Put::Failed(refusal.told(&self.shown)),
            (None, Some(revision)) => Put::Stored(revision),
            (None, None) => Put::Unanswered(self.foreign(&"it names no revision")),
        }
    }

    async fn request(&self, subject: String, request: Request) -> Result<Vec<u8>, Trouble> {
        if !self.is_open() {
            return Err(Trouble::NotSent(format!("the connection to {self} is broken")));
        }
        let since = Instant::now();
        let _silence = Silence { link: self, bytes: self.bytes(), since };
        let answer = self.client.send_request(subject.clone(), request.timeout(None));
        let answer =
            self.unless_lost(answer).await.ok_or_else(|| match self.not_allowed(&subject, since) {
                Some(error) => Trouble::NotAllowed(error),
                None => Trouble::Unanswered(format!("{self} gave no answer within {LOST:?}")),
            })?;
        self.answers.fetch_add(1, Ordering::Relaxed);
        match answer {
            Ok(message) => Ok(message.payload.to_vec()),
            Err(error) => {
                let why = fault::causes(&error);
                Err(match error.kind() {
                    RequestErrorKind::NoResponders => Trouble::NoTaker,
                    RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                        Trouble::NotSent(format!("{self} takes no such message ({why})"))
                    }
                    RequestErrorKind::TimedOut | RequestErrorKind::Other => {
                        self.give_up();
                        Trouble::Unanswered(format!("the connection to {self} broke ({why})"))
                    }
                })
            }
        }
    }

    /// A server that is busy with what was sent before is not silent.
    async fn unless_lost<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = std::pin::pin!(answer);
        for _ in 0..BUSY {
            let before = self.answers.load(Ordering::Relaxed);
            match tokio::time::timeout(LOST, &mut answer).await {
                Ok(answer) => return Some(answer),
                Err(_elapsed) if self.answers.load(Ordering::Relaxed) > before => {}
                Err(_elapsed) => return None,
            }
        }
        None
    }

    fn bytes(&self) -> u64 {
        self.client.statistics().in_bytes.load(Ordering::Relaxed)
    }

    /// Who may not publish to a subject, or hear the answer, gets none, and a complaint beside it.
    pub(super) fn not_allowed(&self, subject: &str, since: Instant) -> Option<StoreError> {
        let [publish, subscribe] = FORBIDDEN;
        let complaint = self
            .complaints
            .of(&format!("{publish} \"{subject}"), since)
            .or_else(|| self.complaints.of(&format!("{subscribe} \"_INBOX."), since))?;
        // Not which subject exactly: it is one reason for all of its kind.
        let kind = subject.split('.').next().unwrap_or_default();
        let what = if complaint.contains(publish) {
            format!("to publish to {kind}")
        } else {
            "to hear answers".to_owned()
        };
        Some(StoreError::misconfigured(format_args!(
            "{self} does not let this user do all that is needed ({what} is forbidden); allow it what the page security of the \
             guide (anarchon::guide::security) has: to publish to $KV.{bucket}.>, $JS.FC.KV_{bucket}.> and five subjects of \
             $JS.API that end in .KV_{bucket}, and to subscribe to _INBOX.>",
            bucket = bucket_of(subject)
        )))
    }

    /// An answer that no server gives.
    pub(super) fn foreign(&self, damage: &dyn fmt::Display) -> StoreError {
        StoreError::unknown(format_args!("{self} answered what anarchon does not understand ({damage})"))
    }
}

/// The bucket that a subject is about, or a word that stands for it.
fn bucket_of(subject: &str) -> &str {
    let bucket = subject.find("anarchon_").and_then(|at| subject[at..].split('.').next());
    bucket.unwrap_or("BUCKET")
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Sees whether a connection was silent for as long as a call waited, however the call ended.
struct Silence<'a> {
    link: &'a Link,
    bytes: u64,
    since: Instant,
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        if self.link.bytes() == self.bytes && self.since.elapsed() >= SILENT {
            self.link.give_up();
        }
    }
}
