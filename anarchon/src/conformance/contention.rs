//! Many handles at once; what one could do alone is checked elsewhere.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use super::subject::{Job, SHORT, Subject, all, at_once, awarded, name, pause};
use crate::{
    protocol::{Award, Claim, ControlAction, Controlled, Finished, Outcome, Registered, Status, Verdict},
    store::Store,
};

/// The same job through this many more handles.
async fn through_many(subject: &Subject, job: &Job, count: usize) -> Vec<Job> {
    let mut jobs = Vec::new();
    for _ in 0..count {
        jobs.push(job.through(&subject.handle().await));
    }
    jobs
}

/// In batches of 20, each handle in an order of its own.
async fn claim_all(store: Arc<dyn Store>, mut claims: Vec<Claim>) -> Vec<(String, Award)> {
    fastrand::shuffle(&mut claims);
    let mut won = Vec::new();
    for group in claims.chunks(20) {
        for (claim, answer) in group.iter().zip(all(store.claim(group).await, group.len())) {
            match answer.value {
                Verdict::Awarded(award) => won.push((claim.job.to_string(), award)),
                Verdict::AlreadyDecided(_) => {}
                other => panic!("neither won nor lost: {other:?}"),
            }
        }
    }
    won
}

pub(super) async fn two_handles_contending_for_500_occurrences_are_awarded_each_once(subject: Subject) {
    let jobs = subject.jobs(500).await;
    // What is due for one is due for all.
    let due = jobs[jobs.len() - 1].due().await;
    let tasks = [Arc::clone(&subject.store), subject.handle().await].map(|store| {
        let claims = jobs.iter().map(|job| job.ask_planned(due)).collect();
        let last = jobs[jobs.len() - 1].through(&store);
        async move {
            last.wait_for(due).await;
            claim_all(store, claims).await
        }
    });
    let mut awards = BTreeMap::new();
    for (job, award) in at_once(tasks).await.into_iter().flatten() {
        let twice = awards.insert(job.clone(), award);
        assert_eq!(twice, None, "\"{job}\" was awarded twice");
    }
    assert_eq!(awards.len(), jobs.len(), "some were awarded to nobody");
    for job in jobs {
        assert_eq!(
            job.record().await.token,
            awards[job.name.as_str()].token,
            "the record of \"{}\"",
            job.name
        );
    }
}

pub(super) async fn one_occurrence_claimed_by_many_is_awarded_once(subject: Subject) {
    let job = subject.job("job").await;
    let rivals = through_many(&subject, &job, 8).await;
    for _ in 0..5 {
        let due = job.due().await;
        let claims = rivals.iter().cloned().map(|rival| async move {
            rival.wait_for(due).await;
            rival.claim(&rival.ask_planned(due)).await.value
        });
        let (won, lost): (Vec<_>, Vec<_>) =
            at_once(claims).await.into_iter().partition(|verdict| matches!(verdict, Verdict::Awarded(_)));
        assert_eq!(won.len(), 1, "awards: {won:?}");
        assert!(lost.iter().all(|verdict| matches!(verdict, Verdict::AlreadyDecided(_))), "{lost:?}");
        for verdict in won {
            job.close(awarded(verdict).token, Outcome::Succeeded).await;
        }
    }
}

pub(super) async fn a_claim_sent_twice_at_once_wins_one_award(subject: Subject) {
    let job = subject.job("job").await;
    let rivals = through_many(&subject, &job, 4).await;
    let due = job.due().await;
    let claim = job.ask_planned(due);
    let repeats = rivals.iter().cloned().map(|rival| {
        let claim = claim.clone();
        async move {
            rival.wait_for(due).await;
            rival.award(&claim).await
        }
    });
    let awards = at_once(repeats).await;
    assert!(awards.iter().all(|award| *award == awards[0]), "{awards:?}");
    assert_eq!(job.record().await.attempt, 1);
}

pub(super) async fn a_lease_with_many_watchers_is_taken_over_once(subject: Subject) {
    let job = subject.job("job").await;
    let first = job.start(SHORT).await;
    let watchers = through_many(&subject, &job, 8).await;
    let takeovers = watchers.iter().cloned().map(|watcher| async move {
        // Not by `take_over`, whose future is not `Send`. A lease that never ends is another check's failure.
        loop {
            let verdict = watcher.claim(&watcher.ask_takeover(first.token)).await.value;
            if !matches!(verdict, Verdict::Held(_)) {
                return verdict;
            }
            pause(Duration::from_millis(1)).await;
        }
    });
    let (won, lost): (Vec<_>, Vec<_>) =
        at_once(takeovers).await.into_iter().partition(|verdict| matches!(verdict, Verdict::Awarded(_)));
    assert_eq!(won.len(), 1, "awards: {won:?}");
    assert!(lost.iter().all(|verdict| matches!(verdict, Verdict::AlreadyDone(_))), "{lost:?}");
    let record = job.record().await;
    assert_eq!((record.attempt, record.runs, record.status), (2, 1, Status::Running));
    for verdict in won {
        assert!(awarded(verdict).started >= first.until, "taken over before the lease had ended");
    }
}

/// The finish of a holder and the takeover of a watcher: one of them comes first, and both see which.
pub(super) async fn a_finish_and_a_takeover_at_once_agree_on_who_was_first(subject: Subject) {
    let holder = subject.job("job").await;
    let watcher = holder.through(&subject.handle().await);
    for _ in 0..10 {
        let award = holder.start(Duration::from_millis(1)).await;
        subject.over(&holder, award.until).await;
        let (mine, theirs) = (holder.clone(), watcher.clone());
        let finish = async move { (Some(mine.finish(award.token, Outcome::Succeeded).await.value), None) };
        let claim = async move { (None, Some(theirs.claim(&theirs.ask_takeover(award.token)).await.value)) };
        let tasks: [Pin<Box<dyn Future<Output = _> + Send>>; 2] = [Box::pin(finish), Box::pin(claim)];
        let answers = at_once(tasks).await;
        let (Some(finished), Some(verdict)) = (&answers[0].0, &answers[1].1) else { panic!("{answers:?}") };
        match (finished, verdict) {
            (Finished::Closed(_), Verdict::AlreadyDone(_)) => {}
            (Finished::Refused, Verdict::Awarded(next)) => {
                holder.close(next.token, Outcome::Succeeded).await;
            }
            both => panic!("they disagree: {both:?}"),
        }
    }
}

pub(super) async fn of_many_triggers_at_once_none_is_lost(subject: Subject) {
    let job = subject.job("job").await;
    let operators = through_many(&subject, &job, 8).await;
    let orders = operators.iter().cloned().map(|operator| async move {
        for _ in 0..5 {
            assert_eq!(operator.order(ControlAction::Trigger).await, Controlled::Done);
        }
    });
    at_once(orders).await;
    assert_eq!(job.record().await.manual_asked, 40);
}

pub(super) async fn twenty_instances_may_open_and_register_at_once(subject: Subject) {
    let instances = (0..20).map(|_| {
        let (harness, namespace) = (subject.harness.clone(), subject.namespace.clone());
        async move {
            let store = (harness.handle)();
            store.open(&namespace).await.unwrap();
            let job = Job { store, name: name("job") };
            job.register(&job.spec()).await
        }
    });
    let answers = at_once(instances).await;
    let created = answers.iter().filter(|answer| matches!(answer, Registered::Created(_))).count();
    assert_eq!(created, 1, "one of them creates the job: {answers:?}");
    assert!(answers.iter().all(|answer| !matches!(answer, Registered::Stale(_))), "{answers:?}");
}
