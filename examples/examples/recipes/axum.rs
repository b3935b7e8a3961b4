//! A web service with jobs, on axum: ready once its scheduler has started, and not ready any more while it drains.
//!
//! ```text
//! cargo run -p anarchon-examples --features axum --example axum
//! curl -i http://127.0.0.1:3000/ready
//! ```
//!
//! `ADDRESS` names another address, `ANARCHON_STORE` another store than `./anarchon.db`. SIGTERM or ctrl-c ends it in order: not
//! ready, no new runs, those that go on are finished, and HTTP is the last. A second one ends it at once. What ends by itself is an
//! error, with exit code 1.

use std::{
    io, pin::pin, sync::Arc, sync::atomic::AtomicBool, sync::atomic::Ordering::SeqCst, time::Duration,
};

use anarchon::prelude::*;
use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::signal::unix::{SignalKind, signal};
use tokio::{net::TcpListener, sync::oneshot, time::sleep, time::timeout};

/// How long requests still come after «not ready»: whoever routes them has to hear of it.
const LINGER: Duration = Duration::from_secs(5);

struct Reports;

#[jobs]
impl Reports {
    // Three seconds long, so that there is a drain to look at.
    #[every("5s")]
    async fn report(&self, ctx: Context) {
        println!("report begins: {}", ctx.occurrence_id());
        sleep(Duration::from_secs(3)).await;
        println!("report is done: {}", ctx.occurrence_id());
    }
}

async fn readiness(State(ready): State<Arc<AtomicBool>>) -> (StatusCode, &'static str) {
    match ready.load(SeqCst) {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

#[tokio::main]
async fn main() -> JobResult {
    tracing_subscriber::fmt().with_writer(io::stderr).init();
    let mut end = pin!(told_to_end()?);

    // HTTP comes first: while the scheduler waits for its store, the process is alive and not ready.
    let ready = Arc::new(AtomicBool::new(false));
    let app = Router::new()
        .route("/live", get(|| async { "alive\n" }))
        .route("/ready", get(readiness))
        .with_state(ready.clone());
    let address = std::env::var("ADDRESS").unwrap_or("127.0.0.1:3000".to_owned());
    let listener =
        TcpListener::bind(&address).await.map_err(|error| format!("ADDRESS {address}: {error}"))?;
    println!("listening on {}", listener.local_addr()?);
    let (stop, stopped) = oneshot::channel();
    let serve = axum::serve(listener, app).with_graceful_shutdown(async { stopped.await.unwrap_or(()) });
    let mut http = tokio::spawn(serve.into_future());

    let scheduler = Scheduler::from_env()?.namespace("recipe-axum").jobs(Reports);
    let running = tokio::select! {
        started = scheduler.start() => started?,
        () = &mut end => return Ok(()),
    };
    ready.store(true, SeqCst);
    println!("ready");
    let by_itself = tokio::select! {
        () = end => None,
        ended = running.wait() => Some(format!("the scheduler has ended by itself: {ended:?}")),
        ended = &mut http => Some(format!("HTTP has ended by itself: {ended:?}")),
    };

    // Requests are answered to the end of the drain: jobs may need them, and whoever asks is told «not ready».
    ready.store(false, SeqCst);
    println!("draining");
    tokio::spawn(told_again());
    let (jobs, ()) = tokio::join!(running.shutdown(), sleep(LINGER));
    jobs?;
    println!("the jobs have ended");
    drop(stop);
    if !http.is_finished() {
        // What is not answered by then is cut off.
        let _ = timeout(Duration::from_secs(5), http).await;
    }
    println!("HTTP has ended");
    // Whoever supervises the service starts it again.
    by_itself.map_or(Ok(()), |reason| Err(reason.into()))
}

/// A second signal ends the process at once, unless it comes so soon that it is the first one told twice.
async fn told_again() {
    sleep(Duration::from_millis(500)).await;
    if let Ok(again) = told_to_end() {
        again.await;
        std::process::exit(130);
    }
}

/// Completes at SIGTERM or SIGINT; listens from now on.
fn told_to_end() -> io::Result<impl Future<Output = ()>> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}
