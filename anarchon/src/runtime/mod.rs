//! The only place with loops, spawns, sleeps and signals: does what the engine says.

mod driver;
mod report;
mod run;
mod shutdown;
#[cfg(test)]
mod tests;
mod thread;

pub(crate) use driver::random;
pub(crate) use thread::{Order, Plan, PlannedJob, Remote, start};
