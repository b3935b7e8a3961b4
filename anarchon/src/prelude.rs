//! What a program with jobs needs: `use anarchon::prelude::*;`. Nothing in it is named `Error` or `Result`.

pub use crate::{At, Context, Cron, Every, Job, JobResult, Scheduler};
#[cfg(feature = "macros")]
pub use crate::{at, cron, every, jobs};
