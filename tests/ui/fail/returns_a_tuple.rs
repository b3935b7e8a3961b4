//~ `(u8, u8)`: `(u8, u8)` is no return type of a handler, which takes `&self` or no receiver, then at most one `Context` or `&Context`, and returns `()` or `Result<(), E>`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self) -> (u8, u8) {
        (1, 2)
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
