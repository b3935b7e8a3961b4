//~ `<T>`: a handler cannot be generic; it takes `&self` or no receiver, then at most one `Context` or `&Context`, and returns `()` or `Result<(), E>`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync<T>(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
