//~ `"my job"`: job name "my job" contains ` `; names are 1–100 of `a-z A-Z 0-9 _ - .`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", name = "my job")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
