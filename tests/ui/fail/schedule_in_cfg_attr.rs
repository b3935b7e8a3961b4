//~ `every`: `every` cannot stand inside `cfg_attr`, where `#[jobs]` does not see it; put `#[cfg(…)]` on the method, and write a second method if there are two schedules
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cfg_attr(all(), every("10s"))]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
