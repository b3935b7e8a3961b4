//~ `"10 minutes"`: unknown unit " minutes" in duration "10 minutes"; write "10m"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10 minutes")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
