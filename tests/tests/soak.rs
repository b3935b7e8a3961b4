//! A minute of what `scripts/soak` does for as long as one likes.

use std::time::Duration;

use anarchon_tests::soak::soak;

#[test]
fn a_minute_of_kills_freezes_cuts_and_deployments_breaks_no_promise() {
    let seed = std::env::var("ANARCHON_SEED").ok().and_then(|seed| seed.parse().ok());
    let summary = soak(
        env!("CARGO_BIN_EXE_worker"),
        "redis",
        Duration::from_secs(60),
        seed.unwrap_or_else(|| fastrand::u64(..)),
    );
    println!("{summary}");
}
