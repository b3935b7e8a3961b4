//! What a broker says first. lapin reads its version and keeps it to itself; so the stream under it listens along.

use std::{
    fmt,
    future::Future,
    io::{self, Read, Write},
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use async_rs::{
    Runtime, Tokio,
    traits::{Executor, Reactor, RuntimeKit},
    util::Task,
};
use futures_core::Stream;
use futures_util::io::{AsyncRead, AsyncWrite};
use lapin::tcp::AsyncTcpStream;

use super::quiet;

/// A connection of tokio, encrypted or not.
pub(super) type Socket = AsyncTcpStream<<Tokio as Reactor>::TcpStream>;

/// The longest greeting that is listened to. RabbitMQ's has half a kilobyte.
const LONGEST: usize = 64 * 1024;

const OLDEST: (u32, u32) = (3, 10);

/// What was heard at the beginning of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Greeting(Arc<Mutex<Vec<u8>>>);

impl Greeting {
    /// The version of the server, if it told one.
    pub(super) fn version(&self) -> Option<String> {
        version(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).map(str::to_owned)
    }

    fn is_complete(&self) -> bool {
        is_whole(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn hear(&self, bytes: &[u8]) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_whole(&heard) {
            heard.extend_from_slice(bytes);
        }
    }
}

/// Whether the first frame is there; its head tells how long it is.
fn is_whole(heard: &[u8]) -> bool {
    let length = heard.get(3..7).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes);
    length.is_some_and(|length| heard.len() >= LONGEST.min(length as usize + 8))
}

/// The entry `version` of the server's properties: the name with its length before it, `S`, and the text with its own.
fn version(heard: &[u8]) -> Option<&str> {
    const NAME: &[u8] = b"\x07versionS";
    let at = heard.windows(NAME.len()).position(|bytes| bytes == NAME)? + NAME.len();
    let length = u32::from_be_bytes(heard.get(at..at + 4)?.try_into().ok()?);
    let text = heard.get(at + 4..)?.get(..length as usize)?;
    std::str::from_utf8(text).ok()
}

/// Whether a version is one that was never tried.
pub(super) fn is_too_old(version: &str) -> bool {
    let mut numbers =
        version.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    numbers
        .next()
        .map(|major| (major, numbers.next().unwrap_or_default()))
        .is_some_and(|version| version < OLDEST)
}

/// A stream whose beginning is heard. What its thread logs is not, until we have logged in: the answer to the greeting does.
pub(super) struct Heard {
    stream: Socket,
    greeting: Greeting,
    has_logged_in: bool,
}

impl Heard {
    /// To be made by the thread that reads and writes it.
    pub(super) fn new(stream: Socket, greeting: Greeting) -> Self {
        quiet::begin();
        Self { stream, greeting, has_logged_in: false }
    }
}

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heard").finish_non_exhaustive()
    }
}

impl AsyncRead for Heard {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, greeting, .. } = self.get_mut();
        let read = Pin::new(stream).poll_read(context, into);
        if let Poll::Ready(Ok(length)) = &read {
            greeting.hear(&into[..*length]);
        }
        read
    }
}

impl AsyncWrite for Heard {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, greeting, has_logged_in } = self.get_mut();
        let written = Pin::new(stream).poll_write(context, bytes);
        if !*has_logged_in && written.is_ready() && greeting.is_complete() {
            *has_logged_in = true;
            quiet::end();
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_close(context)
    }
}

/// tokio, with such streams.
#[derive(Debug, Clone)]
pub(super) struct Listening(Tokio);

impl Listening {
    pub(super) fn runtime() -> Runtime<Self> {
        Runtime::new(Self(Tokio::current()))
    }
}

impl RuntimeKit for Listening {}

impl Executor for Listening {
    type Task<T: Send + 'static> = <Tokio as Executor>::Task<T>;

    fn block_on<T, F: Future<Output = T>>(&self, future: F) -> T {
        self.0.block_on(future)
    }

    fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        future: F,
    ) -> Task<Self::Task<T>> {
        self.0.spawn(future)
    }

    fn spawn_blocking<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        work: F,
    ) -> Task<Self::Task<T>> {
        self.0.spawn_blocking(work)
    }
}

impl Reactor for Listening {
    type TcpStream = Heard;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, length: Duration) -> Self::Sleep {
        self.0.sleep(length)
    }

    fn interval(&self, length: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(length)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Heard>> + Send + 'static {
        let connecting = self.0.tcp_connect_addr(address);
        async move { Ok(Heard::new(Socket::Plain(connecting.await?), Greeting::default())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As RabbitMQ sends it, cut down to what matters.
    fn greeting(properties: &[u8]) -> Vec<u8> {
        let mut method = vec![0, 10, 0, 10, 0, 9];
        method.extend(u32::try_from(properties.len()).unwrap().to_be_bytes());
        method.extend(properties);
        let mut frame = vec![1, 0, 0];
        frame.extend(u32::try_from(method.len()).unwrap().to_be_bytes());
        frame.extend(method);
        frame.push(0xce);
        frame
    }

    #[test]
    fn the_version_is_heard_however_many_pieces_it_comes_in() {
        let frame = greeting(b"\x07productS\0\0\0\x08RabbitMQ\x07versionS\0\0\0\x063.10.8");
        for pieces in 1..frame.len() {
            let heard = Greeting::default();
            for piece in frame.chunks(pieces) {
                heard.hear(piece);
            }
            assert_eq!(heard.version().as_deref(), Some("3.10.8"), "in pieces of {pieces}");
        }
    }

    #[test]
    fn nothing_is_kept_of_what_follows_the_greeting() {
        let heard = Greeting::default();
        let frame = greeting(b"");
        heard.hear(&frame);
        heard.hear(b"\x07versionS\0\0\0\x01x");
        assert_eq!((heard.version(), heard.0.lock().unwrap().len()), (None, frame.len()));
    }

    #[test]
    fn versions_before_3_10_are_too_old() {
        for old in ["3.9.29", "3.8", "2.1.0", "3"] {
            assert!(is_too_old(old), "{old}");
        }
        for new in ["3.10.8", "3.13.0-rc.1", "4.0.1", "10.0", "unknown", ""] {
            assert!(!is_too_old(new), "{new}");
        }
    }

    #[test]
    fn who_tells_no_version_or_half_of_one_has_none() {
        for properties in
            [&b""[..], b"\x07versionS\0\0\0\xff3.10.8", b"\x07versionS\0\0", b"\x07versionI\0\0\0\x01"]
        {
            let heard = Greeting::default();
            heard.hear(&greeting(properties)[..11 + properties.len().min(4)]);
            assert_eq!(heard.version(), None);
            let heard = Greeting::default();
            heard.hear(&greeting(properties));
            assert_eq!(heard.version(), None, "of {properties:?}");
        }
    }
}
