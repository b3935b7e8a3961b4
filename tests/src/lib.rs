//! What the tests of anarchon share.

pub mod conformance;
pub mod faulty;
