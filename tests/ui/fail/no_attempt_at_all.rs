//~ `0`: `max_attempts` is at least 1; without a further attempt write `max_attempts = 1`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", max_attempts = 0)]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
