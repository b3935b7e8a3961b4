//! A TCP proxy between a client and a server, which can delay, cut and swallow.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::servers::port::Port;

/// What happens to bytes, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They pass.
    Pass,
    /// They pass so much later.
    Delay(Duration),
    /// They wait until they may pass, as behind a network that loses each packet: connections stay, nothing comes through.
    Hole,
    /// Connections are reset, new ones at once.
    Cut,
}

/// A proxy on a port of its own. Dropping it cuts all connections.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    /// Both ends of each connection.
    connections: Vec<TcpStream>,
    closed: bool,
}

impl Proxy {
    /// A proxy to this port of 127.0.0.1.
    ///
    /// # Panics
    /// When its own port is taken by somebody else.
    #[must_use]
    pub fn to(server: u16) -> Self {
        let port = Port::free();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).expect("a reserved port");
        let state = State { mode: Mode::Pass, connections: Vec::new(), closed: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let ours = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if ours.lock().closed {
                    return;
                }
                if let Ok(client) = client {
                    ours.connect(client, server);
                }
            }
        });
        Self { port, shared }
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Changes what happens from now on.
    pub fn set(&self, mode: Mode) {
        let mut state = self.shared.lock();
        state.mode = mode;
        if mode == Mode::Cut {
            state.cut();
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.set(Mode::Cut);
        // Wakes the listener, which then ends.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()));
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
    }
}

impl State {
    fn cut(&mut self) {
        for connection in self.connections.drain(..) {
            // Gone already: as good.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<Self>, client: TcpStream, server: u16) {
        let mut state = self.lock();
        if state.mode == Mode::Cut {
            return;
        }
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else { return };
        for (from, to) in [(&client, &server), (&server, &client)] {
            let _ = from.set_nodelay(true);
            if let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) {
                let shared = Arc::clone(self);
                thread::spawn(move || shared.pump(from, to));
            }
        }
        state.connections.extend([client, server]);
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 65_536];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if !self.may_pass() || to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    /// Waits until bytes may pass; never, where the connection is cut.
    fn may_pass(&self) -> bool {
        let mut state = self.lock();
        loop {
            match state.mode {
                Mode::Pass => return true,
                Mode::Cut => return false,
                Mode::Delay(delay) => {
                    drop(state);
                    thread::sleep(delay);
                    return true;
                }
                Mode::Hole => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
