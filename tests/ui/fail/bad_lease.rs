//~ `"30 seconds"`: `lease`: unknown unit " seconds" in duration "30 seconds"; write "30s"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", lease = "30 seconds")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
