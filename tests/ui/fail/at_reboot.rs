//~ `"@reboot"`: "@reboot" is no cron schedule; a job that runs once across all instances has no reboot; call the function when the program starts
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[cron("@reboot")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
