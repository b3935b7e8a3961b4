//~ `"2027-13-01T00:00:00Z"`: "2027-13-01" is no date in "2027-13-01T00:00:00Z"; write a day that the month has
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[at("2027-13-01T00:00:00Z")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
