//~ `sync`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self, ctx: Context) -> JobResult {
        let local = std::rc::Rc::new(1);
        std::future::ready(()).await;
        drop((local, ctx));
        Ok(())
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
