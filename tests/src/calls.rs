//! What tests ask stores: plain calls, to be varied where it matters.

use std::time::{Duration, Instant};

use anarchon::{
    protocol::{
        Announcement, Award, Claim, Contested, Control, ControlAction, Controlled, Fingerprint, Finish,
        Finished, InstanceId, JobName, JobSpec, Millis, Namespace, Nonce, Outcome, Renewal, Renewed,
        StoreNow, Token, Verdict, Waiting, What,
    },
    store::{Answer, Store, StoreError},
};

use crate::wait::repeated;

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
    told_due(store, name).await.expect("an answer")
}

async fn told_due(store: &dyn Store, name: &str) -> Result<Millis, StoreError> {
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        let read = store.inspect(&[job(name)], 0).await.remove(0)?;
        let now = read.now.millis();
        if now > read.value.expect("a registered job").record.decided {
            return Ok(now);
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

/// All that two instances and an operator do with a store: jobs are registered, run, fail, are taken over by the other
/// instance, paused, triggered, resumed and forgotten; where instances announce themselves, these do.
///
/// # Errors
/// The first that the store answers.
///
/// # Panics
/// When an answer is not what it has to be.
pub async fn live(store: &dyn Store, other: &dyn Store, announces: bool) -> Result<(), StoreError> {
    let suffix = fastrand::u64(..);
    let names = ["one", "two"].map(|name| format!("{name}-{suffix:x}"));
    let [first, second] = &names;
    let order = async |name: &str, action| {
        let done = one(store.control(&[Control { job: job(name), action }]).await)?;
        assert_eq!(done, Controlled::Done, "{action:?}");
        Ok::<_, StoreError>(())
    };
    assert_eq!(one(store.inspect(&[job(first)], 1).await)?, None);
    for answer in store.register(&[spec(first), spec(second)]).await {
        answer?;
    }
    // The second was registered last.
    let at = told_due(store, second).await?;
    let mut tokens = Vec::new();
    for answer in store.claim(&[claim(first, at, suffix), claim(second, at, suffix)]).await {
        tokens.push(award(answer?.value).token);
    }
    let renewal = |name: &str, token| Renewal { job: job(name), token, lease: Duration::from_secs(30) };
    for answer in store.renew(&[renewal(first, tokens[0]), renewal(second, tokens[1])]).await {
        let renewed = answer?.value;
        assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
    }
    let retry = Finish { outcome: Outcome::Retry(Duration::ZERO), ..finish(second, tokens[1]) };
    for answer in store.finish(&[finish(first, tokens[0]), retry]).await {
        let finished = answer?.value;
        assert!(matches!(finished, Finished::Closed(_)), "{finished:?}");
    }
    let taken = won(other, second, What::Takeover { token: tokens[1], observed: None }).await?;
    one(other.finish(&[finish(second, taken)]).await)?;
    order(first, ControlAction::Pause).await?;
    order(first, ControlAction::Trigger).await?;
    let manual = won(other, first, What::Manual(1)).await?;
    one(other.finish(&[finish(first, manual)]).await)?;
    order(first, ControlAction::Resume).await?;
    let history = one(store.inspect(&[job(first)], 20).await)?.expect("a registered job").history;
    assert_eq!(history.len(), 2, "{history:?}");
    if announces {
        // Others may live in the same namespace.
        let [a, b] = ["a", "b"].map(|name| instance(&format!("{name}-{suffix:x}")));
        let present = |instance: &InstanceId, contested: &[Contested]| Announcement::Present {
            instance: instance.clone(),
            schedules: vec![(job(first), schedule())],
            zones: "2026a".to_owned(),
            contested: contested.to_vec(),
        };
        store.beat(&present(&a, &[])).await?;
        let own = Waiting { job: job(first), schedule: Fingerprint(!schedule().0), since: Millis(1) };
        let waits = Contested { in_force: schedule(), own };
        let members = other.beat(&present(&b, &[waits])).await?.value;
        assert!(members.instances.contains(&a) && members.instances.contains(&b), "{members:?}");
        assert_eq!(members.announced.len(), 1, "{members:?}");
        for (handle, instance) in [(store, a), (other, b)] {
            assert!(handle.beat(&Announcement::Withdrawn { instance }).await?.value.known);
        }
    }
    order(first, ControlAction::Forget).await?;
    order(second, ControlAction::Forget).await
}

/// Wins a run as soon as the store awards it.
async fn won(store: &dyn Store, name: &str, what: What) -> Result<Token, StoreError> {
    repeated("the job is free", async || {
        let claim = Claim { what, ..claim(name, Millis(0), fastrand::u64(..)) };
        match one(store.claim(&[claim]).await) {
            Ok(Verdict::Held(_)) => None,
            answer => Some(answer.map(|verdict| award(verdict).token)),
        }
    })
    .await
}
