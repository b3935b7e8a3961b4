//~ `u32`: a handler cannot return `u32`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    fn sync(&self) -> u32 {
        1
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
