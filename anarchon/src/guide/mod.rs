//! The guide: what is worth to know before and behind the reference.
//!
//! | page | for whom |
//! | --- | --- |
//! | [`security`] | who runs anarchon where somebody may want to do harm: what each kind of access can do, least rights for each store, TLS, passwords |

#[doc = include_str!("security.md")]
pub mod security {}
