//! Free ports on 127.0.0.1 that stay ours.

use std::{
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
};

use crate::wait::until;

/// A port that no other test of this machine takes while this is there, also between two starts of a server.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// The name of it in the kernel is the reservation, and goes with the process.
    _reservation: UnixListener,
}

/// Below the ports that the system gives to outgoing connections: a client that knocks again and again at the port of a
/// server that is away would sooner or later be given that port for its own end, and answer itself.
const RANGE: std::ops::Range<u16> = 10_240..32_768;

impl Port {
    /// A port that nobody listens on.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn free() -> Self {
        until("there is a free port", || {
            let number = fastrand::u16(RANGE);
            let name = SocketAddr::from_abstract_name(format!("anarchon-test-port-{number}")).ok()?;
            let reservation = UnixListener::bind_addr(&name).ok()?;
            TcpListener::bind(("127.0.0.1", number)).ok()?;
            Some(Self { number, _reservation: reservation })
        })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}
