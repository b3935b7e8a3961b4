//~ `MyJobs`: no method of this block has a schedule; put `#[every(…)]`, `#[cron(…)]` or `#[at(…)]` on one, or remove `#[jobs]`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
