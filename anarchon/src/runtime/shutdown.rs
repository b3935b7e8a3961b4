//! Signals: the first begins a shutdown, the second ends the process.

use tokio::sync::mpsc::UnboundedSender;
use tracing::{info, warn};

use super::driver::Message;

/// Listens on the scheduler's thread, so that a handler that blocks the caller's runtime does not delay it.
#[expect(clippy::disallowed_methods, reason = "runtime/ is where tasks are spawned")]
pub(crate) fn listen(messages: &UnboundedSender<Message>) -> std::io::Result<()> {
    let mut signals = Signals::new()?;
    let messages = messages.clone();
    tokio::spawn(async move {
        let (name, _) = signals.next().await;
        info!(
            signal = name,
            "shutting down: no new runs, waiting for those that go on; signal again to end at once"
        );
        // Nobody listens once the scheduler has ended by itself.
        let _ = messages.send(Message::Shutdown);
        let (name, code) = signals.next().await;
        warn!(signal = name, "ending at once: runs that go on are lost until their leases end");
        std::process::exit(code);
    });
    Ok(())
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next signal, and the exit code of a process that it ends: 128 + its number, as shells count.
    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", 130),
            _ = self.terminate.recv() => ("SIGTERM", 143),
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> (&'static str, i32) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        ("ctrl-c", 130)
    }
}
