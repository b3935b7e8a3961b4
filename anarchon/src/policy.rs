//! The options of a job, as checked values: lease, catch-up, jitter, retries.

use std::time::Duration;

/// The shortest lease: renewals every third of it must survive a slow store.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_secs(5);

/// How a job is run; every value is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How long the lease lasts without renewal.
    pub lease: Duration,
    /// How late an occurrence may still start.
    pub catch_up: CatchUp,
    /// The random delay before a claim.
    pub jitter: Jitter,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    /// After how many attempts that ended by crash or lost lease an occurrence is given up.
    pub max_attempts: u32,
    /// How many attempts follow an error or a time-out.
    pub retries: u32,
    /// The delay before those.
    pub backoff: Backoff,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            catch_up: CatchUp::Window(Duration::from_secs(300)),
            jitter: Jitter::Default,
            timeout: None,
            max_attempts: 3,
            retries: 0,
            backoff: Backoff { first: Duration::from_secs(5), max: Duration::from_secs(300) },
        }
    }
}

/// How late an occurrence may still start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatchUp {
    /// Up to this long after its planned time.
    Window(Duration),
    /// Only within its jitter + 1 s.
    None,
}

/// The random delay before a claim, which spreads the load over the instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// 0 … min(500 ms, interval / 10).
    Default,
    /// 0 … this long.
    UpTo(Duration),
}

/// The delay before the n-th retry: doubled each time, from `first` up to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The delay before the first retry.
    pub first: Duration,
    /// The longest delay.
    pub max: Duration,
}
