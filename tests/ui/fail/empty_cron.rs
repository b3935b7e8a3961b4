//~ `""`: the cron expression is empty; write 5 fields such as "0 8 * * 1-5"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cron("")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
