//~ `"99999999w"`: `lease` "99999999w" is longer than 100 years; write a shorter one
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", lease = "99999999w")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
