#![forbid(unsafe_code)]
#![deny(
    missing_debug_implementations,
    missing_docs,
    unnameable_types,
    unreachable_pub,
    unused,
    unused_lifetimes,
    unused_results,
    rust_2018_idioms,
    rust_2024_compatibility
)]
//! Everything a handler may look like.
use anarchon::prelude::*;
use std::error::Error;

/// Jobs.
#[derive(Debug)]
pub struct MyJobs;

type Alias = Context;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn bare(&self) {}

    #[every("10s")]
    async fn value(&self, ctx: Context) -> JobResult {
        drop(ctx);
        Ok(())
    }

    #[every("10s")]
    async fn reference(&self, ctx: &Context) -> Result<(), std::fmt::Error> {
        let _ = ctx;
        Ok(())
    }

    #[every("10s")]
    async fn no_receiver(ctx: &anarchon::Context) -> Result<(), Box<dyn Error + Send + Sync>> {
        let _ = ctx;
        Ok(())
    }

    #[every("10s")]
    async fn nothing() {}

    #[every("10s")]
    fn blocking(&self, _: Context) -> Result<(), String> {
        Ok(())
    }

    #[every("10s")]
    fn blocking_reference(ctx: &Context) {
        let _ = ctx;
    }

    #[every("10s")]
    fn blocking_nothing() -> () {}

    #[every("10s")]
    async fn alias(&self, Alias { .. }: Alias) {}

    #[every("10s")]
    async fn lifetimes<'a>(self: &'a Self, ctx: &'a Context) -> JobResult {
        let _ = (self, ctx);
        JobResult::Ok(())
    }

    #[every("10s")]
    #[deprecated]
    async fn old(&self) {}

    fn _helper(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
