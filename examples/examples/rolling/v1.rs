//! A rolling deployment: version 1 of a program. Version 2 has another set of jobs; compare the two files.
//!
//! ```text
//! cargo run --example rolling_v1      in three terminals
//! cargo run --example rolling_v2      in place of each of them in turn, after ctrl-c; then the same way back
//! ```
//!
//! Both run side by side on one store, and no planned time runs twice. Nothing is configured for it:
//!
//! - `stays` is the same in both: any instance may run it.
//! - `comes` is new in version 2, and runs on its instances from the first one on, for nothing that was due before.
//! - `goes` is not in version 2: it runs on version 1 for as long as an instance of that is there. A run that dies with the
//!   last of them is carried on by nobody; its record stays and harms nothing. After a roll-back the job goes on from there.
//! - `moves` has another schedule in version 2, which says «another schedule is in force» and claims nothing of it while an
//!   instance of version 1 is there. After the last one the new schedule takes over by itself: within 12 s if that one
//!   was told to end, within 42 s if it was killed. What was due in between runs once, the newest only.
//!
//! The store is `./anarchon.db`, or where `ANARCHON_STORE` says.

use anarchon::prelude::*;

mod work;
use work::work;

struct Rolling;

#[jobs]
impl Rolling {
    #[every("2s", lease = "5s")]
    async fn stays(&self, ctx: Context) {
        work(1, ctx).await;
    }

    #[every("4s", lease = "5s")]
    async fn goes(&self, ctx: Context) {
        work(1, ctx).await;
    }

    #[every("4s", lease = "5s", catch_up = "10s")]
    async fn moves(&self, ctx: Context) {
        work(1, ctx).await;
    }
}

#[tokio::main]
async fn main() -> anarchon::Result {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    anarchon::run(Rolling).await
}
