//~ `"anarchon"`: `crate` is a path, without quotes; write `crate = my::anarchon`
use anarchon::prelude::*;

struct MyJobs;

#[jobs(crate = "anarchon")]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
