//~ `leese`: unknown option `leese`, did you mean `lease`? `#[every]` takes `offset`, `name`, `jitter`, `catch_up`, `lease`, `timeout`, `max_attempts`, `retries` and `backoff`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", leese = "30s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
