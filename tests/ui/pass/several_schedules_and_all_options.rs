use anarchon::prelude::*;

struct MyJobs;

#[jobs(prefix = "billing")]
impl MyJobs {
    #[every("1h", name = "hourly", offset = "5m", jitter = "500ms", catch_up = "none", lease = "30s", timeout = "2m")]
    #[cron("0 8 * * 1-5", name = "daily", tz = "Europe/Athens", max_attempts = 3, retries = 0, backoff = "5s..5m")]
    #[cron("0 0 8 ? * MON-FRI", name = "as-quartz", dialect = "quartz", catch_up = "5m")]
    #[at("2027-01-01T00:00", "2028-01-01T00:00", name = "new-year", tz = "Europe/Athens",)]
    async fn sync(&self) {}

    #[every("10s")]
    async fn r#type(&self) {}
}

#[jobs(more, prefix = "reports")]
impl MyJobs {
    #[every("10s")]
    async fn report(&self) {}
}

mod elsewhere {
    use anarchon::prelude::*;

    #[jobs(more)]
    impl super::MyJobs {
        #[every("10s")]
        async fn private(&self) {}
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
