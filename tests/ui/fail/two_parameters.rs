//~ `name: String`: one parameter too many for a handler, which takes `&self` or no receiver, then at most one `Context` or `&Context`, and returns `()` or `Result<(), E>`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self, ctx: Context, name: String) {
        drop((ctx, name));
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
