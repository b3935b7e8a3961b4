//! `LISTEN`: what hears at once that an operator gave an order elsewhere. Only ever a hint; nothing depends on it.

use std::time::Duration;

use futures_util::{Stream, stream};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgRow};

use super::{
    rows,
    server::{Server, Target},
};
use crate::{
    protocol::{JobName, Namespace},
    store::StoreError,
};

/// Where orders are told; the payload names namespace and job.
const CHANNEL: &str = "anarchon";
/// How long the connection may take to come about, and how long a notification to come through.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Between two attempts to listen.
const PAUSE: Duration = Duration::from_secs(5);

/// The jobs of a namespace that orders are given for, from all schemas of the database. Connects by itself, again and again.
pub(super) fn hints(target: Target, namespace: Namespace) -> impl Stream<Item = JobName> + Send {
    let listening = Listening { target, namespace, listener: None };
    stream::unfold(listening, |mut listening| async move {
        let job = listening.next().await;
        Some((job, listening))
    })
}

struct Listening {
    target: Target,
    namespace: Namespace,
    listener: Option<PgListener>,
}

impl Listening {
    async fn next(&mut self) -> JobName {
        loop {
            let heard = match &mut self.listener {
                Some(listener) => listener.recv().await,
                None => match listen(self.target.options()).await {
                    Ok(listener) => {
                        self.listener = Some(listener);
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            match heard.map(|told| read(told.payload(), &self.namespace)) {
                Ok(Some(job)) => return job,
                Ok(None) => {}
                Err(error) => {
                    self.listener = None;
                    // Calls fail as well, and tell.
                    tracing::debug!(store = %self.target, %error, "cannot listen; trying again in {PAUSE:?}");
                    pause().await;
                }
            }
        }
    }
}

/// Sees that what is told on one connection is heard on another. A pooler in transaction mode takes `LISTEN`, forgets it, and
/// hands what it brings to somebody else: so it is looked for first.
pub(super) async fn check(server: &Server) -> Result<(), StoreError> {
    const PROCESS: &str = "SELECT pg_backend_pid()::bigint";
    let target = &server.target;
    let broken = |error| StoreError::unavailable(format_args!("{target} cannot be listened to: {error}"));
    let pooled = || {
        StoreError::misconfigured(format_args!(
            "{target} lets no notification through, which is what a pooler in transaction mode does; connect to the server \
             itself, or leave listen out"
        ))
    };
    let mut listener = connect(target.options()).await.map_err(broken)?;
    let process = |row: &PgRow| rows::number::<i64>(row, 0).map_err(StoreError::misconfigured);
    let ours = process(&sqlx::raw_sql(PROCESS).fetch_one(&mut listener).await.map_err(broken)?)?;
    for row in &server.question(PROCESS).await? {
        if process(row)? == ours {
            return Err(pooled());
        }
    }
    listener.listen(CHANNEL).await.map_err(broken)?;
    server.question(&format!("SELECT pg_notify('{CHANNEL}', '')")).await?;
    let heard = tokio::time::timeout(TIMEOUT, listener.recv()).await;
    heard.map_err(|_elapsed| pooled())?.map(drop).map_err(broken)
}

async fn listen(options: PgConnectOptions) -> Result<PgListener, sqlx::Error> {
    let mut listener = connect(options).await?;
    listener.listen(CHANNEL).await?;
    Ok(listener)
}

async fn connect(options: PgConnectOptions) -> Result<PgListener, sqlx::Error> {
    let one = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .acquire_timeout(TIMEOUT);
    PgListener::connect_with(&one.connect_lazy_with(options)).await
}

/// The job that a notification is about, if it is one of the namespace. Anybody may send anything.
fn read(payload: &str, namespace: &Namespace) -> Option<JobName> {
    let (of, job): (String, String) = serde_json::from_str(payload).ok()?;
    (of == namespace.as_str()).then(|| JobName::new(&job).ok())?
}

#[expect(clippy::disallowed_methods, reason = "no other caller could wait for it")]
async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_a_job_of_the_namespace_is_a_hint() {
        let ours = Namespace::new("ours").unwrap();
        assert_eq!(read(r#"["ours", "job"]"#, &ours), Some(JobName::new("job").unwrap()));
        for other in
            [r#"["theirs", "job"]"#, r#"["ours", ""]"#, r#"["ours"]"#, "", "job", r#"["ours", "job", 1]"#]
        {
            assert_eq!(read(other, &ours), None, "{other}");
        }
    }
}
