//~ `Result<u32, std::io::Error>`: a handler cannot return `Result<u32, std::io::Error>`
//~ `Result<u32, std::io::Error>`: a handler cannot return `Result<u32, std::io::Error>`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn count(&self) -> Result<u32, std::io::Error> {
        Ok(1)
    }

    #[every("10s")]
    fn count_blocking(&self, ctx: &Context) -> Result<u32, std::io::Error> {
        let _ = ctx;
        Ok(1)
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
