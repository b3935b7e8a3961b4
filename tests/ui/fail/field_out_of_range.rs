//~ `"60 8 * * *"`: minute "60" is out of range 0–59 in "60 8 * * *"; write 0 to 59
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cron("60 8 * * *")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
