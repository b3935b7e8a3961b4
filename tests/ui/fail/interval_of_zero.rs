//~ `"0s"`: interval "0s" is zero; write "100ms" or longer
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("0s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
