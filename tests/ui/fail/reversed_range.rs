//~ `"0 8 * * 5-1"`: day of week "5-1" is a reversed range in "0 8 * * 5-1"; write 5-6,0-1
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cron("0 8 * * 5-1")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
