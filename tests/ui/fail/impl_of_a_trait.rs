//~ `Sync`: `#[jobs]` goes on an impl block of the type itself, not of a trait; move the jobs into `impl Type { … }`
use anarchon::prelude::*;

struct MyJobs;

trait Sync {
    fn sync(&self);
}

#[jobs]
impl Sync for MyJobs {
    #[every("10s")]
    fn sync(&self) {}
}

fn main() {
    MyJobs.sync();
    drop(anarchon::run(MyJobs));
}
