//! The checks that every store must pass, for authors of stores. Exempt from semver.
//!
//! A test binary says how to reach the store, and runs [`checks`]; each works in a namespace of its own, on handles of
//! its own, and panics with what is wrong. It needs a tokio runtime with time, and threads for the checks of contention.
//!
//! ```
//! use std::sync::Arc;
//!
//! use anarchon::{
//!     MemoryBackend,
//!     conformance::{Harness, checks},
//! };
//!
//! let data = MemoryBackend::new();
//! let harness = Harness::new(move || Arc::new(data.clone()));
//! let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
//! for check in checks() {
//! #   if !check.name().starts_with("naming::") { continue }
//!     runtime.block_on(check.run(&harness));
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | variable | what it sets |
//! | --- | --- |
//! | `ANARCHON_MODEL_SEED` | the seed of `model`, to play a failed one again |
//! | `ANARCHON_MODEL_OPS` | how many operations `model` plays |

#![expect(clippy::unwrap_used, reason = "a check fails by a panic")]

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use crate::store::Store;

mod members;
mod naming;
#[expect(dead_code, reason = "the checks that use the rest are being written")]
mod subject;

use subject::Subject;

/// How the checks reach the store under test.
#[derive(Clone)]
pub struct Harness {
    handle: Arc<dyn Fn() -> Arc<dyn Store> + Send + Sync>,
    model_operations: usize,
}

impl Harness {
    /// `handle` makes a new handle on the same data, as one more process would have it; not yet open.
    pub fn new(handle: impl Fn() -> Arc<dyn Store> + Send + Sync + 'static) -> Self {
        Self { handle: Arc::new(handle), model_operations: 2_000 }
    }

    /// How many operations the model plays, unless `ANARCHON_MODEL_OPS` says otherwise: 2,000 if not set.
    #[must_use]
    pub fn model_operations(mut self, operations: usize) -> Self {
        self.model_operations = operations;
        self
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("model_operations", &self.model_operations).finish_non_exhaustive()
    }
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// One check.
#[derive(Clone, Copy)]
pub struct Check {
    name: &'static str,
    body: fn(Subject) -> Running,
}

impl Check {
    /// What it checks, as a sentence behind its module.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Opens a store in a new namespace and checks it.
    ///
    /// # Panics
    /// When the store fails the check.
    pub async fn run(&self, harness: &Harness) {
        (self.body)(Subject::open(harness).await).await;
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.name).finish()
    }
}

macro_rules! list {
    ($($module:ident { $($check:ident)* })*) => {
        vec![$($(Check {
            name: concat!(stringify!($module), "::", stringify!($check)),
            body: |subject| Box::pin($module::$check(subject)),
        },)*)*]
    };
}

/// All checks.
#[must_use]
pub fn checks() -> Vec<Check> {
    list! {
        naming {
            names_at_the_length_limit_keep_their_records_apart
            names_that_differ_in_case_or_in_a_mark_are_different
            namespaces_are_apart
            the_same_job_in_two_namespaces_is_two_jobs
            instances_of_other_namespaces_are_not_members
        }
        members {
            an_instance_is_known_from_its_second_beat_on
            the_members_are_told_sorted_and_once
            a_schedule_is_announced_while_another_instance_has_it
            who_withdraws_is_gone_at_once
            who_does_not_beat_is_gone_after_the_age_limit_and_not_before
        }
    }
}
