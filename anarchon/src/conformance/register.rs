//! Registering: the only call that creates, and which schedule is in force.

use super::subject::{Job, LONG, OTHER_SCHEDULE, SCHEDULE, Subject, all, instance, name};
use crate::{
    protocol::{
        ControlAction, Fingerprint, Finished, JobSpec, Millis, Nonce, Outcome, Record, Registered, Renewed,
        Replace, Status, Token, Verdict,
    },
    store::Stamped,
};

fn replacing(job: &Job, old: Fingerprint, since: Millis) -> JobSpec {
    JobSpec { schedule: OTHER_SCHEDULE, replace: Some(Replace { old, since }), ..job.spec() }
}

pub(super) async fn a_new_job_has_decided_all_that_was_before_it(t: Subject) {
    let job = Job { store: t.store.clone(), name: name("job") };
    assert_eq!(job.inspect(0).await.value, None);
    let spec = JobSpec { by: instance("b"), ..job.spec() };
    let Stamped { value: created, now } = super::subject::one(t.store.register(&[spec]).await);
    let Registered::Created(record) = created else { panic!("{created:?}") };
    assert_eq!(record, job.record().await);
    let counts = [record.attempt, record.crashes, record.errors];
    assert_eq!((record.decided, record.status, counts), (now.millis(), Status::Idle, [0; 3]));
    assert_eq!((record.token, record.nonce, record.cancel), (Token(0), Nonce::default(), None));
    assert_eq!((record.manual_asked, record.manual_done, record.runs), (0, 0, 0));
    assert_eq!((record.schedule, record.paused), (SCHEDULE, false));
    assert_eq!(job.history().await, []);
}

pub(super) async fn registering_the_schedule_in_force_changes_nothing(t: Subject) {
    let job = t.job("job").await;
    job.start(LONG).await;
    let before = job.record().await;
    assert_eq!(job.register(&job.spec()).await, Registered::InForce(before.clone()));
    let other = JobSpec { by: instance("b"), ..job.spec() };
    let registered = job.through(&t.handle().await).register(&other).await;
    if t.is_shared() {
        assert_eq!(registered, Registered::InForce(before.clone()));
    } else {
        let Registered::InForce(told) = registered else { panic!("{registered:?}") };
        assert_eq!((told.status, told.schedule), (Status::Running, SCHEDULE), "as far as it can be told");
    }
    let needless = JobSpec { schedule: SCHEDULE, ..replacing(&job, SCHEDULE, before.until) };
    assert_eq!(job.register(&needless).await, Registered::InForce(before.clone()));
    assert_eq!(job.record().await, before);
}

pub(super) async fn registering_another_schedule_is_stale_and_changes_nothing(t: Subject) {
    let job = t.job("job").await;
    let before = job.record().await;
    let other = JobSpec { schedule: OTHER_SCHEDULE, ..job.spec() };
    assert_eq!(job.register(&other).await, Registered::Stale(before.clone()));
    let wrong = replacing(&job, Fingerprint(SCHEDULE.0 ^ (1 << 127)), before.decided);
    assert_eq!(job.register(&wrong).await, Registered::Stale(before.clone()), "compared on all bits");
    assert_eq!(job.record().await, before);
}

pub(super) async fn a_schedule_replaces_the_one_it_names_and_nothing_else_changes(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(LONG).await;
    let before = job.record().await;
    let spec = replacing(&job, SCHEDULE, Millis(0));
    let want = Record { schedule: OTHER_SCHEDULE, ..before };
    assert_eq!(job.register(&spec).await, Registered::InForce(want.clone()));
    assert_eq!(job.record().await, want);
    // Its duplicate finds its own schedule in force.
    assert_eq!(job.register(&spec).await, Registered::InForce(want.clone()));
    assert_eq!(job.record().await, want);
    // The run in flight goes on; claims go by the new schedule.
    assert!(matches!(job.renew(award.token, LONG).await.value, Renewed::Extended { .. }));
    assert!(matches!(job.finish(award.token, Outcome::Succeeded).await.value, Finished::Closed(_)));
    let old = job.ask_planned(job.due().await);
    assert_eq!(job.claim_in_vain(&old).await, Verdict::Stale { schedule: OTHER_SCHEDULE });
    assert_eq!(job.register(&job.spec()).await, Registered::Stale(job.record().await));
}

pub(super) async fn a_replacement_decides_up_to_since_but_not_the_future_and_never_goes_back(t: Subject) {
    let job = t.job("job").await;
    let created = job.record().await.decided;
    let since = Millis(created.0 + 1);
    job.after(since).await;
    assert!(matches!(job.register(&replacing(&job, SCHEDULE, since)).await, Registered::InForce(_)));
    assert_eq!(job.record().await.decided, since);

    let back = |schedule, since| JobSpec { schedule, ..replacing(&job, OTHER_SCHEDULE, since) };
    assert!(matches!(job.register(&back(SCHEDULE, created)).await, Registered::InForce(_)));
    assert_eq!(job.record().await.decided, since, "never back");

    let spec = replacing(&job, SCHEDULE, since.plus(LONG));
    let registered = super::subject::one(t.store.register(&[spec]).await);
    assert_eq!(job.record().await.decided, registered.now.millis(), "not the future");
}

pub(super) async fn a_batch_registers_what_it_can(t: Subject) {
    let known = t.job("known").await;
    let stale = t.job("stale").await;
    let new = Job { store: t.store.clone(), name: name("new") };
    let specs = [new.spec(), JobSpec { schedule: OTHER_SCHEDULE, ..stale.spec() }, known.spec()];
    let answers = all(t.store.register(&specs).await, specs.len());
    let told: Vec<_> = answers.into_iter().map(|answer| answer.value).collect();
    assert!(
        matches!(told[..], [Registered::Created(_), Registered::Stale(_), Registered::InForce(_)]),
        "{told:?}"
    );
}

pub(super) async fn a_forgotten_job_can_be_made_again(t: Subject) {
    let job = t.job("job").await;
    job.start(LONG).await;
    job.obey(ControlAction::Forget).await;
    let other = JobSpec { schedule: OTHER_SCHEDULE, ..job.spec() };
    let registered = job.register(&other).await;
    let Registered::Created(record) = registered else { panic!("{registered:?}") };
    assert_eq!((record.schedule, record.status, record.runs), (OTHER_SCHEDULE, Status::Idle, 0));
}
