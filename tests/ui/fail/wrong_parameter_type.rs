//~ `String`: a handler cannot take `String`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self, name: String) -> JobResult {
        drop(name);
        Ok(())
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
