//~ `every`: `#[every]` takes parentheses; write `#[every("10s")]`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every = "10s"]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
