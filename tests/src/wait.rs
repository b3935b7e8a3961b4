//! Waiting for what is to come, instead of sleeping and hoping.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

/// Long enough for any machine, and for the second occurrence of a job that is due every two minutes: where processes took long to
/// start, that is the first they see. A test that passes never waits for it.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(40);

/// Looks again and again until there is something, and returns it.
///
/// # Panics
/// After [`PATIENCE`], with what was waited for.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain until {what}");
        sleep(LOOK);
    }
}

/// Looks again and again until it is so.
///
/// # Panics
/// After [`PATIENCE`], with what was waited for.
pub fn until_so(what: &str, mut look: impl FnMut() -> bool) {
    until(what, || look().then_some(()));
}

/// Asks again and again until there is an answer, and returns it.
///
/// # Panics
/// After [`PATIENCE`], with what was waited for.
pub async fn repeated<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let answer = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("waited in vain until {what}"))
}
