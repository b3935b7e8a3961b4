//~ `"99ms"`: interval "99ms" is shorter than 100ms; write "100ms" or longer
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("99ms")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
