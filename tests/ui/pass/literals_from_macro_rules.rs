use anarchon::prelude::*;

macro_rules! declare {
    ($(#[$attribute:meta])* $visibility:vis $name:ident: $owner:ty, $interval:literal, $lease:literal, $retries:expr, $result:ty, $body:block) => {
        #[jobs(prefix = "declared")]
        impl $owner {
            #[every($interval, lease = $lease, retries = $retries)]
            $(#[$attribute])*
            $visibility async fn $name(&self, _ctx: Context) -> $result $body
        }
    };
}

struct Declared;

declare!(#[allow(clippy::unused_async)] pub sync: Declared, "10s", "30s", 3, JobResult, { Ok(()) });

macro_rules! schedules {
    ($type:ident { $($schedule:meta => $name:ident,)* }) => {
        #[jobs]
        impl $type {
            $(#[$schedule] async fn $name(&self) {})*
        }
    };
}

struct Others;

schedules!(Others {
    every("10s") => sync,
    cron("0 8 * * *", name = "daily") => digest,
});

fn main() {
    drop(anarchon::run((Declared, Others)));
}
