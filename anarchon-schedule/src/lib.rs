//! Schedules of the anarchon job scheduler.
