//! A program whose log nobody reads any more, for `signals.rs`.
//!
//! `unheard FILE`: each run adds a byte to FILE; it is logged how runs begin and end, to a pipe that the test closes.

use std::{error::Error, fs::OpenOptions, io::Write as _, path::PathBuf, time::Duration};

use anarchon::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).init();
    let file: PathBuf = std::env::args_os().nth(1).ok_or("which file?")?.into();
    // Should the test die, this does not live on.
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(300));
        std::process::exit(99);
    });
    let add = move |_: Context| {
        let file = file.clone();
        async move { OpenOptions::new().create(true).append(true).open(file)?.write_all(b".") }
    };
    Scheduler::connect("memory:")?
        .namespace("unheard")
        .job(Job::every("job", "1s", add).jitter("0s"))
        .run()
        .await?;
    Ok(())
}
