//~ `"61 8 * * *"`: minute "61" is out of range 0–59 in "61 8 * * *"; write 0 to 59
//~ `"Nowhere"`: unknown time zone "Nowhere"; write an IANA name such as "Europe/Athens" or "UTC"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cron("61 8 * * *", tz = "Nowhere")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
