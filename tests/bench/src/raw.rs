//! What a store can do at most: one small write each for whoever comes first, by its own client, as many in one go as a call has
//! claims, kept as well as a claim is.

use std::time::Duration;

use async_nats::{Client, HeaderMap, header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE};
use async_trait::async_trait;
use futures_util::future::try_join_all;
use lapin::{
    BasicProperties, Channel, ConnectionProperties,
    options::{BasicAckOptions, BasicGetOptions, BasicPublishOptions, QueueDeclareOptions},
    types::FieldTable,
};
use redis::aio::MultiplexedConnection;
use sqlx::{
    Connection as _, Executor as _, PgConnection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

/// A client of a store.
#[async_trait]
pub trait Raw: Send {
    /// Writes so many new things, and says how many it was the first to write.
    async fn write(&mut self, names: &[String]) -> usize;
}

/// The client of the store of this URL with this number, for so many in one go.
pub async fn connect(url: &str, client: usize, batch: usize) -> Box<dyn Raw> {
    match url.split(':').next() {
        Some("redis" | "valkey") => Box::new(Redis::connect(url).await),
        Some("postgres") => Box::new(Postgres::connect(url).await),
        Some("sqlite") => Box::new(Sqlite::connect(url).await),
        Some("nats") => Box::new(Nats::connect(url).await),
        Some("amqp") => Box::new(RabbitMq::connect(url, client, batch).await),
        _ => panic!("there is no client for {url}"),
    }
}

const HOLDER: &str = "instance-00000001";

struct Redis(MultiplexedConnection);

impl Redis {
    async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url.replace("valkey", "redis")).expect("a valid URL");
        Self(client.get_multiplexed_async_connection().await.expect("a connection"))
    }
}

#[async_trait]
impl Raw for Redis {
    async fn write(&mut self, names: &[String]) -> usize {
        let mut commands = redis::pipe();
        for name in names {
            commands.cmd("SET").arg(name).arg(HOLDER).arg("NX");
        }
        let answers: Vec<Option<String>> = commands.query_async(&mut self.0).await.expect("answers");
        answers.iter().flatten().count()
    }
}

struct Postgres(PgConnection);

const TABLE: &str = "CREATE TABLE IF NOT EXISTS raw (name text PRIMARY KEY, holder text)";

impl Postgres {
    async fn connect(url: &str) -> Self {
        let mut session = PgConnection::connect(url).await.expect("a session");
        // Made at the same time by two sessions, one of them is refused.
        let _ = session.execute(TABLE).await;
        Self(session)
    }
}

#[async_trait]
impl Raw for Postgres {
    async fn write(&mut self, names: &[String]) -> usize {
        let insert = sqlx::query("INSERT INTO raw SELECT unnest($1::text[]), $2 ON CONFLICT DO NOTHING");
        let done = insert.bind(names).bind(HOLDER).execute(&mut self.0).await.expect("an answer");
        usize::try_from(done.rows_affected()).expect("a small number")
    }
}

struct Sqlite(SqliteConnection);

impl Sqlite {
    /// In a file of its own, beside that of the store.
    async fn connect(url: &str) -> Self {
        let options = SqliteConnectOptions::new()
            .filename(format!("{}.raw", url.trim_start_matches("sqlite:")))
            .create_if_missing(true)
            .busy_timeout(Duration::from_secs(5))
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let mut connection = SqliteConnection::connect_with(&options).await.expect("a connection");
        connection.execute(TABLE).await.expect("a table");
        Self(connection)
    }
}

#[async_trait]
impl Raw for Sqlite {
    async fn write(&mut self, names: &[String]) -> usize {
        let list = format!("[\"{}\"]", names.join("\",\""));
        let insert = "INSERT INTO raw SELECT value, ?2 FROM json_each(?1) WHERE true ON CONFLICT DO NOTHING";
        let done = sqlx::query(insert).bind(list).bind(HOLDER).execute(&mut self.0).await.expect("an answer");
        usize::try_from(done.rows_affected()).expect("a small number")
    }
}

struct Nats(Client);

impl Nats {
    async fn connect(url: &str) -> Self {
        let client = async_nats::connect(url).await.expect("a connection");
        // Flushed as the bucket of a namespace is, which is a matter of the server.
        let stream = r#"{"name":"raw","subjects":["raw.>"],"storage":"file","max_msgs_per_subject":1}"#;
        client.request("$JS.API.STREAM.CREATE.raw", stream.into()).await.expect("a stream");
        Self(client)
    }
}

#[async_trait]
impl Raw for Nats {
    async fn write(&mut self, names: &[String]) -> usize {
        let mut first = HeaderMap::new();
        first.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, "0");
        let sent = names
            .iter()
            .map(|name| self.0.request_with_headers(format!("raw.{name}"), first.clone(), HOLDER.into()));
        let answers = try_join_all(sent).await.expect("answers");
        answers.iter().filter(|answer| !answer.payload.windows(7).any(|part| part == b"\"error\"")).count()
    }
}

/// A queue with one message for each of those that are written in one go: whoever has it may put a new one in its place.
struct RabbitMq {
    channel: Channel,
    queues: Vec<String>,
}

impl RabbitMq {
    async fn connect(url: &str, client: usize, batch: usize) -> Self {
        let connection =
            lapin::Connection::connect(url, ConnectionProperties::default()).await.expect("a connection");
        let channel = connection.create_channel().await.expect("a channel");
        channel.tx_select().await.expect("transactions");
        let raw = Self { channel, queues: (0..batch).map(|i| format!("raw-{client}-{i}")).collect() };
        for queue in &raw.queues {
            let durable = QueueDeclareOptions { durable: true, ..Default::default() };
            raw.channel
                .queue_declare((&**queue).into(), durable, FieldTable::default())
                .await
                .expect("a queue");
            raw.publish(queue).await;
        }
        raw.channel.tx_commit().await.expect("it is committed");
        raw
    }

    async fn publish(&self, queue: &str) {
        let properties = BasicProperties::default().with_delivery_mode(2);
        let options = BasicPublishOptions::default();
        let sent =
            self.channel.basic_publish("".into(), queue.into(), options, HOLDER.as_bytes(), properties).await;
        sent.expect("it is sent");
    }
}

#[async_trait]
impl Raw for RabbitMq {
    async fn write(&mut self, names: &[String]) -> usize {
        let queues = &self.queues[..names.len()];
        let got = queues
            .iter()
            .map(|queue| self.channel.basic_get((&**queue).into(), BasicGetOptions { no_ack: false }));
        let got = try_join_all(got).await.expect("answers");
        let mut written = 0;
        for (queue, message) in queues.iter().zip(got) {
            let Some(message) = message else { continue };
            self.publish(queue).await;
            let tag = message.delivery.delivery_tag;
            self.channel.basic_ack(tag, BasicAckOptions::default()).await.expect("it is sent");
            written += 1;
        }
        self.channel.tx_commit().await.expect("it is committed");
        written
    }
}
