//~ `max`: unknown option `max`, did you mean `max_attempts`? `#[every]` takes `offset`, `name`, `jitter`, `catch_up`, `lease`, `timeout`, `max_attempts`, `retries` and `backoff`
//~ `retry`: unknown option `retry`, did you mean `retries`? `#[every]` takes `offset`, `name`, `jitter`, `catch_up`, `lease`, `timeout`, `max_attempts`, `retries` and `backoff`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", max = 3, retry = 3)]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
