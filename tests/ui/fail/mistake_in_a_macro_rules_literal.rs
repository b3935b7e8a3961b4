//~ `"1s"`: a lease is at least 5s, and "1s" is less; write `lease = "5s"` or more
//~ `3.5`: `retries` is a whole number up to 4294967295; write `retries = 2`
//~ `"2s"`: jitter "2s" is not under the interval "1s"; write less
use anarchon::prelude::*;

macro_rules! declare {
    ($type:ident, $lease:literal, $retries:expr, $jitter:expr) => {
        struct $type;

        #[jobs]
        impl $type {
            #[every("1s", lease = $lease, retries = $retries)]
            async fn sync(&self) {}

            #[every("1s", jitter = $jitter)]
            async fn digest(&self) {}
        }
    };
}

declare!(MyJobs, "1s", 3.5, "2s");

fn main() {
    drop(anarchon::run(MyJobs));
}
