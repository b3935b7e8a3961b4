//! The file, and this process's two connections to it.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use sqlx::{
    ConnectOptions as _, Connection as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteLockingMode, SqliteSynchronous},
};
use tokio::sync::{Mutex, MutexGuard};

use super::{
    fault::{self, Failure, told},
    rows, volume,
};
use crate::{
    clock::{Clock, Mono},
    store::{
        StoreError,
        connect::{EARLY_PARAMETER, holds_secret, masked, second_mark},
        host_clock::{Anchor, Judgement, Reading, Stance, judge},
    },
};

/// The version of the schema that this code reads and writes.
const SCHEMA: i64 = 1;
/// How long a statement waits for another process's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Which database, as the user named it. Nothing is touched until it is opened.
#[derive(Debug, Clone)]
pub(super) struct Target {
    options: SqliteConnectOptions,
    /// `None` is a database in memory.
    path: Option<PathBuf>,
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (place, parameters) = url.split_once('?').unwrap_or((url, ""));
        if holds_secret(place, true) {
            return Err(wrong_url(url, EARLY_PARAMETER));
        }
        let mut parameters =
            parameters.split('&').map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")));
        if let Some(why) = parameters.find_map(|(name, value)| second_mark(name, value)) {
            return Err(wrong_url(url, why));
        }
        let options: SqliteConnectOptions = url
            .strip_prefix("sqlite:")
            .ok_or_else(|| "it does not begin with sqlite:".to_owned())
            .and_then(|_| url.parse().map_err(|e: sqlx::Error| e.to_string()))
            .map_err(|why| wrong_url(url, &why))?;
        Self::new(options).map_err(|why| wrong_url(url, &why))
    }

    pub(super) fn new(options: SqliteConnectOptions) -> Result<Self, String> {
        // Only the query is of interest; sqlx panics over file names that are no host names.
        let url = options.clone().filename("x").create_if_missing(false).to_url_lossy();
        let is = |mode: &str| url.query_pairs().any(|(key, value)| key == "mode" && value == mode);
        if is("ro") {
            return Err("it asks for read-only access, and claims have to be written".into());
        }
        let name = options.get_filename();
        let in_memory = is("memory") || name == Path::new(":memory:");
        if name.as_os_str().is_empty() {
            return Err("it names no file".into());
        }
        let path = if in_memory {
            None
        } else {
            // The process may change its directory later. Two slashes at its begin would not come back from a URL of it.
            let name = std::path::absolute(name).map_err(|e| e.to_string())?;
            Some(name.components().collect())
        };
        let options = options
            .busy_timeout(BUSY_TIMEOUT)
            .disable_statement_logging()
            .foreign_keys(false)
            .immutable(false)
            .locking_mode(SqliteLockingMode::Normal)
            .optimize_on_close(false, None)
            // After a long read held it back, the log shrinks to this again.
            .pragma("journal_size_limit", "8388608")
            .read_only(false)
            // Rows come from another thread: the wider the channel, the fewer switches between the two.
            .row_buffer_size(256)
            .statement_cache_capacity(64)
            .synchronous(SqliteSynchronous::Full);
        Ok(Self { options, path })
    }

    pub(super) fn is_in_memory(&self) -> bool {
        self.path.is_none()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => path.display().fmt(f),
            None => f.write_str(":memory:"),
        }
    }
}

fn wrong_url(url: &str, why: &str) -> StoreError {
    // What was percent-encoded is repeated decoded.
    let why = why.replace(char::is_control, " ");
    StoreError::misconfigured(format_args!(
        "{:?} is no database for SQLite: {why}; write sqlite:path/to/file.db, or sqlite::memory:",
        masked(url)
    ))
}

/// Whether opening may create the file: only at a start, not when the file vanished under a running process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Create,
    Refuse,
}

/// What all handles of one backend share.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) target: Target,
    clock: Arc<dyn Clock>,
    boot: Option<String>,
    /// How far our wall clock was off when that was last reported, in µs; 0 while it is right.
    reported: AtomicI64,
    writer: Mutex<Link>,
    reader: Mutex<Link>,
}

/// One connection, and the file that it has open.
#[derive(Debug, Default)]
pub(super) struct Link {
    connection: Option<SqliteConnection>,
    file: Option<FileId>,
}

impl Database {
    pub(super) fn new(target: Target, clock: Arc<dyn Clock>) -> Self {
        Self {
            target,
            clock,
            boot: boot_id(),
            reported: AtomicI64::new(0),
            writer: Mutex::default(),
            reader: Mutex::default(),
        }
    }

    /// The same database, not opened yet, by another clock.
    pub(super) fn with_clock(&self, clock: Arc<dyn Clock>) -> Self {
        Self::new(self.target.clone(), clock)
    }

    pub(super) async fn writer(&self) -> MutexGuard<'_, Link> {
        self.writer.lock().await
    }

    /// The connection for reading; in memory there is only one.
    pub(super) async fn reader(&self) -> MutexGuard<'_, Link> {
        if self.target.is_in_memory() { self.writer.lock().await } else { self.reader.lock().await }
    }

    /// The link's connection to the file that is in place now.
    pub(super) async fn connection<'l>(
        &self,
        link: &'l mut Link,
        missing: Missing,
    ) -> Result<&'l mut SqliteConnection, Failure> {
        let connection = match link.connection.take() {
            Some(open) if self.is_in_place(link.file) => open,
            // Somebody deleted or replaced the file: this connection writes where nobody else reads.
            Some(_) | None => {
                let open = self.connect(missing).await?;
                link.file = self.target.path.as_deref().and_then(FileId::of);
                open
            }
        };
        Ok(link.connection.insert(connection))
    }

    /// Closes the connections. The last one of all processes brings the log home, so that the file alone is all there is.
    pub(super) async fn close(&self) {
        // In memory the connection is the data.
        if self.target.is_in_memory() {
            return;
        }
        for link in [&self.reader, &self.writer] {
            if let Some(open) = link.lock().await.connection.take() {
                // Whatever goes wrong, the next start finds the log.
                let _ = open.close().await;
            }
        }
    }

    /// Tells a failure to the user. All but a busy database costs the connection, so that the next call begins with
    /// a fresh look at the file.
    pub(super) fn failed(&self, link: &mut Link, failure: Failure) -> StoreError {
        let (told, busy) = match failure {
            Failure::Sql(error, phase) => (told(&error, phase, &self.target), fault::is_busy(&error)),
            Failure::Told(error) => (error, false),
        };
        // In memory the connection is the data.
        if !busy && !self.target.is_in_memory() {
            link.connection = None;
        }
        told
    }

    /// A database that does not hold what it should.
    pub(super) fn damaged(&self, damage: &str) -> StoreError {
        StoreError::misconfigured(format_args!(
            "the SQLite database \"{}\" is damaged: {damage}; stop all instances and put a backup in its place, or move the \
             file away to begin with an empty one",
            self.target
        ))
    }

    /// The store's time by this anchor, refusing a schema of another version.
    pub(super) fn judge(&self, version: i64, anchor: Option<&Anchor>) -> Result<Judgement, StoreError> {
        if version != SCHEMA {
            return Err(StoreError::misconfigured(format_args!(
                "the SQLite database \"{}\" has schema version {version}, and this program knows version {SCHEMA}: a newer \
                 anarchon has migrated it; update this program, or name another file",
                self.target
            )));
        }
        let judgement = judge(anchor, self.boot.as_deref(), Reading::of(&*self.clock));
        if !judgement.stance.must_be_kept() {
            self.report(judgement.stance);
        }
        Ok(judgement)
    }

    /// Judges by the clock alone, inside a transaction.
    pub(super) async fn read_clock(&self, connection: &mut SqliteConnection) -> Result<Judgement, Failure> {
        let row = sqlx::query(include_str!("read_meta.sql")).fetch_optional(connection).await?;
        let row = row.ok_or_else(|| self.damaged("its table anarchon_meta is empty"))?;
        let version = rows::number(&row, 0).map_err(|d| self.damaged(&d))?;
        // An anchor that cannot be read is made anew.
        Ok(self.judge(version, rows::anchor(&row, 1).ok().as_ref())?)
    }

    /// Says once how our wall clock stands to the store's; a new anchor only once it is kept.
    pub(super) fn report(&self, stance: Stance) {
        let off = match stance {
            Stance::Agrees | Stance::Founded | Stance::Stepped(_) => 0,
            Stance::Deviates(off) => off,
        };
        let before = self.reported.swap(off, Ordering::Relaxed);
        let (store, seconds) = (&self.target, |micros: i64| (micros + 500_000).div_euclid(1_000_000));
        if let Stance::Stepped(by) = stance {
            tracing::warn!(
                %store, by_s = seconds(by),
                "the clock of this host was set, and the store follows: what was planned in between starts late or is \
                 gone; let NTP slew the clock instead of setting it"
            );
        } else if off != 0 && (off - before).abs() > 1_000_000 {
            tracing::warn!(
                %store, off_s = seconds(off),
                "the wall clock of this process differs from the one that the other processes of this host agree on, which \
                 the store goes by; set it right, or look for what fakes the time of this process"
            );
        } else if off == 0 && before != 0 {
            tracing::info!(%store, "the wall clock of this process agrees with the store's again");
        }
    }

    fn is_in_place(&self, file: Option<FileId>) -> bool {
        match &self.target.path {
            None => true,
            Some(path) => file.is_some() && FileId::of(path) == file,
        }
    }

    async fn connect(&self, missing: Missing) -> Result<SqliteConnection, Failure> {
        if let Some(path) = &self.target.path {
            check_place(path, missing)?;
            volume::check(path)?;
        }
        let options = self.target.options.clone().create_if_missing(missing == Missing::Create);
        let mut connection = options.connect().await?;
        if !self.target.is_in_memory() {
            use_write_ahead_log(&mut connection).await?;
        }
        self.migrate(&mut connection).await?;
        Ok(connection)
    }

    /// Creates what is missing, and shows a read-only file although there is nothing to create.
    async fn migrate(&self, connection: &mut SqliteConnection) -> Result<(), Failure> {
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::raw_sql(include_str!("meta.sql")).execute(&mut *tx).await?;
        let is_new = sqlx::query(include_str!("read_meta.sql")).fetch_optional(&mut *tx).await?.is_none();
        let judgement = if is_new { self.judge(SCHEMA, None)? } else { self.read_clock(&mut tx).await? };
        sqlx::raw_sql(include_str!("schema.sql")).execute(&mut *tx).await?;
        // On a database that cannot be written SQLite makes a BEGIN IMMEDIATE one for reading, without a word, and one
        // whose log was left behind by a crash can be read: only a statement that would write is refused.
        sqlx::raw_sql("UPDATE anarchon_meta SET version = version WHERE false").execute(&mut *tx).await?;
        if let Some(anchor) = &judgement.anchor {
            put_anchor(&mut tx, anchor).await?;
        }
        // Repeating it changes nothing, so that even an unknown outcome may simply be tried again.
        tx.commit().await?;
        self.report(judgement.stance);
        Ok(())
    }
}

/// Keeps a new anchor.
pub(super) async fn put_anchor(
    connection: &mut SqliteConnection,
    anchor: &Anchor,
) -> Result<(), sqlx::Error> {
    let Mono(confirmed) = anchor.confirmed;
    sqlx::query(include_str!("put_meta.sql"))
        .bind(SCHEMA)
        .bind(anchor.boot.as_deref())
        .bind(anchor.skew)
        .bind(i64::try_from(confirmed).unwrap_or(i64::MAX))
        .execute(connection)
        .await?;
    Ok(())
}

/// The switch to the log needs the file for itself, and SQLite does not wait for that.
async fn use_write_ahead_log(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut busy = None;
    let switched = async {
        loop {
            match sqlx::query_scalar::<_, String>("PRAGMA journal_mode = WAL")
                .fetch_one(&mut *connection)
                .await
            {
                Ok(mode) => return Ok(mode),
                Err(e) if fault::is_busy(&e) => busy = Some(e),
                Err(e) => return Err(e),
            }
            pause().await;
        }
    };
    let Ok(switched) = tokio::time::timeout(BUSY_TIMEOUT, switched).await else {
        return Err(busy.unwrap_or(sqlx::Error::WorkerCrashed));
    };
    match switched?.as_str() {
        "wal" => Ok(()),
        mode => Err(sqlx::Error::Configuration(format!("it stays in journal mode {mode:?}").into())),
    }
}

// SQLite's own busy time-out does not cover the switch to a write-ahead log.
#[expect(
    clippy::disallowed_methods,
    reason = "a short wait for another process at open, under the caller's time-out"
)]
async fn pause() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// Says what is wrong with the place in plainer words than SQLite's «unable to open database file».
fn check_place(path: &Path, missing: Missing) -> Result<(), StoreError> {
    let shown = path.display();
    let directory = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() {
        return Err(StoreError::misconfigured(format_args!(
            "the SQLite database \"{shown}\" is a directory; name a file in it"
        )));
    }
    if path.is_file() {
        return Ok(());
    }
    if path.exists() {
        return Err(StoreError::misconfigured(format_args!(
            "the SQLite database \"{shown}\" is a device or a pipe; name a file"
        )));
    }
    match missing {
        Missing::Create if directory.is_dir() => Ok(()),
        Missing::Create => Err(StoreError::misconfigured(format_args!(
            "the directory of the SQLite database \"{shown}\" does not exist; create \"{}\", or name a file elsewhere",
            directory.display()
        ))),
        Missing::Refuse => Err(StoreError::unavailable(format_args!(
            "the SQLite database \"{shown}\" has vanished while it was in use; put it back, or restart one instance to begin \
             with an empty one"
        ))),
    }
}

/// Says whether a path still leads to the file that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    #[cfg(unix)]
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let found = std::fs::metadata(path).ok()?;
        Some(Self { device: found.dev(), inode: found.ino() })
    }

    /// Elsewhere an open file cannot be deleted.
    #[cfg(not(unix))]
    fn of(_path: &Path) -> Option<Self> {
        Some(Self { device: 0, inode: 0 })
    }
}

/// Tells one boot of the machine from the next, on Linux.
fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = id.trim();
    (!id.is_empty() && id.len() <= 100).then(|| id.to_owned())
}
