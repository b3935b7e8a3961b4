//~ `INTERVAL`: the schedule is a text literal, since it is checked when the program is built; write `#[every("10s")]`, or hand a value known only at run time to the builder
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every(INTERVAL)]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
