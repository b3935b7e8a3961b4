//! A web service with jobs, on actix-web: ready once its scheduler has started, and not ready any more while it drains.
//!
//! ```text
//! cargo run -p anarchon-examples --features actix --example actix
//! curl -i http://127.0.0.1:3000/ready
//! ```
//!
//! `ADDRESS` names another address, `ANARCHON_STORE` another store than `./anarchon.db`. SIGTERM or ctrl-c ends it in order: not
//! ready, no new runs, those that go on are finished, and HTTP is the last. A second one ends it at once. What ends by itself is an
//! error, with exit code 1.

use std::{io, pin::pin, sync::atomic::AtomicBool, sync::atomic::Ordering::SeqCst, time::Duration};

use actix_web::{App, HttpResponse, HttpServer, web};
use anarchon::prelude::*;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

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

async fn readiness(ready: web::Data<AtomicBool>) -> HttpResponse {
    match ready.load(SeqCst) {
        true => HttpResponse::Ok().body("ready\n"),
        false => HttpResponse::ServiceUnavailable().body("not ready\n"),
    }
}

// Not `actix_web::main`, whose runtime has one thread: jobs run on the runtime that calls `start`.
#[tokio::main]
async fn main() -> JobResult {
    tracing_subscriber::fmt().with_writer(io::stderr).init();
    let mut end = pin!(told_to_end()?);

    // HTTP comes first: while the scheduler waits for its store, the process is alive and not ready.
    let ready = web::Data::new(AtomicBool::new(false));
    let state = ready.clone();
    let address = std::env::var("ADDRESS").unwrap_or("127.0.0.1:3000".to_owned());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(state.clone())
            .route("/live", web::get().to(|| async { "alive\n" }))
            .route("/ready", web::get().to(readiness))
    })
    // Signals are ours: they end the jobs first.
    .disable_signals()
    .shutdown_timeout(5)
    .bind(&address)
    .map_err(|error| format!("ADDRESS {address}: {error}"))?;
    server.addrs().iter().for_each(|address| println!("listening on {address}"));
    let server = server.run();
    let handle = server.handle();
    let mut http = tokio::spawn(server);

    let scheduler = Scheduler::from_env()?.namespace("recipe-actix").jobs(Reports);
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
    // What is not answered within the time above is cut off.
    handle.stop(true).await;
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
