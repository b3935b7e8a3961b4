//~ `"20s"`: `#[every]` takes one text; for a second schedule write a second `#[every]`, each with its `name`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", "20s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
