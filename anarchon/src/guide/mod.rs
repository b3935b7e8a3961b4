//! The guide: what is worth to know before and behind the reference.
//!
//! | page | for whom |
//! | --- | --- |
//! | [`guarantees`] | who has to know why this is safe: what is promised, what is not, on which store, and how to check it again |
//! | [`security`] | who runs anarchon where somebody may want to do harm: what each kind of access can do, least rights for each store, TLS, passwords |

#[doc = include_str!("guarantees.md")]
#[doc = include_str!("../store/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("security.md")]
pub mod security {}
