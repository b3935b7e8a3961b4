//~ `"my billing"`: prefix "my billing" contains ` `; names are 1–100 of `a-z A-Z 0-9 _ - .`
use anarchon::prelude::*;

struct MyJobs;

#[jobs(prefix = "my billing")]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
