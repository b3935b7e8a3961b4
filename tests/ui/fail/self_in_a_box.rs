//~ `self: Box<Self>`: a handler cannot own its receiver, since it runs many times; write `&self`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(self: Box<Self>) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
