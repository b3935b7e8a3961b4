//! `scripts/bench`: the cost of an occurrence, beside what users would pick instead. Each instance is a process, one of the
//! programs in `bin`; this is what they have in common.

pub mod board;
pub mod instance;
pub mod processes;

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in µs since the epoch.
pub fn micros() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

/// The name of the job with this number.
pub fn job(number: usize) -> String {
    format!("job-{number:05}")
}
