//! Scheduled jobs that run once across all instances of a service, with no leader.

pub mod clock;
#[doc(hidden)]
pub mod engine;
pub mod policy;
pub mod protocol;
pub mod store;
