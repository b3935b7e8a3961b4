//~ `prefiks`: unknown option `prefiks` of `#[jobs]`, did you mean `prefix`? it takes `prefix`, `more` and `crate`
use anarchon::prelude::*;

struct MyJobs;

#[jobs(prefiks = "billing")]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
