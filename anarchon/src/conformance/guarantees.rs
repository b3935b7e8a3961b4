//! What a store says of itself is true, and handles see what others wrote.

use std::time::Duration;

use super::subject::{Job, LONG, Subject, instance, name, until};
use crate::{
    protocol::{Announcement, Control, ControlAction, Finish, Finished, Outcome, Renewal, Renewed, Token},
    store::{Answer, Durability, StoreErrorKind},
};

pub(super) async fn opening_again_promises_the_same_and_loses_nothing(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(LONG).await;
    let before = job.record().await;
    for _ in 0..3 {
        assert_eq!(t.store.open(&t.namespace).await.unwrap(), t.guarantees);
    }
    assert_eq!(job.record().await, before);
    job.close(award.token, Outcome::Succeeded).await;
}

pub(super) async fn a_handle_sees_what_another_wrote(t: Subject) {
    let job = t.job("job").await;
    let other = job.through(&t.handle().await);
    for _ in 0..20 {
        let award = job.start(LONG).await;
        if t.is_shared() {
            assert_eq!(other.record().await.token, award.token);
            other.close(award.token, Outcome::Succeeded).await;
        } else {
            other.sees_only_that_it_is_held().await;
            assert_eq!(other.renew(award.token, LONG).await.value, Renewed::Lost);
            assert_eq!(other.finish(award.token, Outcome::Succeeded).await.value, Finished::Refused);
            job.close(award.token, Outcome::Succeeded).await;
        }
        assert_eq!(job.snapshot().await, other.snapshot().await);
    }
}

pub(super) async fn what_was_written_outlives_the_handle(t: Subject) {
    let written = {
        let handle = t.handle().await;
        let job = t.job("job").await.through(&handle);
        job.start(LONG).await;
        job.snapshot().await
    };
    let job = Job { store: t.handle().await, name: name("job") };
    if t.is_shared() {
        assert_eq!(job.snapshot().await, written);
    } else {
        until("the record is back", async || (job.snapshot().await == written).then_some(())).await;
    }
}

pub(super) async fn hints_at_changes_are_there_when_declared_and_only_then(t: Subject) {
    assert_eq!(t.store.changes().is_some(), t.guarantees.changes);
}

pub(super) async fn announcements_are_there_when_declared_and_only_then(t: Subject) {
    let present = Announcement::Present {
        instance: instance("a"),
        schedules: Vec::new(),
        zones: String::new(),
        contested: Vec::new(),
    };
    let first = t.store.beat(&present).await.unwrap().value;
    let second = t.store.beat(&present).await.unwrap().value;
    assert_eq!((first.known, second.known), (false, t.guarantees.beat));
    t.store.beat(&Announcement::Withdrawn { instance: instance("a") }).await.unwrap();
}

pub(super) async fn the_store_says_what_it_is(t: Subject) {
    assert!(!t.guarantees.store.trim().is_empty());
    assert!(!t.store.describe().trim().is_empty());
    assert!(t.guarantees.history > 0);
    let shortest = t.guarantees.shortest_lease;
    assert!(shortest <= Duration::from_secs(30), "the default lease is 30 s, the shortest here {shortest:?}");
    if let Durability::Unsafe(reason) = &t.guarantees.durability {
        assert!(!reason.trim().is_empty());
    }
}

pub(super) async fn a_handle_that_is_not_open_answers_every_item_as_misconfigured(t: Subject) {
    let job = t.job("job").await;
    let store = (t.harness.handle)();
    // It did not happen, and will not while nobody opens it: the fault is the caller's, not the store's.
    fn refused<V: std::fmt::Debug>(answers: Vec<Answer<V>>, items: usize) {
        assert_eq!(answers.len(), items);
        for answer in answers {
            assert_eq!(answer.unwrap_err().kind, StoreErrorKind::Misconfigured);
        }
    }
    refused(store.register(&[job.spec(), job.spec()]).await, 2);
    refused(store.inspect(&[job.name.clone(), job.name.clone()], 0).await, 2);
    let claim = job.ask_planned(job.due().await);
    refused(store.claim(&[claim.clone(), claim]).await, 2);
    let renewal = Renewal { job: job.name.clone(), token: Token(1), lease: LONG };
    refused(store.renew(&[renewal]).await, 1);
    let finish =
        Finish { job: job.name.clone(), token: Token(1), outcome: Outcome::Succeeded, message: None };
    refused(store.finish(&[finish]).await, 1);
    refused(store.control(&[Control { job: job.name.clone(), action: ControlAction::Pause }]).await, 1);
    refused(vec![store.beat(&Announcement::Withdrawn { instance: instance("a") }).await], 1);
    // It still can be opened.
    store.open(&t.namespace).await.unwrap();
    assert_eq!(job.through(&store).record().await, job.record().await);
}
