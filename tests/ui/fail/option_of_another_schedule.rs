//~ `tz`: `tz` is an option of `#[cron]` and `#[at]`, not of `#[every]`, which takes `offset`, `name`, `jitter`, `catch_up`, `lease`, `timeout`, `max_attempts`, `retries` and `backoff`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("1d", tz = "Europe/Athens")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
