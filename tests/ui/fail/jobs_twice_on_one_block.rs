//~ `#[jobs(more)]`: `#[jobs]` stands twice on this block; remove one, and write all options in the other
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
#[jobs(more)]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
