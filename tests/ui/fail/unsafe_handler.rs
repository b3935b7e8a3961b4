//~ `unsafe`: a handler cannot be `unsafe`, since nobody could vouch for the call; remove the word
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async unsafe fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
