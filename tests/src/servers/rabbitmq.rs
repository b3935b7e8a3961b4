//! `rabbitmq-server`, with the port mapper of Erlang for it alone.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use anarchon::protocol::Namespace;

use super::{
    DATA, Place, Recipe, Server,
    port::Port,
    store::ServerStore,
    tls_files,
    user::{User, as_user, hand_over, write_all},
};
use crate::{
    certificates::Authority,
    site::{Outage, TestStore},
};

/// A broker, and who operates it.
#[derive(Debug)]
pub struct Broker {
    /// What can be killed, frozen and restarted.
    pub server: Server,
    operator: Operator,
}

impl Broker {
    /// One with a virtual host `/` that everybody of this machine may use as `guest`, with password `guest`.
    #[must_use]
    pub fn start() -> Self {
        RabbitMq::new([""; 0]).start()
    }

    /// The broker for a scenario.
    #[must_use]
    pub fn store(self) -> ServerStore {
        ServerStore::new(self.server, url)
    }

    /// Who operates it, wherever it is.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.operator.clone()
    }

    /// Calls `rabbitmqctl`: see [`Operator::ctl`].
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.operator.ctl(arguments)
    }
}

/// Part of a broker that scenarios share, since a start costs seconds of CPU. It ends with the last of them.
#[derive(Debug)]
pub struct SharedBroker {
    broker: Arc<Broker>,
    namespace: Namespace,
}

impl SharedBroker {
    /// A namespace of its own on it.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn part() -> Self {
        static SHARED: Mutex<(Weak<Broker>, u32)> = Mutex::new((Weak::new(), 0));
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let broker = shared.0.upgrade().unwrap_or_else(|| {
            let broker = Arc::new(Broker::start());
            shared.0 = Arc::downgrade(&broker);
            broker
        });
        shared.1 += 1;
        let namespace = Namespace::new(&format!("faults-{}", shared.1)).expect("a valid name");
        Self { broker, namespace }
    }
}

impl TestStore for SharedBroker {
    fn url(&self) -> String {
        url(self.broker.server.port())
    }

    fn namespace(&self) -> Namespace {
        self.namespace.clone()
    }

    fn stop(&mut self, _how: Outage) {
        panic!("others use it too: the scenario belongs into ALONE");
    }

    fn resume(&mut self) {}
}

/// Who operates a broker.
#[derive(Debug, Clone)]
pub struct Operator {
    node: Arc<Node>,
    folder: PathBuf,
}

impl Operator {
    /// Calls `rabbitmqctl`, which takes more than a second, and returns what it printed.
    ///
    /// # Panics
    /// When it fails, with what it printed.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        // Nobody else is told where it listens, as it does not.
        let silent = ["RABBITMQ_CTL_ERL_ARGS=-dist_listen false".to_owned()];
        let mut command = self.node.environment(&self.folder.join(DATA), silent);
        command.arg(self.node.programs.join("rabbitmqctl")).arg("--quiet").args(arguments);
        command.current_dir(&self.folder);
        let output = command.output().expect("rabbitmqctl can be started");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "rabbitmqctl {arguments:?} failed:\n{told}{failed}");
        told
    }
}

/// The URL of a broker with nothing but `guest`.
#[must_use]
pub fn url(port: u16) -> String {
    format!("amqp://127.0.0.1:{port}")
}

/// How it is to be.
#[derive(Debug)]
pub struct RabbitMq {
    lines: Vec<String>,
    files: Vec<(String, String)>,
}

impl RabbitMq {
    /// With further lines of `rabbitmq.conf`, such as `consumer_timeout = 2000`.
    #[must_use]
    pub fn new<S: Into<String>>(lines: impl IntoIterator<Item = S>) -> Self {
        Self { lines: lines.into_iter().map(Into::into).collect(), files: Vec::new() }
    }

    /// With a file that a line names without a folder, such as a certificate.
    #[must_use]
    pub fn file(mut self, name: &str, content: &str) -> Self {
        self.files.push((name.to_owned(), content.to_owned()));
        self
    }

    /// With encryption on a port beside the plain one, for hosts `localhost` and `127.0.0.1`, and only for clients that
    /// the authority signed if it asks for that.
    #[must_use]
    pub fn tls(mut self, port: u16, authority: &Authority, clients_too: bool) -> Self {
        let verify = if clients_too { "verify_peer" } else { "verify_none" };
        self.lines.extend([
            format!("listeners.ssl.1 = 127.0.0.1:{port}"),
            "ssl_options.cacertfile = authority.pem".to_owned(),
            "ssl_options.certfile = server.pem".to_owned(),
            "ssl_options.keyfile = server.key".to_owned(),
            format!("ssl_options.verify = {verify}"),
            format!("ssl_options.fail_if_no_peer_cert = {clients_too}"),
        ]);
        self.files.extend(tls_files(authority));
        self
    }

    /// Starts it, which takes five seconds and more.
    #[must_use]
    pub fn start(self) -> Broker {
        let node = Arc::new(Node {
            settings: self,
            programs: programs(),
            user: User::instead_of_root(&["rabbitmq"]),
            mapper: Port::free(),
            nodes: Port::free(),
        });
        let server = Server::start(Arc::clone(&node));
        let folder = server.place().folder().to_owned();
        Broker { server, operator: Operator { node, folder } }
    }
}

/// The programs in the PATH switch users and log files by themselves; these do what they are told.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/rabbitmq/lib").into_iter().flatten().flatten();
    let mut programs: Vec<PathBuf> = versions.map(|version| version.path().join("sbin")).collect();
    programs.retain(|folder| folder.join("rabbitmq-server").is_file());
    programs.sort();
    programs.pop().expect("there is no RabbitMQ of a package; scripts/test installs it")
}

/// What a broker without plugins consists of, by the names of the folders. It reads all that it is offered, which is half of
/// what a start costs.
fn parts(programs: &Path) -> BTreeMap<String, PathBuf> {
    let folders = fs::read_dir(programs.with_file_name("plugins")).into_iter().flatten().flatten();
    let name = |folder: &Path| Some(folder.file_name()?.to_str()?.split_once('-')?.0.to_owned());
    let offered: BTreeMap<String, PathBuf> =
        folders.filter_map(|folder| Some((name(&folder.path())?, folder.path()))).collect();
    let mut parts = BTreeMap::new();
    let mut wanted = vec!["rabbit".to_owned()];
    while let Some(part) = wanted.pop() {
        let Some(folder) = offered.get(&part).filter(|_| !parts.contains_key(&part)) else { continue };
        let told = fs::read_to_string(folder.join(format!("ebin/{part}.app"))).unwrap_or_default();
        let needs = told.split_once("{applications,").and_then(|(_, rest)| rest.split_once(']'));
        let words = needs.map_or("", |(needs, _)| needs).split(|c: char| !c.is_alphanumeric() && c != '_');
        wanted.extend(words.map(str::to_owned));
        parts.insert(part, folder.clone());
    }
    parts
}

/// How it is started.
#[derive(Debug)]
struct Node {
    settings: RabbitMq,
    programs: PathBuf,
    user: Option<User>,
    /// Where Erlang's port mapper tells where nodes are.
    mapper: Port,
    /// Where the node speaks with others, such as `rabbitmqctl`.
    nodes: Port,
}

/// The folder with the parts of a broker.
const PARTS: &str = "parts";

/// The port mapper first: one that is started by the server is nobody's child. What is left becomes the server.
const START: &str = r#"
epmd &
until epmd -names; do sleep 0.05; done
exec "$0"
"#;

impl Node {
    /// A command with nothing of our environment that could lead it to another broker; what it does follows.
    fn environment(&self, data: &Path, more: impl IntoIterator<Item = String>) -> Command {
        let data = data.display();
        let mut command = as_user(self.user.as_ref(), Path::new("env"));
        command.arg("-i").args([
            format!("PATH={}", env::var("PATH").unwrap_or_default()),
            "LANG=C.UTF-8".to_owned(),
            // It keeps there what `rabbitmqctl` proves itself with.
            format!("HOME={data}"),
            format!("ERL_EPMD_PORT={}", self.mapper.number()),
            "ERL_EPMD_ADDRESS=127.0.0.1".to_owned(),
            "RABBITMQ_NODENAME=test@localhost".to_owned(),
            format!("RABBITMQ_CONF_ENV_FILE={data}/none"),
        ]);
        command.args(more);
        command
    }
}

impl Recipe for Arc<Node> {
    fn name(&self) -> String {
        "rabbitmq-server".to_owned()
    }

    fn prepare(&self, place: &Place) {
        hand_over(self.user.as_ref(), &place.data());
        let mut configuration = format!("listeners.tcp.1 = 127.0.0.1:{}\n", place.port());
        // By default it takes no messages where less than 50 MB are free, which may be all that there is in memory.
        configuration += "disk_free_limit.absolute = 1MB\n";
        configuration += &self.settings.lines.join("\n");
        let own = [("rabbitmq.conf", configuration + "\n"), ("plugins", "[].\n".to_owned())];
        write_all(self.user.as_ref(), place.folder(), &own.map(|(name, content)| (name.to_owned(), content)));
        write_all(self.user.as_ref(), place.folder(), &self.settings.files);
        let folder = place.folder().join(PARTS);
        if fs::create_dir(&folder).is_ok() {
            for at in parts(&self.programs).values() {
                symlink(at, folder.join(at.file_name().expect("it has a name"))).expect("our own folder");
            }
        }
    }

    fn command(&self, place: &Place) -> Command {
        let (folder, at) = (place.folder().display(), place.data());
        let data = at.display();
        let variables = [
            format!("RABBITMQ_DIST_PORT={}", self.nodes.number()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}".to_owned(),
            format!("RABBITMQ_CONFIG_FILE={folder}/rabbitmq.conf"),
            format!("RABBITMQ_ADVANCED_CONFIG_FILE={folder}/none.config"),
            format!("RABBITMQ_ENABLED_PLUGINS_FILE={folder}/plugins"),
            format!("RABBITMQ_PLUGINS_DIR={folder}/{PARTS}"),
            format!("RABBITMQ_MNESIA_BASE={data}"),
            format!("RABBITMQ_LOG_BASE={data}"),
            format!("RABBITMQ_PID_FILE={data}/pid"),
            "RABBITMQ_LOGS=-".to_owned(),
            // It becomes the server, instead of a shell that waits for it.
            "RUNNING_UNDER_SYSTEMD=true".to_owned(),
        ];
        let mut command = self.environment(&at, variables);
        command.args(["sh", "-c", START]).arg(self.programs.join("rabbitmq-server"));
        command
    }

    /// The port accepts before `rabbitmqctl` is welcome.
    fn is_ready(&self, place: &Place) -> bool {
        let log = place.log();
        let newest = log.rsplit("Starting RabbitMQ").next().unwrap_or_default();
        newest.contains("completed with") && greets(place.port()).unwrap_or(false)
    }
}

/// Whether it answers to the protocol's name with the first thing that it says to a client.
fn greets(port: u16) -> std::io::Result<bool> {
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_read_timeout(Some(Duration::from_secs(2)))?;
    connection.write_all(b"AMQP\0\0\x09\x01")?;
    let mut frame = [0; 11];
    connection.read_exact(&mut frame)?;
    // A method on channel 0: `connection.start`.
    Ok(frame[..3] == [1, 0, 0] && frame[7..] == [0, 10, 0, 10])
}
