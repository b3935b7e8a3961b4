//~ `"Europe/Athen"`: unknown time zone "Europe/Athen"; did you mean "Europe/Athens"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cron("0 8 * * *", tz = "Europe/Athen")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
