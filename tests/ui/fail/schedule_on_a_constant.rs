//~ `every`: `#[every]` goes on a method
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    pub const SYNC: u8 = 1;

    #[every("10s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
