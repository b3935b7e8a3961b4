//~ `"sync"`: two jobs are named "sync", the other one is on `sync`; rename one: `name = "…"`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self) {}

    #[every("20s", name = "sync")]
    async fn other(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
