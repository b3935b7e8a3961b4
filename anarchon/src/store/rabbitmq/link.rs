//! The connection of a handle: made at the first call, made anew by the next call after it broke or fell silent.
//!
//! Each piece of work has a channel of its own, from a pool. One on which anything failed is not used again: closing it
//! undoes what was not committed and gives back the token.

use std::{
    future::Future,
    net::{Shutdown, TcpStream},
    os::fd::{AsFd as _, BorrowedFd},
    sync::{
        Arc, Mutex as StdMutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_rs::TokioRuntime;
use futures_util::StreamExt as _;
use lapin::{
    Channel, Connection, ConnectionProperties, ErrorKind, Event,
    options::{BasicPublishOptions, QueueDeclareOptions, QueueDeleteOptions},
    tcp::{AMQPUriTcpExt, AsyncTcpStream},
    types::FieldTable,
    uri::AMQPUri,
};
use tokio::{
    sync::{Mutex, Semaphore, SemaphorePermit},
    time::timeout,
};

use super::{
    address::Address,
    fault::{self, failed},
    greeting::{Greeting, Heard, Listening},
};
use crate::store::StoreError;

/// The heartbeat when nobody said how long leases are to be, in seconds: half of the default lease.
const HEARTBEAT: u16 = 15;
/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(5);
/// How long the broker may take to answer one request, in parts of the heartbeat.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));
/// How long a connection that is given up may take to end by itself.
const GOODBYE: Duration = Duration::from_millis(500);
/// How much goes on at the same time on one connection, besides the runs.
const AT_ONCE: usize = 24;
/// After how many channels that ended by an error a new connection takes over; there are 2,047 numbers.
const SPENT: usize = 500;
/// How often a channel is tried to be made.
const NEW_CHANNEL: usize = 2 * SPENT;

/// How often a write is asked for again whose channel the broker ended without telling it why.
const RETOLD: usize = 5;
/// How many channels of each mode are kept for later.
const IDLE: usize = 2 * AT_ONCE;

/// Where connections come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Address(Box<Address>),
    /// One that was handed in; it cannot be made anew.
    Given(Arc<Connection>),
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Link {
    source: Source,
    pub(super) shown: String,
    heartbeat: AtomicU16,
    live: Mutex<Option<Arc<Live>>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Live {
    connection: Arc<Connection>,
    socket: Socket,
    version: Option<String>,
    shown: String,
    plain: StdMutex<Vec<Channel>>,
    transactions: StdMutex<Vec<Channel>>,
    work: Semaphore,
    blocked: Arc<StdMutex<Option<String>>>,
    /// How many channels ended by an error: lapin cannot use their numbers again.
    spent: AtomicUsize,
}

/// What a channel can be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// What is sent counts at once.
    Plain,
    /// What is published, acknowledged or returned counts with its commit, all of it or nothing. No way leads back.
    Transaction,
}

impl Link {
    pub(super) fn new(source: Source) -> Self {
        let shown = match &source {
            Source::Address(address) => address.to_string(),
            Source::Given(connection) => {
                format!("the RabbitMQ connection of {}", connection.status().username())
            }
        };
        Self { source, shown, heartbeat: AtomicU16::new(HEARTBEAT), live: Mutex::new(None) }
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// The heartbeat of connections made from now on: half of the shortest lease.
    pub(super) fn follow(&self, shortest_lease: Duration) {
        let half = u16::try_from(shortest_lease.as_secs() / 2).unwrap_or(u16::MAX).max(1);
        self.heartbeat.store(half, Ordering::SeqCst);
    }

    /// The connection, made if there is none.
    pub(super) async fn live(&self) -> Result<Arc<Live>, StoreError> {
        let mut live = self.live.lock().await;
        if let Some(live) = live.as_ref().filter(|live| live.is_good() || self.is_given()) {
            live.check_alarm()?;
            return Ok(Arc::clone(live));
        }
        // Runs keep the one of before for as long as they go on.
        *live = None;
        let made = Arc::new(self.connect().await?);
        *live = Some(Arc::clone(&made));
        Ok(made)
    }

    async fn connect(&self) -> Result<Live, StoreError> {
        let (socket, greeting) = (Socket::default(), Greeting::default());
        let connection = match &self.source {
            Source::Address(address) => Arc::new(self.dial(address, &socket, &greeting).await?),
            Source::Given(connection) if connection.status().connected() => Arc::clone(connection),
            Source::Given(_) => {
                return Err(StoreError::unavailable(format_args!(
                    "{} has ended, and only who made it can make it anew; name the server by URL",
                    self.shown
                )));
            }
        };
        let blocked = Arc::default();
        listen(&connection, &blocked, &self.shown);
        let (plain, transactions) = Default::default();
        let work = Semaphore::new(AT_ONCE);
        let (shown, spent, version) = (self.shown.clone(), AtomicUsize::new(0), greeting.version());
        Ok(Live { connection, socket, version, shown, plain, transactions, work, blocked, spent })
    }

    async fn dial(
        &self,
        address: &Address,
        socket: &Socket,
        greeting: &Greeting,
    ) -> Result<Connection, StoreError> {
        let uri = address.uri(self.heartbeat.load(Ordering::SeqCst));
        let name = format!("anarchon {}", env!("CARGO_PKG_VERSION"));
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let unreached = |error: &lapin::Error| fault::unreached(&self.shown, address.vhost(), error);
        let (tls, kept, greeting) = (address.tls()?, socket.clone(), greeting.clone());
        let connecting = Connection::connector(
            uri,
            Listening::runtime(),
            async move |uri: AMQPUri, _| {
                let runtime = TokioRuntime::tokio_current();
                let connecting = AMQPUriTcpExt::connect_with_config_async(&uri, tls.as_ref(), &runtime);
                let stream = timeout(CONNECTING, connecting).await.map_err(std::io::Error::from)??;
                kept.keep(match &stream {
                    AsyncTcpStream::Plain(tcp) => Some(tcp.get_ref().as_fd()),
                    AsyncTcpStream::Rustls(tls) => Some(tls.get_ref().0.get_ref().as_fd()),
                    _ => None,
                });
                Ok(AsyncTcpStream::Plain(Heard::new(stream, greeting.clone())))
            },
            properties,
        );
        if let Ok(made) = timeout(CONNECTING, connecting).await {
            return made.map_err(|error| unreached(&error));
        }
        socket.shut();
        Err(StoreError::unavailable(format_args!(
            "{} does not answer within {CONNECTING:?}; look whether it runs and whether the address is right",
            self.shown
        )))
    }

    fn is_given(&self) -> bool {
        matches!(&self.source, Source::Given(connection) if connection.status().connected())
    }

    pub(super) fn is_quorum(&self) -> bool {
        matches!(&self.source, Source::Address(address) if address.quorum)
    }

    pub(super) async fn close(&self) {
        if let Some(live) = self.live.lock().await.take()
            && matches!(self.source, Source::Address(_))
        {
            // Whatever it did not say goodbye to is told by the socket.
            let _ = live.connection.close(200, "closed".into()).await;
        }
    }
}

/// What is under a connection: lapin would wait for a broker that does not answer.
#[derive(Debug, Clone, Default)]
struct Socket(Arc<StdMutex<Option<TcpStream>>>);

impl Socket {
    fn keep(&self, socket: Option<BorrowedFd<'_>>) {
        let own = socket.and_then(|socket| socket.try_clone_to_owned().ok()).map(TcpStream::from);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = own;
    }

    /// Ends the connection. What was sent before still reaches the broker, and then its end.
    fn shut(&self) {
        if let Some(socket) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // An error tells that it has ended already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Notes what the broker says about its memory and its disk.
#[expect(clippy::disallowed_methods, reason = "alarms come by themselves; it ends with the connection")]
fn listen(connection: &Connection, blocked: &Arc<StdMutex<Option<String>>>, shown: &str) {
    let (mut events, shown) = (connection.events_listener(), shown.to_owned());
    let blocked = Arc::downgrade(blocked);
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            let Some(blocked) = blocked.upgrade() else { return };
            let mut blocked = blocked.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::ConnectionBlocked(reason) => {
                    tracing::warn!(
                        store = shown,
                        reason,
                        "RabbitMQ takes no writes: it has run low; free memory or disk space"
                    );
                    *blocked = Some(reason);
                }
                Event::ConnectionUnblocked => {
                    tracing::info!(store = shown, "RabbitMQ takes writes again");
                    *blocked = None;
                }
                _ => {}
            }
        }
    });
}

impl Live {
    /// The heartbeat that both sides agreed to.
    pub(super) fn heartbeat(&self) -> Duration {
        Duration::from_secs(self.connection.configuration().heartbeat().into())
    }

    /// The version of the broker, where it was heard.
    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    fn is_good(&self) -> bool {
        self.connection.status().connected() && !self.is_full()
    }

    /// Whether there are no channels left: the next piece of work has a new connection.
    pub(super) fn is_full(&self) -> bool {
        self.spent.load(Ordering::SeqCst) >= SPENT
    }

    /// Room for a piece of work.
    pub(super) async fn room(&self) -> Option<SemaphorePermit<'_>> {
        self.work.acquire().await.ok()
    }

    /// A channel with nothing on it.
    pub(super) async fn channel(&self, mode: Mode) -> Result<Channel, StoreError> {
        let kept = self.idle(mode).pop();
        if let Some(channel) = kept.filter(|channel| channel.status().connected()) {
            return Ok(channel);
        }
        let channel = self.new_channel().await?;
        match mode {
            Mode::Plain => {}
            Mode::Transaction => self.ask(channel.tx_select()).await?,
        }
        Ok(channel)
    }

    fn idle(&self, mode: Mode) -> MutexGuard<'_, Vec<Channel>> {
        let idle = match mode {
            Mode::Plain => &self.plain,
            Mode::Transaction => &self.transactions,
        };
        idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn new_channel(&self) -> Result<Channel, StoreError> {
        let mut tries = 0;
        loop {
            match self.request(self.connection.create_channel()).await? {
                Ok(channel) => return Ok(channel),
                // lapin gave it the number of one that ended by an error, and with it the error; not a second time.
                Err(error) if error.is_amqp_soft_error() && tries < NEW_CHANNEL => tries += 1,
                Err(error) if matches!(error.kind(), ErrorKind::ChannelsLimitReached) => {
                    self.spent.fetch_add(SPENT, Ordering::SeqCst);
                    return Err(failed(&self.shown, &error, false));
                }
                Err(error) => return Err(failed(&self.shown, &error, false)),
            }
        }
    }

    /// Takes back a channel on which all went well, with nothing open on it.
    pub(super) fn keep(&self, channel: Channel, mode: Mode) {
        let mut idle = self.idle(mode);
        if idle.len() < IDLE && channel.status().connected() {
            idle.push(channel);
        }
    }

    /// Waits for an answer to what cannot have written.
    pub(super) async fn ask<T>(
        &self,
        request: impl Future<Output = Result<T, lapin::Error>>,
    ) -> Result<T, StoreError> {
        self.request(request).await?.map_err(|error| failed(&self.shown, &error, false))
    }

    /// Waits for an answer to what may have written.
    pub(super) async fn send<T>(
        &self,
        request: impl Future<Output = Result<T, lapin::Error>>,
    ) -> Result<T, StoreError> {
        let unknown = |error: StoreError| StoreError::unknown(error);
        self.request(request).await.map_err(unknown)?.map_err(|error| failed(&self.shown, &error, true))
    }

    /// Waits for an answer, which may be an error that says something.
    pub(super) async fn request<T>(
        &self,
        request: impl Future<Output = Result<T, lapin::Error>>,
    ) -> Result<Result<T, lapin::Error>, StoreError> {
        let answer = self.wait(request).await?;
        if answer.as_ref().is_err_and(lapin::Error::is_amqp_soft_error) {
            self.spent.fetch_add(1, Ordering::SeqCst);
        }
        Ok(answer)
    }

    /// Waits for what is to come. A broker that gives none has lost this connection: what it may still do on it ends
    /// with it.
    pub(super) async fn wait<T>(&self, request: impl Future<Output = T>) -> Result<T, StoreError> {
        let patience = self.heartbeat().clamp(PATIENCE.0, PATIENCE.1);
        match timeout(patience, request).await {
            Ok(answer) => Ok(answer),
            Err(_elapsed) => {
                self.check_alarm()?;
                self.abandon();
                Err(StoreError::unavailable(format_args!(
                    "{} did not answer within {patience:?}",
                    self.shown
                )))
            }
        }
    }

    /// Nothing can be written while the broker has run low, and lapin sends nothing at all.
    fn check_alarm(&self) -> Result<(), StoreError> {
        match &*self.blocked.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(reason) => Err(StoreError::unavailable(format_args!(
                "{} has run low and takes no writes: {reason}; free memory or disk space, or raise its limits",
                self.shown
            ))),
        }
    }

    /// Gives up the connection without waiting.
    #[expect(clippy::disallowed_methods, reason = "nobody is to wait for a broker that does not answer")]
    fn abandon(&self) {
        let (connection, socket) = (Arc::clone(&self.connection), self.socket.clone());
        tokio::spawn(async move {
            let _ = timeout(GOODBYE, connection.close(320, "no answer".into())).await;
            socket.shut();
        });
    }

    /// Whether there is such a queue. Asked on a channel of its own, which ends with a «no».
    pub(super) async fn has(&self, queue: &str) -> Result<bool, StoreError> {
        let channel = self.channel(Mode::Plain).await?;
        match self.request(channel.queue_declare(queue.into(), passive(), FieldTable::default())).await? {
            Ok(_) => {
                self.keep(channel, Mode::Plain);
                Ok(true)
            }
            Err(error) if fault::is_not_found(&error) => Ok(false),
            Err(error) => Err(failed(&self.shown, &error, false)),
        }
    }

    /// Shows that the broker takes writes to a queue, by an empty message. It drops that if there is no such queue.
    pub(super) async fn write_nothing(&self, queue: &str) -> Result<(), StoreError> {
        let mut tries = 0;
        loop {
            let channel = self.channel(Mode::Transaction).await?;
            let written = async {
                let options = BasicPublishOptions::default();
                channel.basic_publish("".into(), queue.into(), options, b"", Default::default()).await?;
                channel.tx_commit().await
            };
            match self.request(written).await.map_err(StoreError::unknown)? {
                Ok(()) => {
                    self.keep(channel, Mode::Transaction);
                    return Ok(());
                }
                // The broker ended the channel before the commit was on its way: to learn why, ask again.
                Err(error)
                    if matches!(error.kind(), ErrorKind::InvalidChannelState(..)) && tries < RETOLD =>
                {
                    tries += 1;
                }
                Err(error) => return Err(failed(&self.shown, &error, true)),
            }
        }
    }

    /// Deletes a queue, if there is one.
    pub(super) async fn delete(&self, queue: &str) -> Result<(), StoreError> {
        let channel = self.channel(Mode::Plain).await?;
        self.send(channel.queue_delete(queue.into(), QueueDeleteOptions::default())).await?;
        self.keep(channel, Mode::Plain);
        Ok(())
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

/// Asks for a queue without making it.
pub(super) fn passive() -> QueueDeclareOptions {
    QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() }
}
