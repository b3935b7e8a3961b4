//~ `Result<(), NoError>`: a handler cannot return `Result<(), NoError>`
use anarchon::prelude::*;

struct MyJobs;
struct NoError;

#[jobs]
impl MyJobs {
    #[every("10s")]
    async fn sync(&self) -> Result<(), NoError> {
        Err(NoError)
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
