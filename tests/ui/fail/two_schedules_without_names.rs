//~ `every`: `sync` has 2 schedules, and each is a job of its own; give each its `name = "…"`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    #[cron("0 8 * * *")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
