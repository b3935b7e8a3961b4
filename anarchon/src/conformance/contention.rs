//! Many handles at once; what one could do alone is checked elsewhere.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::subject::{Job, SHORT, Subject, all, at_once, name, pause};
use crate::{
    protocol::{Award, Claim, ControlAction, Controlled, Finished, Outcome, Registered, Status, Verdict},
    store::{Store, StoreErrorKind},
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

pub(super) async fn two_handles_contending_for_many_occurrences_are_awarded_each_once(subject: Subject) {
    let jobs = subject.jobs(subject.harness.most_jobs.min(500)).await;
    // What is due for one is due for all.
    let due = jobs[jobs.len() - 1].due().await;
    let stores = [Arc::clone(&subject.store), subject.handle().await];
    let tasks = stores.clone().map(|store| {
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
        let token = awards[job.name.as_str()].token;
        let readers = if subject.is_shared() { &stores[..1] } else { &stores[..] };
        let mut told = Vec::new();
        for store in readers {
            told.push(job.through(store).record().await.token);
        }
        assert!(told.contains(&token), "the record of \"{}\" has {told:?}, awarded was {token}", job.name);
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
        let mut won = Vec::new();
        for (rival, verdict) in rivals.iter().zip(at_once(claims).await) {
            match verdict {
                Verdict::Awarded(award) => won.push((rival, award)),
                Verdict::AlreadyDecided(_) => {}
                other => panic!("neither won nor lost: {other:?}"),
            }
        }
        let [(winner, award)] = won[..] else { panic!("{} awards", won.len()) };
        winner.close(award.token, Outcome::Succeeded).await;
    }
}

pub(super) async fn a_claim_sent_twice_at_once_wins_one_award(subject: Subject) {
    let job = subject.job("job").await;
    // Who keeps a record to itself knows its own claims alone.
    let rivals =
        if subject.is_shared() { through_many(&subject, &job, 4).await } else { vec![job.clone(); 4] };
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
    let (is_shared, is_won) = (subject.is_shared(), Arc::new(AtomicBool::new(false)));
    let takeovers = watchers.iter().cloned().map(|watcher| {
        let is_won = Arc::clone(&is_won);
        async move {
            // Not by `take_over`, whose future is not `Send`. A lease that never ends is another check's failure.
            loop {
                let late = is_won.load(Ordering::SeqCst);
                let verdict = watcher.claim(&watcher.ask_takeover(first.token)).await.value;
                match &verdict {
                    Verdict::Awarded(_) => is_won.store(true, Ordering::SeqCst),
                    Verdict::Held(_) => {}
                    // Told of a lease that it cannot look at, a watcher waits for that one too.
                    Verdict::AlreadyDone(told) if !is_shared && told.status == Status::Running => {}
                    _ => return verdict,
                }
                if late || matches!(verdict, Verdict::Awarded(_)) {
                    return verdict;
                }
                pause(Duration::from_millis(1)).await;
            }
        }
    });
    let mut won = Vec::new();
    for (watcher, verdict) in watchers.iter().zip(at_once(takeovers).await) {
        match verdict {
            Verdict::Awarded(award) => won.push((watcher, award)),
            Verdict::AlreadyDone(_) => {}
            Verdict::Held(_) if !is_shared => {}
            other => panic!("neither won nor lost: {other:?}"),
        }
    }
    let [(winner, award)] = won[..] else { panic!("{} awards", won.len()) };
    let record = winner.record().await;
    assert_eq!((record.attempt, record.runs, record.status), (2, 1, Status::Running));
    assert!(award.started >= first.until, "taken over before the lease had ended");
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
                watcher.close(next.token, Outcome::Succeeded).await;
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
            // A cluster that twenty ask for the same place may need a moment to agree on one; so does a busy broker.
            let spec = [job.spec()];
            for _ in 0..200 {
                match job.store.register(&spec).await.remove(0) {
                    Err(error) if error.kind != StoreErrorKind::Misconfigured => {
                        pause(Duration::from_millis(50)).await;
                    }
                    answer => return answer.unwrap().value,
                }
            }
            panic!("registered in vain");
        }
    });
    let answers = at_once(instances).await;
    let created = answers.iter().filter(|answer| matches!(answer, Registered::Created(_))).count();
    assert_eq!(created, 1, "one of them creates the job: {answers:?}");
    assert!(answers.iter().all(|answer| !matches!(answer, Registered::Stale(_))), "{answers:?}");
}
