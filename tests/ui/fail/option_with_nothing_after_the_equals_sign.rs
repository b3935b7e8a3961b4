//~ `lease`: `lease` needs a value; write `lease = "30s"`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", lease =)]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
