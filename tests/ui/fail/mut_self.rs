//~ `&mut self`: a handler cannot take `&mut self`, since runs share the value; write `&self` and keep what changes in a `Mutex` or an atomic
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(&mut self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
