//! A program that is told to end, for `signals.rs`: says what it does, a word a line.
//!
//! `signalled RUN AFTER`: a handler runs for RUN ms, or `forever` without looking at its cancellation, or blocks its thread for
//! ever at `block`, where the drain is short; and when `run` has returned the program does AFTER: `end` after 300 ms, `wait` for ever, or `count` ten signals of its own, or `exit` at once.
//! `signalled refused AFTER`: the store refuses the start. Warnings are lines too.

use std::{error::Error, io::Read as _, time::Duration};

use anarchon::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_ansi(false).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(go())?;
    println!("dropping the runtime");
    drop(runtime);
    println!("dropped the runtime");
    Ok(())
}

async fn go() -> Result<(), Box<dyn Error>> {
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
    let blocks = run == "block";
    let handler = move |_: Context| async move {
        println!("started");
        if blocks {
            std::thread::sleep(Duration::MAX);
        }
        tokio::time::sleep(length).await;
        println!("done");
    };
    let drain = if blocks { "100ms" } else { "25s" };
    let scheduler = Scheduler::connect(url)?.namespace("signals").drain(drain);
    match scheduler.job(Job::every("job", "1s", handler)).run().await {
        Ok(()) => println!("returned"),
        Err(error) => println!("returned {:?}", error.kind()),
    }
    match own {
        Some(signals) => count(signals).await,
        None if after == "exit" => std::process::exit(0),
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
