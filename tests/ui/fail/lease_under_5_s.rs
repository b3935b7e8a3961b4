//~ `"4s"`: a lease is at least 5s, and "4s" is less; write `lease = "5s"` or more
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", lease = "4s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
