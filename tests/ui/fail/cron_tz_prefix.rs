//~ `"CRON_TZ=Europe/Athens 0 8 * * *"`: zone "CRON_TZ=Europe/Athens" stands in cron expression "CRON_TZ=Europe/Athens 0 8 * * *"; write "0 8 * * *" and set tz = "Europe/Athens"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cron("CRON_TZ=Europe/Athens 0 8 * * *")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
