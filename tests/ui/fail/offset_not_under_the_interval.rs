//~ `"1m"`: offset "1m" is not less than the interval "1m"; write an offset from 0 to just under "1m"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("1m", offset = "1m")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
