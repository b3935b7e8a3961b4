//! Scheduled jobs that run once across all instances of a service, with no leader.
//!
//! Annotate methods, hand the value to [`run`](fn@run), and start the program as often as you like: each occurrence of a
//! job runs on one of its instances. Nothing is elected; one atomic call to a shared [store] awards each attempt with a
//! lease, the winner renews it while the handler runs, and when the winner dies or freezes another instance runs the
//! occurrence again as a new attempt, unless a newer one is claimed first: the newest wins, so that a job that kills its
//! process does not hold up its own schedule. So handlers run *at least once* for each awarded occurrence and have to bear a
//! repeat: [`Context::occurrence_id`] is an idempotency key (that of a manual run may come again once the
//! job's record was lost or forgotten), [`Context::fencing_token`] lets what a job writes to refuse
//! a late writer.
//!
//! | you want | look at |
//! | --- | --- |
//! | jobs as methods | `#[jobs]`, `#[every]`, `#[cron]`, `#[at]` |
//! | jobs as closures, options, operator's orders | [`Scheduler`], [`Job`], [`Running`] |
//! | what a handler is told, and when it has to end | [`Context`] |
//! | what each store holds and loses | [`MemoryBackend`], `SqliteBackend`, `PostgresBackend`, `RabbitMqBackend`, `RedisBackend`, `ValkeyBackend`, `NatsBackend` |
//! | a first program, whole programs to begin from, how to run it in production, why to trust it | [`guide`] |
//! | a store of your own | [`store::Store`], [`protocol`], and the module `conformance` behind the feature of that name |

// On docs.rs each item is shown with the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
#[doc(hidden)]
pub mod engine;
mod error;
pub mod guide;
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
#[cfg(feature = "nats")]
pub use store::NatsBackend;
#[cfg(feature = "postgres")]
pub use store::PostgresBackend;
#[cfg(feature = "rabbitmq")]
pub use store::RabbitMqBackend;
#[cfg(feature = "sqlite")]
pub use store::SqliteBackend;
#[cfg(feature = "redis")]
pub use store::{RedisBackend, ValkeyBackend};
