//~ `#[jobs]` FurtherBlocksNeedJobsMore
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self) {}
}

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn again(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
