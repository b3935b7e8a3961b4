//! `nats-server` with JetStream.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Error, Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    process::Command,
    time::Duration,
};

use super::{
    Place, Recipe, Server, find_program, installed, program, store::ServerStore, tls_files, user::write_all,
};
use crate::certificates::Authority;

/// Which NATS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Of the PATH, or of Debian's package.
    System,
    /// The newer one: named by `ANARCHON_TEST_NATS`, or the one that `scripts/test` installed.
    Newer,
}

impl Release {
    /// Both.
    pub const ALL: [Self; 2] = [Self::System, Self::Newer];

    /// A server that everybody may use.
    #[must_use]
    pub fn start(self) -> Server {
        self.with([""; 0])
    }

    /// A server with further lines of configuration, such as `authorization { token: "secret" }`.
    #[must_use]
    pub fn with<S: Into<String>>(self, lines: impl IntoIterator<Item = S>) -> Server {
        Server::start(Nats::new(self, lines))
    }

    /// A server for a scenario.
    #[must_use]
    pub fn store(self) -> ServerStore {
        ServerStore::new(self.start(), url)
    }

    /// The program of its server.
    ///
    /// # Panics
    /// When it is not installed.
    #[must_use]
    pub fn program(self) -> PathBuf {
        match self {
            Self::System => {
                // Where Debian has it, which is in the PATH of root only.
                let package = || Some(PathBuf::from("/usr/sbin/nats-server")).filter(|file| file.is_file());
                find_program("nats-server").or_else(package).unwrap_or_else(|| program("nats-server"))
            }
            Self::Newer => {
                let named = env::var_os("ANARCHON_TEST_NATS").map(PathBuf::from);
                let server = named.unwrap_or_else(|| installed().join("nats/bin/nats-server"));
                assert!(server.is_file(), "there is no newer NATS; scripts/test installs it");
                server
            }
        }
    }
}

/// The URL of a server that everybody may use.
#[must_use]
pub fn url(port: u16) -> String {
    format!("nats://127.0.0.1:{port}")
}

/// How it is started.
#[derive(Debug)]
pub struct Nats {
    release: Release,
    lines: Vec<String>,
    files: Vec<(String, String)>,
}

impl Nats {
    /// With further lines of configuration.
    #[must_use]
    pub fn new<S: Into<String>>(release: Release, lines: impl IntoIterator<Item = S>) -> Self {
        Self { release, lines: lines.into_iter().map(Into::into).collect(), files: Vec::new() }
    }

    /// With a file that the configuration names without a folder, such as a certificate.
    #[must_use]
    pub fn file(mut self, name: &str, content: &str) -> Self {
        self.files.push((name.to_owned(), content.to_owned()));
        self
    }

    /// With encryption, for hosts `localhost` and `127.0.0.1`, and only for clients that the authority signed if it
    /// asks for that.
    #[must_use]
    pub fn tls(mut self, authority: &Authority, clients_too: bool) -> Self {
        self.lines.push(format!(
            "tls {{ cert_file: server.pem, key_file: server.key, ca_file: authority.pem, verify: {clients_too} }}"
        ));
        self.files.extend(tls_files(authority));
        self
    }

    fn configuration(&self, place: &Place) -> String {
        // Older ones do not know the setting, and the machine that keeps what it has not flushed does not crash.
        let sync = match self.release {
            Release::System => "",
            Release::Newer => ", sync_interval: always",
        };
        let data = place.data();
        let mut text = format!("listen: \"127.0.0.1:{}\"\n", place.port());
        // By itself it takes what the disk has free, and an empty machine may have too little of that.
        text += &format!("jetstream {{ store_dir: \"{}\", max_file: 1G{sync} }}\n", data.display());
        text + &self.lines.join("\n") + "\n"
    }
}

impl Recipe for Nats {
    fn name(&self) -> String {
        format!("nats-server ({:?})", self.release)
    }

    fn prepare(&self, place: &Place) {
        write_all(None, place.folder(), &self.files);
    }

    fn command(&self, place: &Place) -> Command {
        let file = place.folder().join("nats.conf");
        fs::write(&file, self.configuration(place)).expect("our own folder");
        let mut command = Command::new(self.release.program());
        command.arg("--config").arg(file);
        command
    }

    /// It greets when it has read its data.
    fn is_ready(&self, place: &Place) -> bool {
        greeting(place.port()).is_ok_and(|greeting| greeting.contains("\"jetstream\":true"))
    }
}

fn connect(port: u16) -> std::io::Result<BufReader<TcpStream>> {
    let connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_read_timeout(Some(Duration::from_secs(2)))?;
    Ok(BufReader::new(connection))
}

/// What a server says of itself to everybody who connects.
///
/// # Errors
/// When nobody answers.
pub fn greeting(port: u16) -> std::io::Result<String> {
    line(&mut connect(port)?)
}

/// Asks on a connection of its own, without credentials, and returns the answer.
///
/// # Errors
/// When the server refuses, and when nobody answers.
pub fn request(port: u16, subject: &str, body: &str) -> std::io::Result<String> {
    let mut connection = connect(port)?;
    line(&mut connection)?;
    let ask = format!(
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"protocol\":1}}\r\nSUB answer.{0} 1\r\nPUB {subject} answer.{0} {1}\r\n{body}\r\n",
        fastrand::u64(..),
        body.len()
    );
    connection.get_mut().write_all(ask.as_bytes())?;
    loop {
        let line = line(&mut connection)?;
        let mut words = line.split_whitespace();
        match words.next() {
            Some("PING") => connection.get_mut().write_all(b"PONG\r\n")?,
            Some("MSG") => {
                let length = words
                    .last()
                    .and_then(|word| word.parse().ok())
                    .ok_or_else(|| Error::other(line.clone()))?;
                let mut answer = vec![0; length];
                connection.read_exact(&mut answer)?;
                return Ok(String::from_utf8_lossy(&answer).into_owned());
            }
            Some("INFO") => {}
            _ => return Err(Error::other(line)),
        }
    }
}

fn line(connection: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    connection.read_line(&mut line)?;
    Ok(line)
}
