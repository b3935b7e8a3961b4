//~ `-1`: `retries` is a whole number up to 4294967295; write `retries = 2`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", retries = -1)]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
