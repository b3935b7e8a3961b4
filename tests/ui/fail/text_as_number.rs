//~ `30`: `lease` is a text literal; write `lease = "30s"`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", lease = 30)]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
