//~ `billing`: `prefix` is text; write `prefix = "billing"`
use anarchon::prelude::*;

struct MyJobs;

#[jobs(prefix = billing)]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
