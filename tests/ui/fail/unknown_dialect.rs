//~ `"quarz"`: unknown cron dialect "quarz"; did you mean "quartz"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cron("0 8 * * *", dialect = "quarz")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
