//! Signals: the first begins a shutdown, a later one ends the process.
//!
//! Whoever listens to a signal takes its default action away for good, so one thread of the process goes on listening
//! when no scheduler does any more, and then ends the process as the default would have.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::mpsc::UnboundedSender, time::Instant};
use tracing::{debug, info, warn};

use super::{driver::Message, report::say};

/// What comes so soon after a signal is the same wish: `timeout`, terminals and containers signal a process and then
/// its whole group.
const ONE_WISH: Duration = Duration::from_millis(500);

/// The schedulers that are to end at a signal, and whether the thread is there.
static LISTENERS: Mutex<Listeners> = Mutex::new(Listeners { thread: false, last: 0, open: Vec::new() });

struct Listeners {
    thread: bool,
    last: u64,
    open: Vec<Listener>,
}

struct Listener {
    id: u64,
    messages: UnboundedSender<Message>,
    told: bool,
}

/// As long as it is there, a signal shuts the scheduler down.
#[derive(Debug)]
pub(crate) struct Listening(u64);

/// Listens on a thread apart, so that a handler that blocks the caller's runtime does not delay it. Not to be called in
/// an asynchronous context.
pub(crate) fn listen(messages: &UnboundedSender<Message>) -> std::io::Result<Listening> {
    let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    if !listeners.thread {
        start_thread()?;
        listeners.thread = true;
    }
    listeners.last += 1;
    let id = listeners.last;
    listeners.open.push(Listener { id, messages: messages.clone(), told: false });
    Ok(Listening(id))
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.open.retain(|listener| listener.id != self.0);
    }
}

fn start_thread() -> std::io::Result<()> {
    let before = Dispositions::read();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _context = runtime.enter();
        Signals::new()?
    };
    std::thread::Builder::new()
        .name("anarchon-signals".to_owned())
        .spawn(move || runtime.block_on(obey(signals, before)))?;
    Ok(())
}

async fn obey(mut signals: Signals, before: Dispositions) {
    let mut obeyed: Option<Instant> = None;
    loop {
        let signal = signals.next().await;
        let name = signal.name;
        if obeyed.is_some_and(|at| at.elapsed() < ONE_WISH) {
            say(|| debug!(signal = name, "the same signal again"));
            continue;
        }
        let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        if listeners.open.is_empty() && before.is_somebody_elses(&signal) {
            continue;
        }
        obeyed = Some(Instant::now());
        let untold: Vec<_> = listeners.open.iter_mut().filter(|listener| !listener.told).collect();
        if untold.is_empty() {
            if !listeners.open.is_empty() {
                say(|| {
                    warn!(signal = name, "ending at once: runs that go on are lost until their leases end")
                });
            }
            drop(listeners);
            std::process::exit(signal.code);
        }
        for listener in untold {
            listener.told = true;
            // Nobody listens once the scheduler has ended by itself.
            let _ = listener.messages.send(Message::Shutdown);
        }
        drop(listeners);
        say(|| {
            info!(
                signal = name,
                "shutting down: no new runs, waiting for those that go on; signal again to end at once"
            );
        });
    }
}

/// A signal that came.
#[derive(Debug)]
struct Signal {
    name: &'static str,
    number: u32,
    /// Of a process that it ends: 128 + its number, as shells count.
    code: i32,
}

/// What was done about signals before this process listened to any.
#[derive(Debug, Default)]
struct Dispositions {
    /// One bit a signal: ignored, or handled by the program itself.
    set: u64,
}

impl Dispositions {
    /// As the system tells; where it does not, every signal counts as having had its default action.
    fn read() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = |name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            u64::from_str_radix(line.trim(), 16).unwrap_or(0)
        };
        Self { set: mask("SigIgn:") | mask("SigCgt:") }
    }

    fn is_somebody_elses(&self, signal: &Signal) -> bool {
        self.set & (1 << (signal.number - 1)) != 0
    }
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

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal { name: "SIGINT", number: 2, code: 130 },
            _ = self.terminate.recv() => Signal { name: "SIGTERM", number: 15, code: 143 },
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

    async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal { name: "ctrl-c", number: 2, code: 130 }
    }
}
