//! What is said of a record that cannot be read: the same for every store, with the mend.

use std::fmt;

use super::StoreError;

/// What the damage of a record begins with that nobody damaged: this program is older than the one that wrote it.
pub(super) const NEWER: &str = "was written by a newer anarchon";

/// The error of a job whose record cannot be read. One of a newer form must not be forgotten: the newer program needs it.
pub(super) fn unreadable(record: fmt::Arguments<'_>, damage: &str) -> StoreError {
    if damage.starts_with(NEWER) {
        return StoreError::misconfigured(format_args!("{record} {damage}; update this program"));
    }
    StoreError::misconfigured(format_args!(
        "{record} is damaged or written by something else: {damage}; delete it with forget, and the job begins anew"
    ))
}
