//~ `NotJobs`: `NotJobs` has no jobs
//~ `Arc::new(NotJobs)`: `Arc<NotJobs>` has no jobs
//~ `NotJobs`: `(MyJobs, NotJobs)` has no jobs
use anarchon::prelude::*;
use std::sync::Arc;

struct NotJobs;
struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync() {}
}

fn main() {
    drop(anarchon::run(NotJobs));
    drop(anarchon::run(Arc::new(NotJobs)));
    drop(anarchon::run((MyJobs, NotJobs)));
}
