//~ `#[cfg(all())]`: a parameter of a handler cannot be under `cfg`; put it on the method, and write two of them
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self, #[cfg(all())] ctx: Context) {
        drop(ctx);
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
