//~ `lease`: `lease` is given twice; remove one
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", lease = "30s", lease = "60s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
