//~ `"3"`: `max_attempts` is a whole number up to 4294967295; write `max_attempts = 3`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", max_attempts = "3")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
