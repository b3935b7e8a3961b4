//~ `Pin<Box<dyn Future<Output = ()> + Send>>`: a handler cannot return `Pin<Box<dyn Future<Output = ()> + Send>>`
use anarchon::prelude::*;
use std::pin::Pin;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    fn sync(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async {})
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
