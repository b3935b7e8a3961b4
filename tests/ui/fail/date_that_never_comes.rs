//~ `"0 0 30 2 *"`: the date in cron expression "0 0 30 2 *" never comes; write a day that one of the months has
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cron("0 0 30 2 *")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
