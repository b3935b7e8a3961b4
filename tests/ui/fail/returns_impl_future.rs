//~ `impl Future<Output = ()>`: `impl Future<Output = ()>` is no return type of a handler, which takes `&self` or no receiver, then at most one `Context` or `&Context`, and returns `()` or `Result<(), E>`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    fn sync(&self) -> impl Future<Output = ()> {
        async {}
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
