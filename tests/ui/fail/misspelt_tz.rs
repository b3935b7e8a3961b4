//~ `tzz`: unknown option `tzz`, did you mean `tz`? `#[at]` takes `tz`, `name`, `jitter`, `catch_up`, `lease`, `timeout`, `max_attempts`, `retries` and `backoff`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[at("2027-01-01T00:00", tzz = "Europe/Athens")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
