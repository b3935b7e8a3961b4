//! The stores, each started for one line alone.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anarchon::protocol::Namespace;
use anarchon_bench::processes;
use anarchon_tests::{
    servers::{
        Server, nats,
        port::Port,
        postgres,
        rabbitmq::{self, Broker},
        redis::Kind,
        store::backend,
        target,
    },
    site::Outage,
};
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _, SqliteConnection};
use tempfile::TempDir;

pub const NAMES: [&str; 7] = ["memory", "sqlite", "redis", "valkey", "postgres", "nats", "rabbitmq"];
/// All that several processes can share.
pub const SHARED: [&str; 6] = ["sqlite", "redis", "valkey", "postgres", "nats", "rabbitmq"];

/// RabbitMQ keeps a queue of 80 KB for each job.
pub fn most_jobs(store: &str) -> usize {
    if store == "rabbitmq" { 1000 } else { usize::MAX }
}

/// A store that runs.
pub struct Started {
    url: String,
    holder: Holder,
}

enum Holder {
    Memory,
    Sqlite(TempDir),
    Redis(Server),
    Postgres(Server),
    /// With the port where it tells what it counts.
    Nats(Server, Port),
    RabbitMq(Broker),
}

/// What a server has seen so far.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    /// CPU seconds.
    pub cpu: f64,
    /// Of its connections, both ways, as the kernel counts them.
    pub bytes: Option<u64>,
    /// Redis: commands, those in scripts too; PostgreSQL: transactions; NATS: messages from clients.
    pub commands: Option<u64>,
}

impl Seen {
    pub fn since(self, before: Self) -> Self {
        let grown = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
        Self {
            cpu: self.cpu - before.cpu,
            bytes: grown(self.bytes, before.bytes),
            commands: grown(self.commands, before.commands),
        }
    }
}

impl Started {
    /// Starts the store of this name.
    pub fn new(name: &str) -> Self {
        let redis = |kind: Kind| {
            // As the documentation of both advises who wants to keep what is acknowledged, but for a second.
            let server = kind.with(["--appendonly", "yes", "--appendfsync", "everysec"]);
            Self { url: kind.url(server.port()), holder: Holder::Redis(server) }
        };
        match name {
            "memory" => Self { url: "memory:".to_owned(), holder: Holder::Memory },
            "sqlite" => {
                // On the disk, where users have it.
                let folder = tempfile::tempdir_in(target()).expect("a folder");
                let url = format!("sqlite:{}", database(&folder).display());
                Self { url, holder: Holder::Sqlite(folder) }
            }
            "redis" => redis(Kind::Redis),
            "valkey" => redis(Kind::Valkey),
            "postgres" => {
                // It flushes as users have it.
                let server = postgres::Release::System.with(["fsync=on"]);
                Self { url: postgres::url(server.port()), holder: Holder::Postgres(server) }
            }
            "nats" => {
                let told = Port::free();
                let server = nats::Release::Newer.with([format!("http: \"127.0.0.1:{}\"", told.number())]);
                Self { url: nats::url(server.port()), holder: Holder::Nats(server, told) }
            }
            "rabbitmq" => {
                let broker = Broker::start();
                Self { url: rabbitmq::url(broker.server.port()), holder: Holder::RabbitMq(broker) }
            }
            _ => panic!("{name} is no store"),
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its kind and version, as the library found it.
    pub fn version(&self) -> String {
        if let Holder::Memory = self.holder {
            return "memory".to_owned();
        }
        let store = backend(&self.url);
        let namespace = Namespace::new("version").expect("a valid name");
        wait_for(async {
            let guarantees = store.open(&namespace).await.expect("a store that runs");
            store.close().await;
            guarantees.store
        })
    }

    fn server(&self) -> Option<&Server> {
        match &self.holder {
            Holder::Memory | Holder::Sqlite(_) => None,
            Holder::Redis(server) | Holder::Postgres(server) | Holder::Nats(server, _) => Some(server),
            Holder::RabbitMq(broker) => Some(&broker.server),
        }
    }

    fn server_mut(&mut self) -> Option<&mut Server> {
        match &mut self.holder {
            Holder::Memory | Holder::Sqlite(_) => None,
            Holder::Redis(server) | Holder::Postgres(server) | Holder::Nats(server, _) => Some(server),
            Holder::RabbitMq(broker) => Some(&mut broker.server),
        }
    }

    /// What it has seen so far, as a time begins that is looked at; nothing where there is no server. The question costs a server
    /// something too, PostgreSQL a process: that comes before the time.
    pub fn seen_at_first(&self) -> Option<Seen> {
        let counted = Seen { cpu: 0.0, bytes: bytes(self.server()?.port()), commands: self.commands() };
        Some(Seen { cpu: self.cpu()?, ..counted })
    }

    /// The same as it ends: the question comes behind it.
    pub fn seen_at_last(&self) -> Option<Seen> {
        let cpu = self.cpu()?;
        Some(Seen { cpu, bytes: bytes(self.server()?.port()), commands: self.commands() })
    }

    fn cpu(&self) -> Option<f64> {
        let pid = self.server()?.pid().as_raw_nonzero().get();
        Some(processes::cpu_seconds(u32::try_from(pid).ok()?))
    }

    fn commands(&self) -> Option<u64> {
        match &self.holder {
            Holder::Memory | Holder::Sqlite(_) | Holder::RabbitMq(_) => None,
            Holder::Redis(server) => number(&info(server.port()).ok()?, "total_commands_processed:"),
            Holder::Postgres(_) => {
                Some(self.ask_postgres("SELECT sum(xact_commit)::int8 FROM pg_stat_database"))
            }
            Holder::Nats(_, told) => {
                let ask = b"GET /varz HTTP/1.0\r\n\r\n";
                number(&talk(told.number(), ask).ok()?, "\"in_msgs\":")
            }
        }
    }

    fn ask_postgres(&self, question: &'static str) -> u64 {
        let answer: i64 = wait_for(async {
            let mut session = PgConnection::connect(&self.url).await.expect("a session");
            let answer = session.fetch_one(question).await.expect("an answer").get(0);
            let _ = session.close().await;
            answer
        });
        answer.unsigned_abs()
    }

    /// What it has written so far, as far as that can be told from outside.
    pub fn written(&self) -> Written {
        match &self.holder {
            Holder::Memory => Written::Count("changes", 0),
            Holder::Redis(server) => {
                let told = info(server.port()).expect("it answers");
                let changes = number(&told, "rdb_changes_since_last_save:").expect("it counts them");
                Written::Count("changes", changes)
            }
            Holder::Postgres(_) => {
                let question = "SELECT (pg_current_wal_insert_lsn() - '0/0')::int8";
                Written::Count("bytes of WAL", self.ask_postgres(question))
            }
            Holder::Nats(server, _) => {
                let told = nats::request(server.port(), "$JS.API.STREAM.LIST", "").expect("it answers");
                let newest = told.split("\"last_seq\":").skip(1).filter_map(leading_number).sum();
                Written::Count("messages", newest)
            }
            Holder::Sqlite(folder) => Written::Files(contents(folder.path(), "db")),
            // All that it keeps of queues; its tables change by the minute.
            Holder::RabbitMq(broker) => Written::Files(contents(&broker.server.place().data(), "msg_stores")),
        }
    }

    /// Makes it unusable for so long: a server is killed and started again, the file of SQLite is locked by somebody else.
    pub fn fail_for(&mut self, time: Duration) {
        if let Some(server) = self.server_mut() {
            server.fail(Outage::Vanishes);
            thread::sleep(time);
            server.recover(Outage::Vanishes);
        } else {
            wait_for(async {
                let mut other = SqliteConnection::connect(&self.url).await.expect("a connection");
                other.execute("PRAGMA busy_timeout = 10000; BEGIN EXCLUSIVE").await.expect("a lock");
                tokio::time::sleep(time).await;
                other.execute("COMMIT").await.expect("it is ours");
            });
        }
    }
}

/// What a store had written at some time.
pub enum Written {
    Count(&'static str, u64),
    Files(BTreeMap<PathBuf, Vec<u8>>),
}

impl Written {
    /// How much was written since, and what.
    pub fn since(&self, before: &Self) -> (u64, &'static str) {
        match (self, before) {
            (Self::Count(what, after), Self::Count(_, before)) => (after.saturating_sub(*before), what),
            (Self::Files(after), Self::Files(before)) => {
                let grown = |(name, bytes): (&PathBuf, &Vec<u8>)| {
                    let old = before.get(name).map_or(&[][..], Vec::as_slice);
                    let changed = bytes.iter().zip(old).filter(|(a, b)| a != b).count();
                    (changed + bytes.len().saturating_sub(old.len())) as u64
                };
                (after.iter().map(grown).sum(), "bytes of files")
            }
            _ => unreachable!("both are of one store"),
        }
    }
}

/// All files in this folder, at any depth, whose path says this.
fn contents(folder: &Path, part: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.append(&mut contents(&path, part));
        } else if path.to_string_lossy().contains(part)
            && !path.to_string_lossy().ends_with("-shm")
            && let Ok(bytes) = fs::read(&path)
        {
            files.insert(path, bytes);
        }
    }
    files
}

fn database(folder: &TempDir) -> PathBuf {
    folder.path().join("jobs.db")
}

/// What went over the connections of this port that there are, both ways; without the headers of packets.
fn bytes(port: u16) -> Option<u64> {
    let told = Command::new("ss")
        .args(["-tinH", "state", "established", &format!("( sport = :{port} )")])
        .output()
        .ok()
        .filter(|told| told.status.success())?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let sum = |what| told.split(what).skip(1).filter_map(leading_number).sum::<u64>();
    Some(sum("bytes_sent:") + sum("bytes_received:"))
}

fn info(port: u16) -> io::Result<String> {
    talk(port, b"INFO\r\nQUIT\r\n")
}

/// All that is answered until the connection ends.
fn talk(port: u16, said: &[u8]) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(said)?;
    let mut told = String::new();
    stream.read_to_string(&mut told)?;
    Ok(told)
}

fn number(told: &str, behind: &str) -> Option<u64> {
    leading_number(told.split_once(behind)?.1)
}

fn leading_number(text: &str) -> Option<u64> {
    text.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

pub fn wait_for<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(what)
}
