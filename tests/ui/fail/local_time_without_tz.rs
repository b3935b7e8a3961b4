//~ `"2027-01-01T00:00"`: local time "2027-01-01T00:00" has no zone; set tz, or add the offset, as in "2027-01-01T00:00Z" for UTC
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[at("2027-01-01T00:00")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
