//~ `"0 0 8 ? * MON-FRI"`: day of month "?" is for quartz in "0 0 8 ? * MON-FRI"; write "*", or set dialect = "quartz"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cron("0 0 8 ? * MON-FRI")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
