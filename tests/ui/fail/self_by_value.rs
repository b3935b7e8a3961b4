//~ `self`: a handler cannot take `self` by value, since it runs many times; write `&self`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
