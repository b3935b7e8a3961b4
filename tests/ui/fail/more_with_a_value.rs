//~ `true`: `more` takes no value; write `#[jobs(more)]`
use anarchon::prelude::*;

struct MyJobs;

#[jobs(more = true)]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
