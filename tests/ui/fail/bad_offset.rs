//~ `"x"`: "x" cannot stand here in duration "x"; put a whole number before the unit, such as "10s"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("1m", offset = "x")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
