//~ `self: &Arc<Self>`: `self: &Arc<Self>` is no receiver of a handler, which takes `&self` or none, since its runs share the value; write `&self`
use anarchon::prelude::*;
use std::sync::Arc;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(self: &Arc<Self>) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
