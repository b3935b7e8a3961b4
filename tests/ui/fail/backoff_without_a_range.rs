//~ `"5s"`: `backoff` "5s" is no range; write the first and the longest delay, e.g. `backoff = "5s..5m"`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", backoff = "5s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
