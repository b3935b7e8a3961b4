//! The attribute macros of the anarchon job scheduler.
