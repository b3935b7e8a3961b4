//! Scheduled jobs that run once across all instances of a service, with no leader.

mod builder;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
#[doc(hidden)]
pub mod engine;
mod error;
mod handler;
mod job;
#[doc(hidden)]
pub mod policy;
pub mod prelude;
pub mod protocol;
mod registration;
mod runtime;
pub mod store;

#[cfg(feature = "macros")]
pub use anarchon_macros::{at, cron, every, jobs};
pub use anarchon_schedule::{At, Cron, Every, Tz};
pub use async_trait::async_trait;
pub use builder::{Run, Running, Scheduler, run};
pub use context::{Context, OccurrenceId};
pub use engine::CancelReason;
pub use error::{Error, ErrorKind, Result};
pub use handler::{HandlerParameter, HandlerResult, JobResult};
pub use job::Job;
pub use policy::{Delays, Length};
pub use registration::Jobs;
#[doc(hidden)]
pub use registration::private as __private;
pub use store::MemoryBackend;
#[cfg(feature = "sqlite")]
pub use store::SqliteBackend;
