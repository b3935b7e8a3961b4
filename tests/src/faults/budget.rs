//! How much is played at a time.

use std::sync::{Condvar, Mutex, PoisonError};

/// How much load, of all stores together. A scenario of load 1 has a few processes that mostly wait, as does the machine:
/// two cores bear this many, and programs in debug builds.
pub(super) const BUDGET: usize = 36;

/// Lets scenarios wait for their turn, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Budget {
    state: Mutex<(usize, u64, u64)>,
    changed: Condvar,
}

pub(super) struct Share<'a>(&'a Budget, usize);

impl Budget {
    pub(super) fn take(&self, load: usize) -> Share<'_> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = state.1;
        state.1 += 1;
        while state.2 != ticket || state.0 + load > BUDGET {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.0 += load;
        state.2 += 1;
        self.changed.notify_all();
        Share(self, load)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).0 -= self.1;
        self.0.changed.notify_all();
    }
}
