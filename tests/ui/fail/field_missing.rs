//~ `"0 8 * *"`: cron expression "0 8 * *" has 4 fields, not 5 or 6; write minute, hour, day of month, month, day of week, and seconds in front if needed
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cron("0 8 * *")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
