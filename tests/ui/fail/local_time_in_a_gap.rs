//~ `"2027-03-28T03:30"`: local time "2027-03-28T03:30" does not exist in Europe/Athens; the clocks go forward then; the first time after is "2027-03-28T04:00:00+03:00"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[at("2027-03-28T03:30", tz = "Europe/Athens")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
