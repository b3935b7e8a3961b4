//! Queues of things to come back to, ordered by time; each thing is in its queue at most once.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

/// A queue of things that know themselves for when they are in it: each has a `slot`.
#[derive(Debug)]
pub(super) struct Queue<T, K>(BTreeSet<(T, K)>);

impl<T, K> Default for Queue<T, K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<T: Copy + Ord, K: Copy + Ord> Queue<T, K> {
    /// Comes back to `key` at `at` and at no other time.
    pub(super) fn set(&mut self, key: K, slot: &mut Option<T>, at: T) {
        self.clear(key, slot);
        *slot = Some(at);
        self.0.insert((at, key));
    }

    pub(super) fn clear(&mut self, key: K, slot: &mut Option<T>) {
        if let Some(old) = slot.take() {
            self.0.remove(&(old, key));
        }
    }

    pub(super) fn first(&self) -> Option<T> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes out the first that is due; its slot is to be emptied.
    pub(super) fn pop(&mut self, now: T) -> Option<K> {
        let (at, _) = self.0.first()?;
        if *at > now { None } else { self.0.pop_first().map(|(_, key)| key) }
    }
}

/// A queue of things of which few are in it.
#[derive(Debug)]
pub(super) struct Timers<T, K> {
    queue: Queue<T, K>,
    of: HashMap<K, T>,
}

impl<T, K> Default for Timers<T, K> {
    fn default() -> Self {
        Self { queue: Queue::default(), of: HashMap::new() }
    }
}

impl<T: Copy + Ord, K: Copy + Ord + Hash> Timers<T, K> {
    /// Comes back to `key` at `at` and at no other time.
    pub(super) fn set(&mut self, key: K, at: T) {
        let mut slot = self.of.insert(key, at);
        self.queue.set(key, &mut slot, at);
    }

    /// Comes back to `key` at `at` at the latest.
    pub(super) fn advance(&mut self, key: K, at: T) {
        if self.get(key).is_none_or(|old| at < old) {
            self.set(key, at);
        }
    }

    pub(super) fn clear(&mut self, key: K) {
        let mut slot = self.of.remove(&key);
        self.queue.clear(key, &mut slot);
    }

    pub(super) fn get(&self, key: K) -> Option<T> {
        self.of.get(&key).copied()
    }

    pub(super) fn first(&self) -> Option<T> {
        self.queue.first()
    }

    /// Takes out the first that is due.
    pub(super) fn pop(&mut self, now: T) -> Option<K> {
        let key = self.queue.pop(now)?;
        self.of.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_set_again_is_due_once_at_the_new_time() {
        let mut timers = Timers::default();
        timers.set('a', 5);
        timers.set('b', 6);
        timers.set('a', 7);
        assert_eq!(timers.pop(6), Some('b'));
        assert_eq!(timers.pop(6), None);
        assert_eq!(timers.pop(7), Some('a'));
        assert_eq!(timers.first(), None);
    }

    #[test]
    fn advancing_never_moves_a_time_back() {
        let mut timers = Timers::default();
        timers.set('a', 5);
        timers.advance('a', 9);
        assert_eq!(timers.get('a'), Some(5));
        timers.advance('a', 2);
        assert_eq!(timers.get('a'), Some(2));
        timers.clear('a');
        assert_eq!(timers.pop(99), None);
    }
}
