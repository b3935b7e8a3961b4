//~ `impl Into<Context>`: `impl Into<Context>` is no parameter of a handler, which takes `&self` or no receiver, then at most one `Context` or `&Context`, and returns `()` or `Result<(), E>`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self, ctx: impl Into<Context>) {
        drop(ctx);
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
