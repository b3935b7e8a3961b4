//! A queue of things to come back to, ordered by time; each thing is in it at most once.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

#[derive(Debug)]
pub(super) struct Timers<T, K> {
    by_time: BTreeSet<(T, K)>,
    of: HashMap<K, T>,
}

impl<T, K> Default for Timers<T, K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), of: HashMap::new() }
    }
}

impl<T: Copy + Ord, K: Copy + Ord + Hash> Timers<T, K> {
    /// Comes back to `key` at `at` and at no other time.
    pub(super) fn set(&mut self, key: K, at: T) {
        if let Some(old) = self.of.insert(key, at) {
            self.by_time.remove(&(old, key));
        }
        self.by_time.insert((at, key));
    }

    /// Comes back to `key` at `at` at the latest.
    pub(super) fn advance(&mut self, key: K, at: T) {
        if self.of.get(&key).is_none_or(|old| at < *old) {
            self.set(key, at);
        }
    }

    pub(super) fn clear(&mut self, key: K) {
        if let Some(old) = self.of.remove(&key) {
            self.by_time.remove(&(old, key));
        }
    }

    #[cfg(test)]
    pub(super) fn get(&self, key: K) -> Option<T> {
        self.of.get(&key).copied()
    }

    pub(super) fn first(&self) -> Option<T> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out the first that is due.
    pub(super) fn pop(&mut self, now: T) -> Option<K> {
        let (at, key) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.by_time.remove(&(at, key));
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
