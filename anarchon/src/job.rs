//! A job: a name, a schedule, options and a handler.

use anarchon_schedule::{At, Cron, Every, Spec};

use crate::{
    context::Context,
    handler::{Handler, HandlerResult},
    policy::{Delays, Length, Options},
};

/// A job for [`Scheduler::job`](crate::Scheduler::job): a name, a schedule, a handler, and options.
///
/// The attributes make the same. Every option that is left out has the scheduler's default, and none may be longer than
/// 100 years. What is wrong in a text is
/// reported when the scheduler starts, together with everything else that is wrong.
///
/// ```
/// use anarchon::prelude::*;
///
/// async fn purge(_: Context) -> JobResult {
///     Ok(())
/// }
/// let job = Job::every("purge", "1h", purge).lease("60s").retries(3).backoff("5s..5m");
/// assert_eq!(job.name(), "purge");
/// ```
///
/// Nothing is checked here: what is out of range or cannot be read is an error of [`Scheduler::start`](crate::Scheduler::start), which
/// names the job and tells of all that is wrong together. Lengths are texts such as `"90s"`, `"1h30m"`, in units from `ms` to `w`, or
/// [`Duration`](std::time::Duration)s, and are at most 100 years.
#[derive(Debug, Clone)]
pub struct Job {
    name: String,
    pub(crate) spec: Spec,
    pub(crate) options: Options,
    pub(crate) handler: Handler,
}

impl Job {
    /// A job at a fixed interval, 100 ms to 1,000 years, on one grid for all instances: Unix epoch + offset + n × interval.
    pub fn every<F, R>(name: impl Into<String>, interval: impl Into<Every>, handler: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output: HandlerResult> + Send + 'static,
    {
        Self::from_parts(name, interval.into(), Handler::from_builder(handler))
    }

    /// A job with a cron expression of 5 fields, or 6 with seconds first, that means what Debian's cron means by it.
    pub fn cron<F, R>(name: impl Into<String>, expression: impl Into<Cron>, handler: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output: HandlerResult> + Send + 'static,
    {
        Self::from_parts(name, expression.into(), Handler::from_builder(handler))
    }

    /// A job at one or more instants.
    pub fn at<F, R>(name: impl Into<String>, instant: impl Into<At>, handler: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output: HandlerResult> + Send + 'static,
    {
        Self::from_parts(name, instant.into(), Handler::from_builder(handler))
    }

    #[doc(hidden)]
    pub fn from_parts(name: impl Into<String>, spec: impl Into<Spec>, handler: Handler) -> Self {
        Self { name: name.into(), spec: spec.into(), options: Options::default(), handler }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long the lease lasts without renewal: at least 5 s, 30 s by default. The longest time that a dead holder
    /// keeps its run from the others.
    ///
    /// A call to the store is given up after a sixth of it, and a run whose lease cannot be renewed is cancelled after 0.7 of
    /// it and dropped at 0.85: a store that may take a second to answer wants more than the shortest.
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Length>) -> Self {
        self.options.lease = Some(lease.into());
        self
    }

    /// The longest random delay before a claim. By default min(500 ms, interval / 10). For `every` it has to be under the interval; for
    /// `cron` and `at` it is cut to nine tenths of the distance to the next planned time. Zero asks at once.
    #[must_use]
    pub fn jitter(mut self, jitter: impl Into<Length>) -> Self {
        self.options.jitter = Some(jitter.into());
        self
    }

    /// How late an occurrence may still start: 5 minutes by default; `"none"` is within its jitter + 1 s, and no window
    /// is shorter than that.
    #[must_use]
    pub fn catch_up(mut self, window: impl Into<Length>) -> Self {
        self.options.catch_up = Some(window.into());
        self
    }

    /// How long a run may take before it is cancelled and counts as an error: more than zero. None by default.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Length>) -> Self {
        self.options.timeout = Some(timeout.into());
        self
    }

    /// After how many attempts that ended by a crash or a lost lease an occurrence is given up: at least 1, 3 by default.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.options.max_attempts = Some(attempts);
        self
    }

    /// How many attempts follow an error or a time-out: 0 by default. Counted apart from `max_attempts`.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.options.retries = Some(retries);
        self
    }

    /// The delays before retries, the first and the longest, doubled each time: `"5s..5m"` by default. The first is more than zero and not
    /// more than the longest. A retry that waits gives way to the next planned time: keep all of them well under the interval.
    #[must_use]
    pub fn backoff(mut self, delays: impl Into<Delays>) -> Self {
        self.options.backoff = Some(delays.into());
        self
    }
}
