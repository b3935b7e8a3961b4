//~ `self: Box<Self>`: `self: Box<Self>` is no receiver of a handler, which takes `&self` or none, since its runs share the value; write `&self`
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
