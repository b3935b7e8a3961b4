//! The server, and this backend's connections to it.

use std::{
    collections::VecDeque,
    fmt,
    str::FromStr as _,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection,
    postgres::{PgConnectOptions, PgRow},
};
use tokio::sync::SemaphorePermit;

use super::{
    HISTORY,
    calls::{Call, Calls},
    fault::{Failure, read_only},
    message::{Characters, Message},
    rows,
    schema::{self, Schema, Tables},
};
use crate::store::{
    Durability, Guarantees, StoreError, StoreErrorKind,
    columns::Damage,
    connect::{masked, masked_name, masked_user, misplaced, second_mark, told_of_parameter},
};

/// How many sessions work for an instance at most, those among them that nobody waits for any more.
const CONNECTIONS: usize = 2;
/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a goodbye may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a call is sent again that the server rolled back for the sake of others.
const CONFLICTS: usize = 10;
/// The oldest version that has all that we use, as the server counts them.
const OLDEST: i64 = 130_000;

/// Which server and database, as the user named them.
#[derive(Debug, Clone)]
pub(super) struct Target(PgConnectOptions);

impl Target {
    /// The target of a URL, the schema that it names, and whether it asks to listen.
    pub(super) fn parse(url: &str) -> Result<(Self, Schema, bool), String> {
        let wrong = |why: &str| {
            format!(
                "store {:?} is no URL of a PostgreSQL database: {why}; write postgres://user:password@host:port/database",
                masked(url)
            )
        };
        if let Some(why) = misplaced(url) {
            return Err(wrong(why));
        }
        let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
        if !["postgres://", "postgresql://"].iter().any(|scheme| address.starts_with(scheme)) {
            return Err(wrong("it does not begin with postgres://"));
        }
        let (mut schema, mut listens) = (Schema::default(), false);
        let mut kept = Vec::new();
        let parameters: Vec<&str> = parameters.split('&').filter(|parameter| !parameter.is_empty()).collect();
        for (place, parameter) in parameters.iter().copied().enumerate() {
            let wrong = |why: &str| wrong(&told_of_parameter(why.to_owned(), &parameters[..place]));
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if let Some(why) = second_mark(name, value) {
                return Err(wrong(why));
            }
            match name {
                "schema" if value.contains('%') => {
                    return Err(wrong("such a schema can only be set with PostgresBackend::schema"));
                }
                "schema" => schema = Schema::new(value).map_err(|why| wrong(&why))?,
                "listen" => {
                    listens = value.parse().map_err(|_| {
                        wrong(&format!("listen={} is neither true nor false", value.escape_debug()))
                    })?;
                }
                _ if PARAMETERS.contains(&name) || name.starts_with("options[") => kept.push(parameter),
                // The value may be a secret. sqlx would ignore it, after logging it.
                _ => {
                    return Err(wrong(&format!(
                        "parameter {:?} is none of {}",
                        masked_name(name),
                        PARAMETERS.join(", ")
                    )));
                }
            }
        }
        let options = PgConnectOptions::from_str(&format!("{address}?{}", kept.join("&")));
        let options = options.map_err(|error| wrong(&told_of_parameter(error.to_string(), &parameters)))?;
        Ok((Self::new(options), schema, listens))
    }

    pub(super) fn options(&self) -> PgConnectOptions {
        self.0.clone()
    }

    pub(super) fn new(options: PgConnectOptions) -> Self {
        let options = match options.get_application_name() {
            Some(_) => options,
            None => options.application_name("anarchon"),
        };
        // PgBouncer refuses a connection for this, and we read no such numbers.
        Self(options.extra_float_digits(None).statement_cache_capacity(0).disable_statement_logging())
    }
}

/// What sqlx reads from a URL, and what we do.
const PARAMETERS: [&str; 13] = [
    "schema",
    "listen",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
];

impl fmt::Display for Target {
    /// A URL without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.0;
        write!(f, "postgres://{}@", masked_user(options.get_username()))?;
        match options.get_socket() {
            Some(socket) => write!(f, "{}", socket.display())?,
            None => write!(f, "{}:{}", options.get_host(), options.get_port())?,
        }
        write!(
            f,
            "/{}",
            options.get_database().map_or_else(|| masked_user(options.get_username()), Into::into)
        )
    }
}

/// The server, as one backend uses it.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) target: Target,
    pub(super) schema: Schema,
    calls: Calls,
    idle: Mutex<VecDeque<Session>>,
    /// Whether sessions are to keep statements: as long as none turns out to be another one.
    keeps: AtomicBool,
    /// Whether the database can hold any character.
    utf8: AtomicBool,
}

impl Server {
    pub(super) fn new(target: Target, schema: Schema) -> Self {
        Self {
            target,
            schema,
            calls: Calls::new(CONNECTIONS),
            idle: Mutex::default(),
            keeps: AtomicBool::new(true),
            utf8: AtomicBool::new(true),
        }
    }

    pub(super) fn characters(&self) -> Characters {
        if self.utf8.load(Ordering::Relaxed) { Characters::All } else { Characters::Ascii }
    }

    /// Sends a call, and once more after making tables that went with their data.
    pub(super) async fn call(&self, message: &Message<'_>) -> Result<Vec<PgRow>, StoreError> {
        let failure = match self.send(Text::Call(message)).await {
            Ok(rows) => return Ok(rows),
            Err(failure) => failure,
        };
        if !failure.is_missing_table() {
            return Err(self.told(failure));
        }
        tracing::warn!(store = %self.target, "the tables are gone; making them anew");
        self.prepare().await?;
        self.send(Text::Call(message)).await.map_err(|failure| self.told(failure))
    }

    /// The same for a call that changes nothing: it may be repeated, and has not happened when there is no answer.
    pub(super) async fn read(&self, message: &Message<'_>) -> Result<Vec<PgRow>, StoreError> {
        match self.call(message).await {
            // A connection that was idle may have been dead for long.
            Err(error) if error.kind == StoreErrorKind::Unknown => {
                self.call(message).await.map_err(not_happened)
            }
            answer => answer,
        }
    }

    /// The same for what `open` asks, which has no tables yet.
    pub(super) async fn question(&self, text: &str) -> Result<Vec<PgRow>, StoreError> {
        let answer = match self.send(Text::Plain(text)).await {
            Err(failure) if failure.is_loss() => self.send(Text::Plain(text)).await,
            answer => answer,
        };
        answer.map_err(|failure| not_happened(self.told(failure)))
    }

    fn told(&self, failure: Failure) -> StoreError {
        failure.told(&self.target)
    }

    async fn send(&self, text: Text<'_>) -> Result<Vec<PgRow>, Failure> {
        for _ in 1..CONFLICTS {
            match self.send_once(text).await {
                Err(failure) if failure.is_conflict() => {}
                Err(failure) if failure.is_of_another_session() => {
                    tracing::debug!(store = %self.target, "the session is another one; statements are sent whole");
                    self.keeps.store(false, Ordering::Relaxed);
                }
                answer => return answer,
            }
        }
        self.send_once(text).await
    }

    async fn send_once(&self, text: Text<'_>) -> Result<Vec<PgRow>, Failure> {
        let (permit, mut session) = self.session().await?;
        // Dropped from here on, by a deadline, the connection goes with the call: nobody else gets its answer.
        let call = self.calls.begin(permit);
        match session.say(&call, text, self.keeps.load(Ordering::Relaxed)).await {
            Ok(rows) => {
                // Taken from one end and put back at the other, so that all stay in use and none dies unseen.
                self.idle().push_back(session);
                call.end();
                Ok(rows)
            }
            Err(error) => {
                let failure = Failure::Sent(error);
                if failure.leaves_the_connection_usable() && !session.prepares {
                    self.idle().push_back(session);
                }
                if failure.is_loss() {
                    // Something in between may have broken, and the server be busy with the call all the same.
                    self.idle().clear();
                    drop(call);
                } else {
                    call.end();
                }
                Err(failure)
            }
        }
    }

    /// A connection, and the right to send one call on it.
    async fn session(&self) -> Result<(SemaphorePermit<'_>, Session), Failure> {
        loop {
            if let Some(permit) = self.calls.permit().await {
                return Ok((permit, self.idle_session().await?));
            }
            let _turn = self.calls.turn().await;
            if !self.calls.all_are_abandoned() {
                continue;
            }
            let mut session = self.connect().await?;
            let waits = self.look_for_abandoned(&mut session).await?;
            if let Some(permit) = self.calls.permit_at_once() {
                return Ok((permit, session));
            }
            goodbye(session).await;
            if let (true, Some(waits)) = (self.calls.all_are_abandoned(), waits) {
                return Err(Failure::Told(StoreError::unavailable(format_args!(
                    "{} is still busy with the last {CONNECTIONS} calls, which were given up, and gets no more until then: it \
                     waits for {waits}",
                    self.target
                ))));
            }
        }
    }

    async fn idle_session(&self) -> Result<Session, Failure> {
        let idle = self.idle().pop_front();
        if let Some(mut session) = idle {
            if self.look_for_abandoned(&mut session).await.is_ok() {
                return Ok(session);
            }
            self.idle().clear();
        }
        let mut session = self.connect().await?;
        self.look_for_abandoned(&mut session).await?;
        Ok(session)
    }

    /// Sees which of the calls that were given up the server is done with, and says what it waits for with the others.
    async fn look_for_abandoned(&self, session: &mut Session) -> Result<Option<String>, Failure> {
        let before = self.calls.abandoned();
        if before.is_empty() {
            return Ok(None);
        }
        let question = AssertSqlSafe(self.calls.question());
        match sqlx::raw_sql(question).fetch_all(&mut session.connection).await {
            Ok(rows) => Ok(self.calls.judge(&before, &rows)),
            Err(error) if !Failure::is_loss_of(&error) => {
                tracing::debug!(store = %self.target, %error, "cannot see what the server is busy with");
                self.calls.forget(&before);
                Ok(None)
            }
            Err(error) => Err(Failure::Told(StoreError::unavailable(format_args!(
                "the connection to {} broke before a call was sent ({error})",
                self.target
            )))),
        }
    }

    /// Says goodbye on the connections that nobody uses.
    pub(super) async fn close(&self) {
        let idle = std::mem::take(&mut *self.idle());
        for session in idle {
            goodbye(session).await;
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, VecDeque<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Session, Failure> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.target.0.connect()).await {
            Ok(Ok(connection)) => Ok(Session { connection, prepared: Vec::new(), prepares: false }),
            Ok(Err(error)) => Err(Failure::Connect(error)),
            Err(_elapsed) => Err(Failure::Told(StoreError::unavailable(format_args!(
                "{} did not answer within {CONNECT_TIMEOUT:?}; look at host and port, and at what stands in between",
                self.target
            )))),
        }
    }

    /// Looks at the server, makes what is missing, and says what can be promised.
    pub(super) async fn open(&self) -> Result<Guarantees, StoreError> {
        let state = self.prepare().await?;
        let mut guarantees = Guarantees::new(format!("PostgreSQL {}", state.version));
        guarantees.history = HISTORY;
        guarantees.loses_on_failover = !state.is_replicated;
        if !state.flushes {
            guarantees.durability = Durability::Unsafe("the server runs with fsync = off".into());
        }
        Ok(guarantees)
    }

    async fn prepare(&self) -> Result<State, StoreError> {
        // Whatever stood in between may be gone.
        self.keeps.store(true, Ordering::Relaxed);
        let state = self.look().await?;
        self.utf8.store(state.is_utf8, Ordering::Relaxed);
        if state.number < OLDEST {
            return Err(StoreError::misconfigured(format_args!(
                "{} is PostgreSQL {}; version 13 is the oldest that works",
                self.target, state.version
            )));
        }
        if let Some(why) = state.read_only {
            return Err(StoreError::unavailable(read_only(&self.target, why)));
        }
        if self.tables().await? == Tables::Missing {
            self.create(&state).await?;
        }
        match self.tables().await? {
            Tables::Usable => {}
            Tables::Missing => return Err(self.missing(&state, "it was created, and is not there")),
            Tables::Forbidden(rights) => return Err(self.forbidden(&state, &rights)),
            Tables::Other(difference) => {
                return Err(StoreError::misconfigured(format_args!(
                    "schema {} of {} holds something else than the tables of this version of anarchon: {difference}; name \
                     another schema, or move that one away",
                    self.schema, self.target
                )));
            }
        }
        let version = self.question(&self.schema.version()).await?;
        match version.first().map(|row| rows::number::<i64>(row, 0)) {
            Some(Ok(schema::VERSION)) => Ok(state),
            Some(Ok(version)) => Err(StoreError::misconfigured(format_args!(
                "schema {} of {} has version {version}, and this program knows version {}: a newer anarchon has migrated it; \
                 update this program, or name another schema",
                self.schema,
                self.target,
                schema::VERSION
            ))),
            Some(Err(_)) | None => Err(StoreError::misconfigured(format_args!(
                "table meta in schema {} of {} holds no version; put INSERT INTO {}.meta (version) VALUES ({})",
                self.schema,
                self.target,
                self.schema,
                schema::VERSION
            ))),
        }
    }

    async fn tables(&self) -> Result<Tables, StoreError> {
        let columns = self.question(&self.schema.columns()).await?;
        schema::judge(&columns).map_err(|damage| self.not_understood(&damage))
    }

    async fn create(&self, state: &State) -> Result<(), StoreError> {
        match self.send(Text::Plain(&self.schema.migration(state.has_schema))).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_missing_right() => {
                Err(self.missing(state, "this user may not create it"))
            }
            // Repeating it changes nothing.
            Err(failure) => Err(not_happened(self.told(failure))),
        }
    }

    fn missing(&self, state: &State, why: &str) -> StoreError {
        StoreError::misconfigured(format_args!(
            "{} does not have the tables of anarchon in schema {}: {why}; let somebody who may do so run this SQL, or give \
             this user the right CREATE on the database:\n\n{}\n{}",
            self.target,
            self.schema,
            self.schema.creation(),
            self.schema.grants(&state.role)
        ))
    }

    fn forbidden(&self, state: &State, rights: &str) -> StoreError {
        StoreError::misconfigured(format_args!(
            "{} does not let user {:?} use the tables of anarchon in schema {}: it lacks {rights}; let their owner run this \
             SQL:\n\n{}",
            self.target,
            state.role,
            self.schema,
            self.schema.grants(&state.role)
        ))
    }

    async fn look(&self) -> Result<State, StoreError> {
        let rows = self.question(&self.schema.look()).await?;
        let row = rows.first().ok_or_else(|| self.not_understood("it does not say what it is"))?;
        State::read(row).map_err(|damage| self.not_understood(&damage))
    }

    fn not_understood(&self, what: &str) -> StoreError {
        StoreError::misconfigured(format_args!(
            "{} does not answer as PostgreSQL does: {what}; look at what listens there",
            self.target
        ))
    }
}

async fn goodbye(session: Session) {
    // A server that does not listen finds out by itself.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, session.connection.close()).await;
}

/// What is sent.
#[derive(Clone, Copy)]
enum Text<'a> {
    Plain(&'a str),
    Call(&'a Message<'a>),
}

/// A connection, with the names of the statements that its session keeps.
#[derive(Debug)]
struct Session {
    connection: PgConnection,
    prepared: Vec<String>,
    /// It was told to keep some more, and has not said yet that it does.
    prepares: bool,
}

impl Session {
    /// Sends a call; before the first one of its kind, what this session is to keep of it.
    async fn say(&mut self, call: &Call<'_>, text: Text<'_>, keeps: bool) -> Result<Vec<PgRow>, sqlx::Error> {
        let message = match text {
            Text::Plain(text) => return self.send(call, text).await,
            Text::Call(message) => message,
        };
        let Some(prepared) = message.prepared().filter(|_| keeps) else {
            return self.send(call, &message.whole()).await;
        };
        if !self.prepared.contains(&prepared.name) {
            self.prepares = true;
            self.send(call, &prepared.prepare).await?;
            self.prepared.push(prepared.name.clone());
            self.prepares = false;
        }
        self.send(call, &message.of_prepared(prepared)).await
    }

    async fn send(&mut self, call: &Call<'_>, text: &str) -> Result<Vec<PgRow>, sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(call.marked(text))).fetch_all(&mut self.connection).await
    }
}

fn not_happened(error: StoreError) -> StoreError {
    match error.kind {
        StoreErrorKind::Unknown => StoreError::unavailable(error),
        StoreErrorKind::Unavailable | StoreErrorKind::Misconfigured => error,
    }
}

/// What `look.sql` says.
struct State {
    version: String,
    number: i64,
    read_only: Option<&'static str>,
    flushes: bool,
    is_replicated: bool,
    is_utf8: bool,
    role: String,
    has_schema: bool,
}

impl State {
    fn read(row: &PgRow) -> Result<Self, Damage> {
        let read_only = match (rows::flag(row, 2)?, rows::flag(row, 3)?) {
            (true, _) => Some("it is a replica"),
            (false, true) => Some("default_transaction_read_only is on"),
            (false, false) => None,
        };
        let waits = matches!(rows::text(row, 5)?.as_str(), "off" | "on" | "remote_write" | "remote_apply");
        Ok(Self {
            version: rows::text(row, 0)?,
            number: rows::number(row, 1)?,
            read_only,
            flushes: rows::flag(row, 4)?,
            is_replicated: waits && rows::flag(row, 6)?,
            is_utf8: rows::flag(row, 7)?,
            role: rows::text(row, 8)?,
            has_schema: rows::flag(row, 9)?,
        })
    }
}
