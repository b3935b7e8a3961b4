//~ `"never"`: `catch_up`: "n" cannot stand here in duration "never"; put a whole number before the unit, such as "10s", or write `catch_up = "none"` for no catch-up
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", catch_up = "never")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
