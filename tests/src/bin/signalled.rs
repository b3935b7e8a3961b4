//! A program that is told to end, for `signals.rs`: says what it does, a word a line.
//!
//! `signalled RUN AFTER`: a handler runs for RUN (`0` for none, `forever` without looking at its cancellation), and when `run`
//! has returned the program does AFTER: `end` after 300 ms, `wait` for ever, or `count` ten signals of its own.
//! `signalled refused AFTER`: the store refuses the start.

use std::{error::Error, io::Read as _, time::Duration};

use anarchon::prelude::*;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    // The test holds the other end; when it is gone, however it went, so are we.
    std::thread::spawn(|| {
        let mut nothing = [0];
        while std::io::stdin().read(&mut nothing).is_ok_and(|read| read > 0) {}
        std::process::exit(99);
    });
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [run, after] = &arguments[..] else { return Err("two arguments are needed".into()) };
    let own = (after == "count").then(own_signals).transpose()?;
    let url = if run == "refused" { "sqlite:/nowhere/to/be/found.db" } else { "memory:" };
    let length = match run.as_str() {
        "forever" => Duration::MAX,
        text => Duration::from_millis(text.parse().unwrap_or(0)),
    };
    let handler = move |_: Context| async move {
        println!("started");
        tokio::time::sleep(length).await;
        println!("done");
    };
    let scheduler = Scheduler::connect(url)?.namespace("signals");
    match scheduler.job(Job::every("job", "1s", handler)).run().await {
        Ok(()) => println!("returned"),
        Err(error) => println!("returned {:?}", error.kind()),
    }
    match own {
        Some(signals) => count(signals).await,
        None if after == "wait" => std::future::pending().await,
        None => tokio::time::sleep(Duration::from_millis(300)).await,
    }
    Ok(())
}

fn own_signals() -> std::io::Result<tokio::signal::unix::Signal> {
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
}

async fn count(mut signals: tokio::signal::unix::Signal) {
    for _ in 0..10 {
        signals.recv().await;
        println!("mine");
    }
    std::process::exit(7);
}
