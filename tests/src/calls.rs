//! What tests ask stores: plain calls, to be varied where it matters.

use std::time::{Duration, Instant};

use anarchon::{
    protocol::{
        Award, Claim, Fingerprint, Finish, InstanceId, JobName, JobSpec, Millis, Namespace, Nonce, Outcome,
        StoreNow, Token, Verdict, What,
    },
    store::{Answer, Store, StoreError},
};

/// The namespace of most tests.
///
/// # Panics
/// Never.
#[must_use]
pub fn ns() -> Namespace {
    Namespace::new("tests").expect("a valid name")
}

/// A job of this name.
///
/// # Panics
/// When it is no name of a job.
#[must_use]
pub fn job(name: &str) -> JobName {
    JobName::new(name).expect("a valid name")
}

/// The schedule of all jobs here.
#[must_use]
pub fn schedule() -> Fingerprint {
    Fingerprint::of("every 1 s")
}

/// An instance of this name.
///
/// # Panics
/// When it is no name of an instance.
#[must_use]
pub fn instance(name: &str) -> InstanceId {
    InstanceId::new(name).expect("a valid name")
}

/// What makes a job known.
#[must_use]
pub fn spec(name: &str) -> JobSpec {
    JobSpec { job: job(name), schedule: schedule(), by: instance("a"), replace: None, next: None }
}

/// The jobs `job-0`, `job-1` and so on.
#[must_use]
pub fn specs(jobs: usize) -> Vec<JobSpec> {
    (0..jobs).map(|n| spec(&format!("job-{n}"))).collect()
}

/// A claim of an occurrence, for half a minute.
#[must_use]
pub fn claim(name: &str, at: Millis, seq: u64) -> Claim {
    Claim {
        job: job(name),
        what: What::Planned(at),
        lease: Duration::from_secs(30),
        window: Duration::from_secs(300),
        max_attempts: 3,
        schedule: schedule(),
        holder: instance("a"),
        nonce: Nonce { instance: 7, seq },
        next: None,
        expires: Millis::MAX,
    }
}

/// The end of a run that succeeded.
#[must_use]
pub fn finish(name: &str, token: Token) -> Finish {
    Finish { job: job(name), token, outcome: Outcome::Succeeded, message: Some("well".into()) }
}

/// The answer to a batch of one.
///
/// # Errors
/// The store's.
///
/// # Panics
/// When there are more answers, or none.
pub fn one<T>(mut answers: Vec<Answer<T>>) -> Result<T, StoreError> {
    assert_eq!(answers.len(), 1, "answers to one item");
    answers.remove(0).map(|stamped| stamped.value)
}

/// The award that a verdict must be.
///
/// # Panics
/// When it is none.
pub fn award(verdict: Verdict) -> Award {
    match verdict {
        Verdict::Awarded(award) => award,
        other => panic!("not awarded: {other:?}"),
    }
}

/// Makes one job known.
///
/// # Panics
/// When the store does not answer.
pub async fn register(store: &dyn Store, name: &str) -> StoreNow {
    store.register(&[spec(name)]).await.remove(0).expect("an answer").now
}

/// An instant that is past and newer than every decision of before.
///
/// # Panics
/// When the store does not answer, or its clock stands still.
pub async fn due(store: &dyn Store, name: &str) -> Millis {
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        let read = store.inspect(&[job(name)], 0).await.remove(0).expect("an answer");
        let now = read.now.millis();
        if now > read.value.expect("a registered job").record.decided {
            return now;
        }
        assert!(Instant::now() < limit, "the store's clock stands still");
    }
}

/// Wins a run of a job that nobody has.
///
/// # Panics
/// When it is not awarded.
pub async fn win(store: &dyn Store, name: &str, seq: u64) -> Token {
    let at = due(store, name).await;
    award(one(store.claim(&[claim(name, at, seq)]).await).expect("an answer")).token
}
