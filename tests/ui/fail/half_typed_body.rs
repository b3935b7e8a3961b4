//~ `;`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self) {
        let _ = self.;
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
