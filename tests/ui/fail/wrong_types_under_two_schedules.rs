//~ `&str`: a handler cannot take `&str`
//~ `Option<()>`: a handler cannot return `Option<()>`
//~ `spawned`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", name = "a")]
    #[every("20s", name = "b")]
    async fn sync(&self, name: &str) -> Option<()> {
        Some(drop(name))
    }

    #[every("10s", name = "c")]
    #[every("20s", name = "d")]
    async fn spawned(&self) {
        let local = std::rc::Rc::new(1);
        std::future::ready(()).await;
        drop(local);
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
