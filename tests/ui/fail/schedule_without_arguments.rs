//~ `every`: `#[every]` needs an interval, e.g. `#[every("10s")]`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
