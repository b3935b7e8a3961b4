//~ `#[every("10s")]`: `#[every]` is read by `#[jobs]`; put `#[jobs]` on the impl block around the method
//~ `#[at("2027-01-01T00:00Z")]`: `#[at]` is read by `#[jobs]`; put `#[jobs]` on the impl block around the method
//~ `#[cron("0 8 * * *")]`: `#[cron]` is read by `#[jobs]`; put `#[jobs]` on the impl block around the method
use anarchon::prelude::*;

struct MyJobs;

impl MyJobs {
    #[every("10s")]
    async fn sync(&self) {}
}

#[at("2027-01-01T00:00Z")]
fn launch() {}

#[cron("0 8 * * *")]
fn digest() {}

fn main() {
    drop(MyJobs.sync());
    launch();
    digest();
}
