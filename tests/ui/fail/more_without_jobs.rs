//~ `MyJobs`: `MyJobs` has no jobs
use anarchon::prelude::*;

struct MyJobs;

#[jobs(more)]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self) {}
}

fn main() {
    let _ = MyJobs;
}
