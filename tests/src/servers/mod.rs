//! Real servers for tests: each on a loopback port of its own, with a folder of its own, ended with its test.
//!
//! What differs between them is a [`Recipe`]; the rest is [`Server`].

pub mod nats;
pub mod nats_cluster;
pub mod port;
pub mod postgres;
pub mod rabbitmq;
pub mod redis;
pub mod redis_cluster;
pub mod redis_sentinel;
pub mod sqlite;
pub mod store;
mod user;

use std::{
    env,
    fmt::Debug,
    fs::{self, OpenOptions, Permissions},
    io::{BufRead as _, BufReader},
    iter,
    net::{SocketAddr, TcpStream},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use self::port::Port;
use crate::{
    certificates::Authority,
    freeze::{Freeze, freeze, is_alive},
    site::Outage,
    wait::until_so,
};

/// How one kind of server is started.
pub trait Recipe: Debug + Send + Sync {
    /// What to call it in messages.
    fn name(&self) -> String;
    /// Makes an empty data folder ready, where the server does not do so itself.
    fn prepare(&self, _place: &Place) {}
    /// The server in the foreground, with its data in the place's folder, listening on the place's port of 127.0.0.1.
    ///
    /// It is the program itself, or one that becomes it, as `setpriv` does: its process id is the server's.
    fn command(&self, place: &Place) -> Command;
    /// Removes what a killed server leaves outside of its folder.
    fn tidy(&self, _place: &Place) {}
    /// Whether it is ready, once its port accepts. May be asked again and again.
    fn is_ready(&self, _place: &Place) -> bool {
        true
    }
}

/// The folder with the data.
const DATA: &str = "data";

/// Where a server keeps its data, and where it listens.
#[derive(Debug)]
pub struct Place {
    folder: TempDir,
    port: Port,
}

impl Place {
    /// Everything about the server that is not its data: configuration, certificates, its log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The data alone; what `restart_empty` deletes. It exists and is empty at the first start.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder().join(DATA)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// What it printed, of all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder().join("log")
    }

    fn make_data_folder(&self) {
        fs::create_dir(self.data()).expect("a new folder");
    }
}

/// A running server. Dropping it ends it and deletes its folder; so does the end of the test process, however it ends.
#[derive(Debug)]
pub struct Server {
    recipe: Box<dyn Recipe>,
    // Before the place: it has to end before its folder goes.
    process: Option<Guarded>,
    place: Place,
}

impl Server {
    /// Starts it and waits until it is ready.
    ///
    /// # Panics
    /// When it cannot be started, with what it printed.
    #[must_use]
    pub fn start(recipe: impl Recipe + 'static) -> Self {
        // Where the disk is busy a flush may take longer than a lease; what disks do is shown elsewhere.
        let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a folder for a server");
        // Some servers do not run as root, and have to reach their data.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("our own folder");
        let place = Place { folder, port: Port::free() };
        place.make_data_folder();
        recipe.prepare(&place);
        let mut server = Self { recipe: Box::new(recipe), process: None, place };
        server.run();
        server
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.place.port()
    }

    /// The id of its main process.
    ///
    /// # Panics
    /// When it was killed.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.process.as_ref().expect("it was not killed").server
    }

    /// Makes it unusable.
    pub fn fail(&mut self, how: Outage) {
        match how {
            Outage::Hangs => self.freeze(),
            Outage::Vanishes => self.kill(),
        }
    }

    /// Makes it usable again, with its data.
    pub fn recover(&mut self, how: Outage) {
        match how {
            Outage::Hangs => self.thaw(),
            Outage::Vanishes => self.restart(),
        }
    }

    /// Stops it and the processes that it started in their tracks: connections stay, nothing answers, and nothing that
    /// it does is later than the return.
    ///
    /// # Panics
    /// When it has ended.
    pub fn freeze(&self) {
        // It first, so that it starts no more of them.
        let frozen = freeze(self.pid());
        assert_eq!(frozen, Freeze::Stopped, "{} ended:\n{}", self.recipe.name(), self.place.log());
        let mut generation = children(self.pid());
        while !generation.is_empty() {
            for process in &generation {
                // All at once. One may have ended meanwhile.
                let _ = kill_process(*process, Signal::STOP);
            }
            for process in &generation {
                let (Freeze::Stopped | Freeze::Ended) = freeze(*process);
            }
            generation = generation.into_iter().flat_map(children).collect();
        }
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        kill_process(self.pid(), Signal::CONT).expect("it is there until its guard is");
        for process in descendants(self.pid()) {
            // It may have ended meanwhile.
            let _ = kill_process(process, Signal::CONT);
        }
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        self.process = None;
        until_so(&format!("nobody listens on the port of {} any more", self.recipe.name()), || {
            TcpStream::connect_timeout(&self.address(), Duration::from_secs(1)).is_err()
        });
    }

    /// Starts it again after [`kill`](Self::kill), on the same port and data; kills it first if it runs.
    pub fn restart(&mut self) {
        self.kill();
        self.run();
    }

    /// The same without its data.
    ///
    /// # Panics
    /// When the data cannot be deleted.
    pub fn restart_empty(&mut self) {
        self.kill();
        fs::remove_dir_all(self.place.data()).expect("its data can be deleted");
        self.place.make_data_folder();
        self.recipe.prepare(&self.place);
        self.run();
    }

    fn run(&mut self) {
        let process = Guarded::start(&self.recipe.command(&self.place), &self.place);
        let name = self.recipe.name();
        until_so(&format!("{name} is ready"), || {
            let accepts = TcpStream::connect_timeout(&self.address(), Duration::from_secs(1)).is_ok();
            if accepts && self.recipe.is_ready(&self.place) {
                return true;
            }
            assert!(process.is_alive(), "{name} ended at once:\n{}", self.place.log());
            false
        });
        self.process = Some(process);
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port()))
    }
}

/// The processes that this one started, from whichever of its threads.
fn children(process: Pid) -> Vec<Pid> {
    let threads =
        fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let list = lists.collect::<String>();
    list.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)).collect()
}

/// And those that they started, and so on.
fn descendants(process: Pid) -> Vec<Pid> {
    children(process).into_iter().flat_map(|child| iter::once(child).chain(descendants(child))).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process = None;
        self.recipe.tidy(&self.place);
    }
}

/// A server under a guard: a shell that kills the server and deletes its folder when our end of a pipe closes, which
/// happens however we die.
#[derive(Debug)]
struct Guarded {
    guard: Child,
    server: Pid,
}

/// The server is a job of the guard, so its id cannot become somebody else's while the guard is there.
const GUARD: &str = r#"
folder=$1
shift
"$@" </dev/null >>"$folder/log" 2>&1 &
echo $!
exec >/dev/null 2>&1
read -r _
family() { echo $1; for child in $(cat /proc/$1/task/*/children); do family $child; done; }
kill -KILL $(family $!)
wait
rm -rf -- "$folder"
kill -KILL 0
"#;

impl Guarded {
    fn start(command: &Command, place: &Place) -> Self {
        OpenOptions::new().create(true).append(true).open(place.log_file()).expect("a log file");
        let mut shell = Command::new("sh");
        shell.args(["-c", GUARD, "guard"]).arg(place.folder()).arg(command.get_program());
        shell.args(command.get_args());
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(variable, value),
                None => shell.env_remove(variable),
            };
        }
        // A group of its own, to be killed as one and spared by whoever kills the test's.
        shell.current_dir(place.folder()).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = shell.spawn().expect("a shell");
        let mut line = String::new();
        let output = guard.stdout.take().expect("it was piped");
        BufReader::new(output).read_line(&mut line).expect("the guard tells the id of the server");
        let id = line.trim().parse().ok().and_then(Pid::from_raw);
        Self { guard, server: id.expect("a process id") }
    }

    fn is_alive(&self) -> bool {
        is_alive(self.server)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // The server first: once the guard is gone its id may be reused. What it started goes by itself, unless it is
        // frozen or a server too, and what it holds keeps the next start from coming about.
        let others = descendants(self.server);
        let _ = kill_process(self.server, Signal::KILL);
        for process in &others {
            let _ = kill_process(*process, Signal::KILL);
        }
        until_so("a killed server is gone", || !self.is_alive() && !others.iter().copied().any(is_alive));
        let _ = kill_process_group(Pid::from_child(&self.guard), Signal::KILL);
        let _ = self.guard.wait();
    }
}

/// What a server on this machine has to have for encrypted connections.
fn tls_files(authority: &Authority) -> [(String, String); 3] {
    let server = authority.issue("a server", &["localhost", "127.0.0.1"]);
    [
        ("authority.pem".to_owned(), authority.certificate().to_owned()),
        ("server.pem".to_owned(), server.certificate),
        ("server.key".to_owned(), server.key),
    ]
}

/// A program of the PATH.
///
/// # Panics
/// When it is not there, with the mend.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    find_program(name).unwrap_or_else(|| panic!("there is no {name} in the PATH; scripts/test installs it"))
}

/// The same, if it is there.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Where `scripts/test` puts servers that the system has no package of.
#[must_use]
pub fn installed() -> PathBuf {
    target().join("servers")
}

/// The workspace's folder for what is made and can be made again.
#[must_use]
pub fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target")
}
