//! Scheduled jobs that run once across all instances of a service, with no leader.
