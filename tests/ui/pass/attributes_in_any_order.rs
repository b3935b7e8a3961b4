#![deny(unused, missing_docs)]
#![forbid(unsafe_code)]
#![allow(unused_braces, reason = "a brace group that is no body")]
//! Attributes stay on the method.
use anarchon::{Context, JobResult, at, cron, every, jobs};

/// Jobs.
pub struct MyJobs;

#[jobs]
#[allow(dead_code, reason = "stays on the block")]
impl MyJobs {
    #![allow(clippy::needless_pass_by_value, reason = "stays in the block")]

    /// Documented.
    #[every("10s")]
    #[allow(unused_variables, reason = "stays on the method")]
    #[must_use]
    pub async fn sync(&self, ctx: Context) -> JobResult {
        let unused = 1;
        Ok(())
    }

    #[inline]
    #[cron("0 8 * * *", tz = "Europe/Athens")]
    /// Documented after it.
    pub async fn digest(&self) {}

    /// A constant.
    pub const LIMIT: usize = { 3 };

    #[expect(clippy::unused_self, reason = "stays on the method")]
    #[at("2027-01-01T00:00:00Z")]
    #[cold]
    pub(crate) fn launch(&self) -> Result<(), String>
    where
        [u8; { MyJobs::LIMIT + 1 }]: Sized,
    {
        Ok(())
    }
}

fn main() {
    drop(anarchon::run(MyJobs));
}
