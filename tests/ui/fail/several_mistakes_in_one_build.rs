//~ `leese`: unknown option `leese`, did you mean `lease`? `#[every]` takes `offset`, `name`, `jitter`, `catch_up`, `lease`, `timeout`, `max_attempts`, `retries` and `backoff`
//~ `"1s"`: a lease is at least 5s, and "1s" is less; write `lease = "5s"` or more
//~ `"20s"`: jitter "20s" is not under the interval "10s"; write less
//~ `self`: a handler cannot take `self` by value, since it runs many times; write `&self`
//~ `"a b"`: job name "a b" contains ` `; names are 1–100 of `a-z A-Z 0-9 _ - .`
//~ `String`: a handler cannot take `String`
//~ `String`: a handler cannot take `String`
use anarchon::prelude::*;

struct MyJobs;

#[jobs]
impl MyJobs {
    #[every("10s", leese = "30s")]
    async fn sync(&self) -> JobResult {
        self.helper();
        JobResult::Ok(())
    }

    #[every("10s", lease = "1s", jitter = "20s")]
    async fn digest(self) {}

    #[cron("0 8 * * *", name = "a b")]
    fn report(&self, name: String) {
        drop(name);
    }

    #[every("10s")]
    async fn fine(&self, ctx: Context) {
        let _ = (ctx, self.sync().await);
    }

    #[every("10s")]
    async fn wrong(&self, name: String) {
        drop(name);
    }

    fn helper(&self) {}
}

fn main() {
    MyJobs.report(String::new());
    drop(MyJobs.digest());
    drop(anarchon::run(MyJobs));
}
