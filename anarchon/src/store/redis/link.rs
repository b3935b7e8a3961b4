//! One connection that comes back by itself.

use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, future::Shared, stream::FuturesUnordered};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, PushInfo, PushKind, Value,
    aio::MultiplexedConnection, cmd,
};

use super::{
    address::{Address, Host},
    fault,
};
use crate::store::StoreError;

/// How long an attempt to connect may take, TLS and login included.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a sentinel may think. There are others.
const SENTINEL: Duration = Duration::from_secs(1);

/// The way to one server, or to whichever is the primary. All calls share one connection, which is made when one is
/// needed and none is there.
pub(super) struct Link {
    address: Arc<Address>,
    door: Door,
    state: Mutex<State>,
}

#[derive(Debug, Clone)]
enum Door {
    Host(Host),
    Sentinels(String),
}

enum State {
    Idle,
    /// Shared, so that it goes on when the call that began it is cut off.
    Connecting(Connecting),
    Open(Arc<Wire>),
}

type Connecting = Shared<Pin<Box<dyn Future<Output = Result<Arc<Wire>, StoreError>> + Send>>>;

/// A connection.
struct Wire {
    connection: MultiplexedConnection,
    /// Cleared when the server closes it.
    is_open: Arc<AtomicBool>,
    /// How many replies came over it.
    replies: AtomicU64,
}

impl Link {
    pub(super) fn to_host(address: Arc<Address>, host: Host) -> Self {
        Self { address, door: Door::Host(host), state: Mutex::new(State::Idle) }
    }

    /// To the primary of this name, as the sentinels of the address know it.
    pub(super) fn by_sentinels(address: Arc<Address>, name: String) -> Self {
        Self { address, door: Door::Sentinels(name), state: Mutex::new(State::Idle) }
    }

    /// Sends commands and waits for all their replies, errors of the server among them.
    ///
    /// Dropped before the replies came, it leaves nothing behind: they are discarded when they come, and a connection that
    /// brought nothing meanwhile is given up, so that the next call makes a new one. The same happens when nothing at all
    /// comes for as long as `silence`; a server that is busy with what was sent before is not silent.
    pub(super) async fn exchange(
        &self,
        commands: &Pipeline,
        silence: Option<Duration>,
    ) -> Result<Vec<Value>, StoreError> {
        let is_silent = || format!("{self} gave no reply within {:?}", silence.unwrap_or_default());
        let Some(wire) = within(silence, self.wire()).await else {
            return Err(StoreError::unavailable(is_silent()));
        };
        let wire = wire?;
        let watch = Watch { link: self, wire: &wire, replies: wire.replies.load(Ordering::Relaxed) };
        let mut connection = wire.connection.clone();
        let mut sent = pin!(connection.send_packed_commands(commands, 0, commands.len()));
        let replies = loop {
            let before = wire.replies.load(Ordering::Relaxed);
            match within(silence, &mut sent).await {
                Some(replies) => break replies,
                None if wire.replies.load(Ordering::Relaxed) > before => {}
                None => {
                    self.forget(&wire);
                    return Err(StoreError::unknown(is_silent()));
                }
            }
        };
        match replies {
            Ok(values) if values.len() == commands.len() => {
                wire.replies.fetch_add(1, Ordering::Relaxed);
                drop(watch);
                Ok(values)
            }
            Ok(values) => {
                let damage = format!("{} replies to {} commands", values.len(), commands.len());
                Err(super::reply::foreign(&self.to_string(), &damage))
            }
            Err(error) => {
                self.forget(&wire);
                Err(fault::broken(&self.to_string(), &error))
            }
        }
    }

    /// The same for one command that changes nothing. Cut off, it says nothing about the connection: whoever asks several
    /// servers at once drops all but the first answer.
    pub(super) async fn ask(&self, question: &Cmd) -> Result<Value, StoreError> {
        let wire = self.wire().await?;
        let mut connection = wire.connection.clone();
        connection.send_packed_command(question).await.map_err(|error| {
            self.forget(&wire);
            StoreError::unavailable(fault::broken(&self.to_string(), &error))
        })
    }

    /// Lets go of the connection, which ends when no call in flight needs it any more; the next call makes a new one.
    pub(super) fn close(&self) {
        *self.lock() = State::Idle;
    }

    async fn wire(&self) -> Result<Arc<Wire>, StoreError> {
        let connecting = {
            let mut state = self.lock();
            match &*state {
                State::Open(wire) if wire.is_open.load(Ordering::Acquire) => return Ok(Arc::clone(wire)),
                State::Connecting(connecting) => connecting.clone(),
                State::Open(_) | State::Idle => {
                    let connecting = connect(Arc::clone(&self.address), self.door.clone()).boxed().shared();
                    *state = State::Connecting(connecting.clone());
                    connecting
                }
            }
        };
        let result = connecting.clone().await;
        let mut state = self.lock();
        if let State::Connecting(current) = &*state
            && current.ptr_eq(&connecting)
        {
            *state = match &result {
                Ok(wire) => State::Open(Arc::clone(wire)),
                Err(_) => State::Idle,
            };
        }
        result
    }

    fn forget(&self, wire: &Arc<Wire>) {
        let mut state = self.lock();
        if matches!(&*state, State::Open(current) if Arc::ptr_eq(current, wire)) {
            *state = State::Idle;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every write to it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.door {
            Door::Host(host) => write!(f, "the server {host} of {}", self.address),
            Door::Sentinels(_) => write!(f, "the primary of {}", self.address),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.door).finish()
    }
}

/// Sees whether a connection was silent for as long as a call waited.
struct Watch<'a> {
    link: &'a Link,
    wire: &'a Arc<Wire>,
    replies: u64,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.wire.replies.load(Ordering::Relaxed) == self.replies {
            self.link.forget(self.wire);
        }
    }
}

/// What comes in this time, where there is a limit.
async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, future).await.ok(),
        None => Some(future.await),
    }
}

async fn connect(address: Arc<Address>, door: Door) -> Result<Arc<Wire>, StoreError> {
    match door {
        Door::Host(host) => {
            let wire = open(address.client(&host)?, address.has_resp3());
            wire.await
                .map_err(|error| fault::unreached(&format!("the server {host} of {address}"), &error))
                .map(Arc::new)
        }
        Door::Sentinels(name) => connect_to_primary(&address, &name).await,
    }
}

async fn open(client: Client, tells_its_end: bool) -> redis::RedisResult<Wire> {
    // Else rustls panics where the program has linked two providers and chosen none.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else was faster: fine too.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let is_open = Arc::new(AtomicBool::new(true));
    // Our callers have deadlines of their own.
    let mut config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(None);
    if tells_its_end {
        let is_open = Arc::clone(&is_open);
        config = config.set_push_sender(move |info: PushInfo| {
            if info.kind == PushKind::Disconnection {
                is_open.store(false, Ordering::Release);
            }
            Ok::<(), redis::aio::SendError>(())
        });
    }
    let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    Ok(Wire { connection, is_open, replies: AtomicU64::new(0) })
}

/// Asks all sentinels at once, as right after a fail-over some still name the old primary, which may hang; believes none
/// that names a replica.
async fn connect_to_primary(address: &Address, name: &str) -> Result<Arc<Wire>, StoreError> {
    let mut failures = Vec::new();
    let asked = address.hosts.iter().map(|sentinel| primary_by(address, sentinel, name));
    let mut answers: FuturesUnordered<_> = asked.collect();
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(wire) => return Ok(Arc::new(wire)),
            Err(error) => failures.push(error),
        }
    }
    let told = failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let is_final = failures.iter().all(|error| error.kind == crate::store::StoreErrorKind::Misconfigured);
    match failures.pop() {
        Some(error) if is_final => Err(error),
        Some(_) | None => {
            Err(StoreError::unavailable(format_args!("no primary of {address} was found: {told}")))
        }
    }
}

async fn primary_by(address: &Address, sentinel: &Host, name: &str) -> Result<Wire, StoreError> {
    let shown = format!("the sentinel {sentinel} of {address}");
    let unreached = |error: &redis::RedisError| fault::unreached(&shown, error);
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(SENTINEL))
        .set_response_timeout(Some(SENTINEL));
    let client = address.sentinel(sentinel)?;
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(|error| unreached(&error))?;
    let mut question = cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(name);
    let answer: Option<(String, u16)> =
        question.query_async(&mut connection).await.map_err(|error| match error.detail() {
            Some(detail) if detail.contains("unknown command") => StoreError::misconfigured(format_args!(
                "{shown} knows no commands of sentinels; name the sentinels, whose port is 26379 mostly, or write redis:// in \
                 place of redis+sentinel:// for a server that holds data ({error})"
            )),
            Some(_) | None => unreached(&error),
        })?;
    let Some((host, port)) = answer else {
        return Err(StoreError::misconfigured(format_args!(
            "{shown} knows no primary \"{name}\"; write the name of its «sentinel monitor» line"
        )));
    };
    let host = Host { name: host, port };
    let server = format!("the server {host} that {shown} names");
    let mut wire = open(address.client(&host)?, address.has_resp3())
        .await
        .map_err(|error| fault::unreached(&server, &error))?;
    match role(&mut wire.connection).await {
        Ok(role) if role == "master" => Ok(wire),
        // Right after a fail-over, or while a sentinel is behind the others.
        Ok(role) => {
            Err(StoreError::unavailable(format_args!("{server} is a {role}; a fail-over is under way")))
        }
        // Where ROLE is forbidden a write tells.
        Err(error) if error.kind() != ErrorKind::Io => Ok(wire),
        Err(error) => Err(fault::unreached(&server, &error)),
    }
}

async fn role(connection: &mut MultiplexedConnection) -> redis::RedisResult<String> {
    let mut connection = connection.clone();
    connection.set_response_timeout(SENTINEL);
    let (role,): (String,) =
        match cmd("ROLE").query_async::<Vec<Value>>(&mut connection).await?.into_iter().next() {
            Some(first) => (redis::from_redis_value(first)?,),
            None => (String::new(),),
        };
    Ok(role)
}
