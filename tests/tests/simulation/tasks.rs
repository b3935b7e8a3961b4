//! Futures in virtual time: what the client of a store does step by step, and what is on its way meanwhile.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashSet, VecDeque},
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

use futures_util::future::{Either, LocalBoxFuture, select};

/// The instance whose process a task belongs to; none for what is outside of all.
pub(crate) type Owner = Option<usize>;

#[derive(Clone, Default)]
pub(crate) struct Tasks(Rc<Inner>);

#[derive(Default)]
struct Inner {
    time: Cell<u64>,
    last: Cell<u64>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    ready: Arc<Mutex<VecDeque<u64>>>,
    /// Woken while their process was frozen.
    parked: RefCell<VecDeque<u64>>,
    timers: RefCell<BTreeMap<(u64, u64), Waker>>,
    frozen: RefCell<HashSet<usize>>,
}

struct Task {
    owner: Owner,
    waker: Waker,
    future: LocalBoxFuture<'static, ()>,
}

struct Ready {
    task: u64,
    ready: Arc<Mutex<VecDeque<u64>>>,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        locked(&self.ready).push_back(self.task);
    }
}

fn locked(ready: &Mutex<VecDeque<u64>>) -> MutexGuard<'_, VecDeque<u64>> {
    ready.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tasks {
    pub(crate) fn time(&self) -> u64 {
        self.0.time.get()
    }

    fn number(&self) -> u64 {
        self.0.last.set(self.0.last.get() + 1);
        self.0.last.get()
    }

    /// Begins at the next [`run`](Self::run).
    pub(crate) fn spawn(&self, owner: Owner, future: impl Future<Output = ()> + 'static) -> u64 {
        let task = self.number();
        let waker = Waker::from(Arc::new(Ready { task, ready: Arc::clone(&self.0.ready) }));
        self.0.tasks.borrow_mut().insert(task, Task { owner, waker, future: Box::pin(future) });
        locked(&self.0.ready).push_back(task);
        task
    }

    pub(crate) fn end(&self, task: u64) {
        let ended = self.0.tasks.borrow_mut().remove(&task);
        drop(ended);
    }

    /// The process is gone, with all that it did.
    pub(crate) fn kill(&self, owner: usize) {
        let (dead, alive) = std::mem::take(&mut *self.0.tasks.borrow_mut())
            .into_iter()
            .partition(|(_, task)| task.owner == Some(owner));
        *self.0.tasks.borrow_mut() = alive;
        self.0.frozen.borrow_mut().remove(&owner);
        let dead: BTreeMap<u64, Task> = dead;
        drop(dead);
    }

    pub(crate) fn freeze(&self, owner: usize) {
        self.0.frozen.borrow_mut().insert(owner);
    }

    pub(crate) fn thaw(&self, owner: usize) {
        self.0.frozen.borrow_mut().remove(&owner);
        locked(&self.0.ready).extend(self.0.parked.borrow_mut().drain(..));
    }

    pub(crate) fn is_frozen(&self, owner: usize) -> bool {
        self.0.frozen.borrow().contains(&owner)
    }

    /// When something is to be done next.
    pub(crate) fn next(&self) -> Option<u64> {
        if !locked(&self.0.ready).is_empty() {
            return Some(self.time());
        }
        self.0.timers.borrow().first_key_value().map(|((at, _), _)| *at)
    }

    /// It is `time` now: whatever can go on goes on.
    pub(crate) fn run(&self, time: u64) {
        self.0.time.set(time);
        loop {
            let due = {
                let mut timers = self.0.timers.borrow_mut();
                let is_due = timers.first_key_value().is_some_and(|((at, _), _)| *at <= time);
                if is_due { timers.pop_first() } else { None }
            };
            match due {
                Some((_, waker)) => waker.wake(),
                None => break,
            }
        }
        loop {
            let next = locked(&self.0.ready).pop_front();
            let Some(task) = next else { break };
            self.poll(task);
        }
    }

    fn poll(&self, task: u64) {
        let taken = {
            let mut tasks = self.0.tasks.borrow_mut();
            match tasks.get(&task) {
                Some(Task { owner: Some(owner), .. }) if self.is_frozen(*owner) => {
                    self.0.parked.borrow_mut().push_back(task);
                    None
                }
                Some(_) => tasks.remove(&task),
                None => None,
            }
        };
        let Some(mut taken) = taken else { return };
        let waker = taken.waker.clone();
        if taken.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.0.tasks.borrow_mut().insert(task, taken);
        }
    }

    pub(crate) fn sleep_until(&self, at: u64) -> Sleep {
        Sleep { tasks: self.clone(), at, is_set: false }
    }

    /// `None` when it takes longer than so many microseconds.
    pub(crate) async fn timeout<T>(&self, micros: u64, future: impl Future<Output = T>) -> Option<T> {
        let sleep = self.sleep_until(self.time().saturating_add(micros));
        match select(Box::pin(future), sleep).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    }
}

pub(crate) struct Sleep {
    tasks: Tasks,
    at: u64,
    is_set: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.tasks.time() >= self.at {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut self.is_set, true) {
            let key = (self.at, self.tasks.number());
            self.tasks.0.timers.borrow_mut().insert(key, context.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_process_goes_on_where_it_was_and_a_killed_one_does_not() {
        let (tasks, log) = (Tasks::default(), Rc::new(RefCell::new(Vec::new())));
        for owner in [1, 2, 3] {
            let (inner, log) = (tasks.clone(), Rc::clone(&log));
            tasks.spawn(Some(owner), async move {
                inner.sleep_until(10).await;
                log.borrow_mut().push((owner, inner.time()));
            });
        }
        tasks.run(0);
        tasks.freeze(1);
        tasks.kill(2);
        assert_eq!(tasks.next(), Some(10));
        tasks.run(10);
        tasks.run(20);
        assert_eq!(*log.borrow(), [(3, 10)]);
        tasks.thaw(1);
        tasks.run(30);
        assert_eq!(*log.borrow(), [(3, 10), (1, 30)]);
    }

    #[test]
    fn what_has_come_counts_although_its_time_is_over() {
        let (tasks, told) = (Tasks::default(), Rc::new(Cell::new(None)));
        let (inner, tell) = (tasks.clone(), Rc::clone(&told));
        tasks.spawn(Some(1), async move {
            let came = inner.timeout(5, inner.sleep_until(3)).await;
            tell.set(Some(came.is_some() && inner.timeout(5, std::future::pending::<()>()).await.is_none()));
        });
        tasks.run(0);
        tasks.freeze(1);
        tasks.run(9);
        tasks.thaw(1);
        tasks.run(9);
        tasks.run(14);
        assert_eq!(told.get(), Some(true));
    }
}
