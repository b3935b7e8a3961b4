//~ `"2027-10-31T03:30"`: local time "2027-10-31T03:30" comes twice in Europe/Athens; write which: "2027-10-31T03:30:00+03:00" or "2027-10-31T03:30:00+02:00"
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[at("2027-10-31T03:30", tz = "Europe/Athens")]
    async fn sync(&self) {}
}

fn main() {
    drop(anarchon::run(MyJobs));
}
