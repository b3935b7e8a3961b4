//~ `"0s"`: a timeout of zero ends every run at once; write more, or leave it out for none
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", timeout = "0s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
