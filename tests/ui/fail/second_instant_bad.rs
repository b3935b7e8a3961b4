//~ `"tomorrow"`: "t" cannot stand at byte 0 of instant "tomorrow"; write one such as "2027-01-01T00:00:00Z", or "2027-01-01T00:00" with tz
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[at("2027-01-01T00:00:00Z", "tomorrow")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
