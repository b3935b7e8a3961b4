//! `postgres`, and PgBouncer in front of it.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tempfile::TempDir;

use super::{
    Place, Recipe, Server, find_program, installed, program,
    store::ServerStore,
    user::{User, as_user, hand_over, write_all},
};
/// Which PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Of the folder that `ANARCHON_TEST_POSTGRES` names, or of the PATH, or of Debian's package.
    System,
    /// The newer one that `scripts/test` installed.
    Newer,
}

impl Release {
    /// A server that flushes nothing: what survives a crash of the machine is not what most tests are about.
    #[must_use]
    pub fn start(self) -> Server {
        self.with(["fsync=off"])
    }

    /// A server with further settings.
    #[must_use]
    pub fn with<S: Into<String>>(self, settings: impl IntoIterator<Item = S>) -> Server {
        Server::start(Postgres::new(self, settings))
    }

    /// A server for a scenario.
    #[must_use]
    pub fn store(self) -> ServerStore {
        ServerStore::new(self.start(), url)
    }

    /// The folder of its programs.
    ///
    /// # Panics
    /// When it is not there.
    #[must_use]
    pub fn programs(self) -> PathBuf {
        match self {
            Self::System => {
                let named = env::var_os("ANARCHON_TEST_POSTGRES").map(PathBuf::from);
                let of_path = || Some(find_program("initdb")?.parent()?.to_owned());
                named.or_else(of_path).or_else(of_debian).unwrap_or_else(|| {
                    panic!("there is no initdb in the PATH or in a package; scripts/test installs it")
                })
            }
            Self::Newer => {
                let folder = installed().join("postgres/bin");
                assert!(
                    folder.join("initdb").is_file(),
                    "there is no newer PostgreSQL; scripts/test installs it"
                );
                folder
            }
        }
    }
}

/// Debian keeps the server's programs out of the PATH.
fn of_debian() -> Option<PathBuf> {
    let packages =
        Command::new("dpkg-query").args(["-W", "-f", "${Package}\n", "postgresql-[1-9]*"]).output().ok()?;
    let packages = String::from_utf8(packages.stdout).ok()?;
    let programs = |package: &str| {
        let files = Command::new("dpkg").args(["-L", package]).output().ok()?;
        let files = String::from_utf8(files.stdout).ok()?;
        let initdb = files.lines().find(|file| file.ends_with("/bin/initdb"))?;
        Some(Path::new(initdb).parent()?.to_owned())
    };
    packages.lines().filter_map(programs).next_back()
}

/// The URL of the database that every server has from the start; the superuser needs no password.
#[must_use]
pub fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

/// Who runs it where we are root.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// How it is started. The programs refuse to run as root.
#[derive(Debug)]
pub struct Postgres {
    release: Release,
    programs: PathBuf,
    settings: Vec<String>,
    /// What is put into the data folder, over what is there.
    files: Vec<(String, String)>,
    user: Option<User>,
    /// Where the programs are when their usual place is closed to that user.
    _copy: Option<TempDir>,
}

impl Postgres {
    /// With settings such as `max_connections=5`.
    #[must_use]
    pub fn new<S: Into<String>>(release: Release, settings: impl IntoIterator<Item = S>) -> Self {
        let settings = settings.into_iter().map(Into::into).collect();
        let (programs, user) = (release.programs(), User::instead_of_root(&USERS));
        let mut recipe = Self { release, programs, settings, files: Vec::new(), user, _copy: None };
        if !recipe.can_run() {
            let copy = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a folder");
            fs::set_permissions(copy.path(), fs::Permissions::from_mode(0o755)).expect("our own folder");
            let root = recipe.programs.parent().expect("a folder above bin");
            let mut command = Command::new("cp");
            run(command.arg("-a").arg(root.join(".")).arg(copy.path()));
            recipe.programs = copy.path().join("bin");
            recipe._copy = Some(copy);
        }
        recipe
    }

    /// With a file in its data folder, such as a certificate.
    #[must_use]
    pub fn file(mut self, name: &str, content: &str) -> Self {
        self.files.push((name.to_owned(), content.to_owned()));
        self
    }

    fn can_run(&self) -> bool {
        self.as_user("postgres").arg("--version").output().is_ok_and(|output| output.status.success())
    }

    fn as_user(&self, name: &str) -> Command {
        as_user(self.user.as_ref(), &self.programs.join(name))
    }
}

impl Recipe for Postgres {
    fn name(&self) -> String {
        format!("postgres ({:?})", self.release)
    }

    fn prepare(&self, place: &Place) {
        hand_over(self.user.as_ref(), &place.data());
        let mut initdb = self.as_user("initdb");
        initdb.arg("-D").arg(place.data());
        run(initdb.args([
            "-A",
            "trust",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "--wal-segsize=1",
        ]));
        write_all(self.user.as_ref(), &place.data(), &self.files);
    }

    fn command(&self, place: &Place) -> Command {
        // Left by one that was killed, whose id may still be there to be waited for.
        let _ = fs::remove_file(place.data().join("postmaster.pid"));
        let mut command = self.as_user("postgres");
        command.arg("-D").arg(place.data()).arg("-p").arg(place.port().to_string());
        let mut set = |setting: &str| _ = command.args(["-c", setting]);
        set("listen_addresses=127.0.0.1");
        set("unix_socket_directories=");
        // In its folder, so that it goes with it when it is killed.
        set("dynamic_shared_memory_type=mmap");
        // Small: many of them are in memory at once.
        set("shared_buffers=16MB");
        set("max_wal_size=32MB");
        set("autovacuum_naptime=5s");
        self.settings.iter().for_each(|setting| set(setting));
        command
    }

    /// A segment of shared memory marks its data folder as in use; the kernel keeps it.
    fn tidy(&self, place: &Place) {
        let lock = fs::read_to_string(place.data().join("postmaster.pid")).unwrap_or_default();
        let segment = lock.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
        if let Some(segment) = segment {
            let _ = Command::new("ipcrm").args(["-m", segment]).output();
        }
    }

    /// After a crash the port accepts before the recovery is done.
    fn is_ready(&self, place: &Place) -> bool {
        takes_sessions(place.port()).unwrap_or(false)
    }
}

/// Whether it takes sessions, or says why it will not take this one.
fn takes_sessions(port: u16) -> std::io::Result<bool> {
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut startup = 196_608_u32.to_be_bytes().to_vec();
    startup.extend(b"user\0postgres\0database\0postgres\0\0");
    let length = u32::try_from(startup.len() + 4).expect("a short text");
    connection.write_all(&length.to_be_bytes())?;
    connection.write_all(&startup)?;
    let mut answer = [0; 1024];
    let read = connection.read(&mut answer)?;
    let not_yet = String::from_utf8_lossy(&answer[..read]).contains(CANNOT_CONNECT_NOW);
    Ok(read > 0 && !not_yet)
}

/// Starting up, or recovering.
const CANNOT_CONNECT_NOW: &str = "57P03";

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}{told}",
        String::from_utf8_lossy(&output.stdout)
    );
}

/// PgBouncer in transaction mode, in front of the server on that port.
#[must_use]
pub fn bouncer(port: u16) -> Server {
    Server::start(Bouncer { port, user: User::instead_of_root(&USERS) })
}

#[derive(Debug)]
struct Bouncer {
    port: u16,
    user: Option<User>,
}

impl Recipe for Bouncer {
    fn name(&self) -> String {
        "pgbouncer".to_owned()
    }

    fn command(&self, place: &Place) -> Command {
        let settings = place.folder().join("pgbouncer.ini");
        // Fewer connections to the server than clients have, so that they really share them. No other setting.
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 500\n",
            self.port,
            place.port()
        );
        // `any` takes one user for all.
        let text = text.replace("port=", "user=postgres port=");
        fs::write(&settings, text).expect("our own folder");
        let mut command = as_user(self.user.as_ref(), &program("pgbouncer"));
        command.arg("-q").arg(settings);
        command
    }

    fn is_ready(&self, place: &Place) -> bool {
        takes_sessions(place.port()).unwrap_or(false)
    }
}
