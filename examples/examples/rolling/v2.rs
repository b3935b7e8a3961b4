//! A rolling deployment: version 2 of the program, and what becomes of each job is told by `v1.rs`.

use anarchon::prelude::*;

mod work;
use work::work;

struct Rolling;

#[jobs]
impl Rolling {
    #[every("2s", lease = "5s")]
    async fn stays(&self, ctx: Context) {
        work(2, ctx).await;
    }

    #[every("2s", lease = "5s")]
    async fn comes(&self, ctx: Context) {
        work(2, ctx).await;
    }

    #[every("3s", lease = "5s", catch_up = "10s")]
    async fn moves(&self, ctx: Context) {
        work(2, ctx).await;
    }
}

#[tokio::main]
async fn main() -> anarchon::Result {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    anarchon::run(Rolling).await
}
