//! What the tests of anarchon share.
