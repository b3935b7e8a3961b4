//! A store that misbehaves on order, around any other.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use anarchon::{
    async_trait,
    protocol::{
        Announcement, Claim, Control, Controlled, Finish, Finished, JobName, JobSpec, Members, Namespace,
        Registered, Renewal, Renewed, Verdict,
    },
    store::{Answer, Guarantees, Snapshot, Store, StoreError},
};

/// What a faulty store does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Hands it on.
    None,
    /// Says that it could not be reached.
    Unavailable,
    /// Hands it on and loses the reply.
    LostReply,
    /// Never answers.
    Hang,
    /// Panics.
    Panic,
}

/// Wraps a store; clones share the fault and the counts.
#[derive(Debug, Clone)]
pub struct Faulty<S> {
    inner: S,
    fault: Arc<Mutex<Fault>>,
    claims: Arc<Mutex<Vec<usize>>>,
    calls: Arc<AtomicUsize>,
}

impl<S> Faulty<S> {
    /// A wrapper that does nothing yet.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            fault: Arc::new(Mutex::new(Fault::None)),
            claims: Arc::default(),
            calls: Arc::default(),
        }
    }
    /// What to do from now on.
    ///
    /// # Panics
    /// When another test thread panicked in here.
    pub fn set(&self, fault: Fault) {
        *self.fault.lock().expect("not poisoned") = fault;
    }
    /// The sizes of the batches of claims so far.
    ///
    /// # Panics
    /// When another test thread panicked in here.
    #[must_use]
    pub fn claims(&self) -> Vec<usize> {
        self.claims.lock().expect("not poisoned").clone()
    }
    /// How many calls there were.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    async fn before(&self) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let fault = *self.fault.lock().expect("not poisoned");
        match fault {
            Fault::None | Fault::LostReply => Ok(()),
            Fault::Unavailable => Err(StoreError::unavailable("switched off by the test")),
            Fault::Hang => std::future::pending().await,
            Fault::Panic => panic!("on order of the test"),
        }
    }

    fn after<T>(&self, answers: Vec<Answer<T>>) -> Vec<Answer<T>> {
        let fault = *self.fault.lock().expect("not poisoned");
        match fault {
            Fault::LostReply => {
                answers.iter().map(|_| Err(StoreError::unknown("lost by the test"))).collect()
            }
            Fault::None | Fault::Unavailable | Fault::Hang | Fault::Panic => answers,
        }
    }
}

macro_rules! batch {
    ($self:ident, $items:ident, $call:expr) => {
        match $self.before().await {
            Ok(()) => $self.after($call.await),
            Err(error) => $items.iter().map(|_| Err(error.clone())).collect(),
        }
    };
}

#[async_trait]
impl<S: Store> Store for Faulty<S> {
    async fn open(&self, namespace: &Namespace) -> Result<Guarantees, StoreError> {
        self.before().await?;
        self.inner.open(namespace).await
    }
    async fn register(&self, specs: &[JobSpec]) -> Vec<Answer<Registered>> {
        batch!(self, specs, self.inner.register(specs))
    }
    async fn claim(&self, claims: &[Claim]) -> Vec<Answer<Verdict>> {
        self.claims.lock().expect("not poisoned").push(claims.len());
        batch!(self, claims, self.inner.claim(claims))
    }
    async fn renew(&self, renewals: &[Renewal]) -> Vec<Answer<Renewed>> {
        batch!(self, renewals, self.inner.renew(renewals))
    }
    async fn finish(&self, finishes: &[Finish]) -> Vec<Answer<Finished>> {
        batch!(self, finishes, self.inner.finish(finishes))
    }
    async fn inspect(&self, jobs: &[JobName], history: u8) -> Vec<Answer<Option<Snapshot>>> {
        batch!(self, jobs, self.inner.inspect(jobs, history))
    }
    async fn control(&self, controls: &[Control]) -> Vec<Answer<Controlled>> {
        batch!(self, controls, self.inner.control(controls))
    }
    async fn beat(&self, announcement: &Announcement) -> Answer<Members> {
        self.before().await?;
        self.inner.beat(announcement).await
    }
    fn changes(&self) -> Option<Pin<Box<dyn futures_core::Stream<Item = JobName> + Send>>> {
        self.inner.changes()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}
