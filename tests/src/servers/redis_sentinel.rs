//! A primary with one replica, watched by three sentinels.

use std::{fs, process::Command, thread};

use super::{
    Place, Recipe, Server,
    redis::{Kind, command, has_followed, is_primary},
};
use crate::wait::until_so;

/// All of it. The first of the two servers is the primary until a fail-over.
#[derive(Debug)]
pub struct Watched {
    /// The primary and its replica.
    pub servers: Vec<Server>,
    /// Who promotes one of them.
    pub sentinels: Vec<Server>,
    kind: Kind,
}

/// What the sentinels call the primary.
pub const NAME: &str = "mymaster";

impl Watched {
    /// Starts all and waits until each sentinel knows the others and the replica.
    #[must_use]
    pub fn start(kind: Kind) -> Self {
        let always = ["--appendonly", "yes", "--appendfsync", "always"];
        let primary = kind.with(always);
        let of = format!("127.0.0.1 {}", primary.port());
        let replica = kind.with(always.into_iter().chain(["--replicaof", &of]));
        until_so("the replica follows", || has_followed(replica.port()));
        let sentinels: Vec<Server> =
            (0..3).map(|_| Server::start(Sentinel { kind, primary: primary.port() })).collect();
        for sentinel in &sentinels {
            until_so("the sentinels know each other and the replica", || {
                let told = command(sentinel.port(), "INFO sentinel").unwrap_or_default();
                told.contains("status=ok") && told.contains("slaves=1") && told.contains("sentinels=3")
            });
        }
        Self { servers: vec![primary, replica], sentinels, kind }
    }

    /// What users write.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
        format!("{}+sentinel://{}/{NAME}", self.kind.scheme(), hosts.join(","))
    }

    /// The port of the primary that most sentinels see.
    #[must_use]
    pub fn primary(&self) -> Option<u16> {
        let mut ports: Vec<u16> = self.sentinels.iter().filter_map(named_by).collect();
        ports.sort_unstable();
        ports.get(ports.len() / 2).copied()
    }

    /// Waits until one of the two is the primary, all sentinels agree, and the other follows it. On a machine that
    /// stalls the sentinels may change their minds about which one.
    pub fn wait_until_whole(&self) {
        until_so("one of the two follows the other", || {
            let ports = self.servers.iter().map(Server::port);
            let (primary, replicas): (Vec<u16>, Vec<u16>) = ports.partition(|port| is_primary(*port));
            primary.iter().any(|port| self.is_named_by_all(*port)) && replicas.into_iter().any(has_followed)
        });
    }

    /// Whether all sentinels see the primary at this port.
    #[must_use]
    pub fn is_named_by_all(&self, port: u16) -> bool {
        self.sentinels.iter().all(|sentinel| named_by(sentinel) == Some(port))
    }
}

/// Who promoted whom, and when, is told by nobody else.
impl Drop for Watched {
    fn drop(&mut self) {
        if thread::panicking() {
            for server in self.servers.iter().chain(&self.sentinels) {
                eprintln!("the log of port {}:\n{}", server.port(), server.place().log());
            }
        }
    }
}

fn named_by(sentinel: &Server) -> Option<u16> {
    let answer = command(sentinel.port(), &format!("SENTINEL get-master-addr-by-name {NAME}")).ok()?;
    answer.lines().last()?.trim().parse().ok()
}

#[derive(Debug)]
struct Sentinel {
    kind: Kind,
    primary: u16,
}

impl Recipe for Sentinel {
    fn name(&self) -> String {
        format!("a sentinel of {:?}", self.kind)
    }

    /// It keeps what it learns in its configuration.
    fn prepare(&self, place: &Place) {
        let text = format!(
            "bind 127.0.0.1\nport {}\ndir {}\nsentinel monitor {NAME} 127.0.0.1 {} 2\nsentinel down-after-milliseconds {NAME} 2000\n\
             sentinel failover-timeout {NAME} 4000\n",
            place.port(),
            place.data().display(),
            self.primary
        );
        fs::write(place.data().join("sentinel.conf"), text).expect("a new file");
    }

    fn command(&self, place: &Place) -> Command {
        let mut command = Command::new(self.kind.program());
        command.arg(place.data().join("sentinel.conf")).arg("--sentinel");
        command
    }

    fn is_ready(&self, place: &Place) -> bool {
        command(place.port(), "PING").is_ok_and(|answer| answer.starts_with("+PONG"))
    }
}
