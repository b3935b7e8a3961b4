//! How much is played at a time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// How much load, of all stores together. A scenario of load 1 has a few processes that mostly wait, which takes a hundredth
/// of a core; but a machine may have two cores, and many of them wake at the same second.
pub(super) const BUDGET: usize = 64;

/// What a scenario loads the machine with on top of that until its server and its processes have started.
const START: usize = 6;

/// Lets scenarios wait for their turn, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Budget {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    load: usize,
    came: u64,
    went: u64,
}

/// A part of the budget, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share(Arc<Budget>, usize);

impl Budget {
    /// Waits for that much, and returns it, and apart from it what the start takes.
    pub(super) fn take(self: &Arc<Self>, load: usize) -> (Share, Share) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = state.came;
        state.came += 1;
        while state.went != ticket || state.load + load + START > BUDGET {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.load += load + START;
        state.went += 1;
        self.changed.notify_all();
        (Share(Arc::clone(self), load), Share(Arc::clone(self), START))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).load -= self.1;
        self.0.changed.notify_all();
    }
}
