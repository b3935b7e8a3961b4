//! Mail that goes out once, also when a run is repeated: the occurrence's id is the idempotency key, and the provider keeps keys.
//!
//! ```text
//! cargo run --example mail_once
//! ```
//!
//! The first attempt sends the mail, and loses the answer. The second one cannot know that, sends again under the same key, and no
//! second mail goes out. It ends by itself, and keeps nothing.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use anarchon::{MemoryBackend, prelude::*};
use tokio::sync::Notify;

/// Stands for a provider of mail whose API takes an idempotency key.
#[derive(Default)]
struct Provider {
    keys: Mutex<HashSet<String>>,
}

impl Provider {
    fn send(&self, key: &str, to: &str) {
        let new = self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
        match new {
            true => println!("  provider: mail to {to}"),
            false => println!("  provider: this key is known, nothing to send"),
        }
    }
}

#[derive(Default)]
struct Digests {
    provider: Provider,
    sent: Notify,
}

#[jobs]
impl Digests {
    #[cron("0 8 * * 1-5", tz = "Europe/Athens", retries = 3, backoff = "500ms..1m")]
    async fn digest(&self, ctx: Context) -> JobResult {
        // One key for each mail: the id is the same for all attempts at this occurrence, and for no other occurrence.
        let to = "ada@example.org";
        let key = format!("{}/{to}", ctx.occurrence_id());
        println!("attempt {}: key {key}", ctx.attempt());
        self.provider.send(&key, to);
        if ctx.attempt() == 1 {
            return Err("the connection broke before the answer came".into());
        }
        self.sent.notify_one();
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anarchon::Result {
    let digests = Arc::new(Digests::default());
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let scheduler = Scheduler::new(MemoryBackend::new()).namespace("recipe-mail").jobs(Arc::clone(&digests));
    let running = scheduler.start().await?;
    // Instead of waiting until eight o'clock.
    running.trigger("digest").await?;
    digests.sent.notified().await;
    running.shutdown().await?;
    println!("ended");
    Ok(())
}
