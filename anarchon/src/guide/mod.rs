//! The guide: what is worth to know before and behind the reference.
//!
//! | page | for whom |
//! | --- | --- |
//! | [`guarantees`] | who has to know why this is safe: what is promised, what is not, on which store, and how to check it again |
//! | [`cost`] | who has many jobs or instances: what an occurrence costs on which store, what a store can do, when to split |
//! | [`security`] | who runs anarchon where somebody may want to do harm: what each kind of access can do, least rights for each store, TLS, passwords |

#[doc = include_str!("cost.md")]
pub mod cost {}

#[doc = include_str!("guarantees.md")]
#[doc = include_str!("../store/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("security.md")]
pub mod security {}
