//~ `"0 8 * * foo"`: day of week "foo" is no value in "0 8 * * foo"; write 0 to 7, or a name such as "MON"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cron("0 8 * * foo")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
