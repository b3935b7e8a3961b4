//~ `MyJobs<'_>`: the jobs of a generic impl cannot be collected when the program is linked; write the impl for one concrete type, or hand the jobs to the builder: `Scheduler::every("name", "10s", handler)`
use anarchon::prelude::*;

struct MyJobs<'a>(&'a str);

#[jobs]
impl MyJobs<'_> {
    #[every("10s")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs("a")));
}
