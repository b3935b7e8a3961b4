//~ `größe`: job name "größe" contains `ö`; names are 1–100 of `a-z A-Z 0-9 _ - .`; give the job another one: `name = "…"`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn größe(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
