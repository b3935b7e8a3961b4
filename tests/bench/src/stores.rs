//! The stores, each started for one case alone.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use anarchon_tests::servers::{
    Server, nats, postgres,
    rabbitmq::{self, Broker},
    redis::Kind,
};
use tempfile::TempDir;

pub const NAMES: [&str; 7] = ["memory", "sqlite", "redis", "valkey", "postgres", "nats", "rabbitmq"];

/// A store that runs.
pub struct Started {
    url: String,
    server: Option<Holder>,
    is_redis: bool,
    _folder: Option<TempDir>,
}

enum Holder {
    Server(Server),
    Broker(Broker),
}

/// What went over the network so far, both ways.
#[derive(Clone, Copy)]
pub struct Traffic {
    pub bytes: u64,
}

impl Traffic {
    pub fn since(self, before: Self) -> Self {
        Self { bytes: self.bytes - before.bytes }
    }
}

impl Started {
    /// Starts the store of this name.
    pub fn new(name: &str) -> Self {
        let of = |url: String, server| Self { url, server, is_redis: false, _folder: None };
        let redis = |kind: Kind| {
            // As the documentation of both advises who wants to keep what is acknowledged, but for a second.
            let server = kind.with(["--appendonly", "yes", "--appendfsync", "everysec"]);
            Self { is_redis: true, ..of(kind.url(server.port()), Some(Holder::Server(server))) }
        };
        match name {
            "memory" => of("memory:".to_owned(), None),
            "sqlite" => {
                // On the disk, where users have it.
                let folder = tempfile::tempdir_in(anarchon_tests::servers::target()).expect("a folder");
                let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
                Self { _folder: Some(folder), ..of(url, None) }
            }
            "redis" => redis(Kind::Redis),
            "valkey" => redis(Kind::Valkey),
            "postgres" => {
                // It flushes as users have it.
                let server = postgres::Release::System.with(["fsync=on"]);
                of(postgres::url(server.port()), Some(Holder::Server(server)))
            }
            "nats" => {
                let server = nats::Release::Newer.start();
                of(nats::url(server.port()), Some(Holder::Server(server)))
            }
            "rabbitmq" => {
                let broker = Broker::start();
                of(rabbitmq::url(broker.server.port()), Some(Holder::Broker(broker)))
            }
            _ => panic!("{name} is no store"),
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    fn server(&self) -> Option<&Server> {
        self.server.as_ref().map(|holder| match holder {
            Holder::Server(server) => server,
            Holder::Broker(broker) => &broker.server,
        })
    }

    pub fn pid(&self) -> Option<u32> {
        self.server().and_then(|server| u32::try_from(server.pid().as_raw_nonzero().get()).ok())
    }

    /// Where the server counts it.
    pub fn traffic(&self) -> Option<Traffic> {
        let server = self.server().filter(|_| self.is_redis)?;
        let told = info(server.port()).ok()?;
        let number =
            |name: &str| told.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        Some(Traffic { bytes: number("total_net_input_bytes:")? + number("total_net_output_bytes:")? })
    }
}

fn info(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"INFO stats\r\nQUIT\r\n")?;
    let mut told = String::new();
    stream.read_to_string(&mut told)?;
    Ok(told)
}
