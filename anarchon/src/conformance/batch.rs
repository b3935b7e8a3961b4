//! Batches: one answer an item, in order, whatever the other items are.

use std::{future::Future as _, task::Poll};

use super::subject::{Job, LONG, OTHER_SCHEDULE, Subject, all, at_once, awarded, fresh_nonce, name};
use crate::protocol::{
    Claim, Control, ControlAction, Controlled, Finish, Finished, Occurrence, Outcome, Registered, Renewal,
    Renewed, Token, Verdict,
};

pub(super) async fn an_empty_batch_has_no_answers(t: Subject) {
    assert!(t.store.register(&[]).await.is_empty());
    assert!(t.store.claim(&[]).await.is_empty());
    assert!(t.store.renew(&[]).await.is_empty());
    assert!(t.store.finish(&[]).await.is_empty());
    assert!(t.store.inspect(&[], 20).await.is_empty());
    assert!(t.store.control(&[]).await.is_empty());
}

pub(super) async fn a_bad_item_leaves_the_others_alone(t: Subject) {
    let jobs = t.jobs(3).await;
    let nobody = name("a-job-that-nobody-registered");
    let at = jobs[2].due().await;
    let good = |n: usize| jobs[n].ask_planned(at);
    let stale = Claim { schedule: OTHER_SCHEDULE, ..good(1) };
    let claims = [good(0), Claim { job: nobody.clone(), ..good(1) }, stale, good(2)];
    let verdicts: Vec<_> = all(t.store.claim(&claims).await, 4).into_iter().map(|a| a.value).collect();
    let (first, last) = (awarded(verdicts[0].clone()), awarded(verdicts[3].clone()));
    assert_eq!(verdicts[1], Verdict::Unregistered);
    assert!(matches!(verdicts[2], Verdict::Stale { .. }), "{:?}", verdicts[2]);

    let renewal = |job: &Job, token| Renewal { job: job.name.clone(), token, lease: LONG };
    let lost = Renewal { job: nobody.clone(), token: Token(1), lease: LONG };
    let renewals =
        [renewal(&jobs[0], first.token), lost, renewal(&jobs[1], first.token), renewal(&jobs[2], last.token)];
    let renewed: Vec<_> = all(t.store.renew(&renewals).await, 4).into_iter().map(|a| a.value).collect();
    assert!(matches!(renewed[0], Renewed::Extended { .. }) && matches!(renewed[3], Renewed::Extended { .. }));
    assert_eq!(renewed[1..3], [Renewed::Lost, Renewed::Lost]);

    let finish = |job: &Job, token| Finish {
        job: job.name.clone(),
        token,
        outcome: Outcome::Succeeded,
        message: None,
    };
    let refused = Finish { job: nobody.clone(), ..finish(&jobs[0], Token(1)) };
    let finishes =
        [finish(&jobs[0], first.token), refused, finish(&jobs[1], first.token), finish(&jobs[2], last.token)];
    let finished: Vec<_> = all(t.store.finish(&finishes).await, 4).into_iter().map(|a| a.value).collect();
    assert!(matches!(finished[0], Finished::Closed(_)) && matches!(finished[3], Finished::Closed(_)));
    assert_eq!(finished[1..3], [Finished::Refused, Finished::Refused]);

    let order = |job: &Job, action| Control { job: job.name.clone(), action };
    let controls = [
        order(&jobs[0], ControlAction::Trigger),
        Control { job: nobody, action: ControlAction::Trigger },
        order(&jobs[1], ControlAction::Cancel(Token(1))),
        order(&jobs[2], ControlAction::Trigger),
    ];
    let done: Vec<_> = all(t.store.control(&controls).await, 4).into_iter().map(|a| a.value).collect();
    let want = [Controlled::Done, Controlled::Unregistered, Controlled::NoSuchRun, Controlled::Done];
    assert_eq!(done, want);
    assert_eq!((jobs[0].record().await.manual_asked, jobs[2].record().await.manual_asked), (1, 1));
}

pub(super) async fn answers_come_in_the_order_of_the_items(t: Subject) {
    let mut jobs = t.jobs(60).await;
    // The last one was registered, and is decided, no earlier than the others.
    let at = jobs[59].due().await;
    fastrand::shuffle(&mut jobs);
    // Each job has a count of its own to be told by.
    for (n, job) in jobs.iter().enumerate() {
        let control = Control { job: job.name.clone(), action: ControlAction::Trigger };
        // Not twice in one batch: a job has one item a batch.
        for _ in 0..n % 7 {
            all(t.store.control(std::slice::from_ref(&control)).await, 1);
        }
    }
    let names: Vec<_> = jobs.iter().map(|job| job.name.clone()).collect();
    for (n, answer) in all(t.store.inspect(&names, 0).await, 60).into_iter().enumerate() {
        assert_eq!(answer.value.unwrap().record.manual_asked, (n % 7) as u64, "inspect, item {n}");
    }
    let claims: Vec<_> = jobs
        .iter()
        .enumerate()
        .map(|(n, job)| Claim {
            schedule: if n % 3 == 0 { OTHER_SCHEDULE } else { job.spec().schedule },
            ..job.ask_planned(at)
        })
        .collect();
    let verdicts = all(t.store.claim(&claims).await, 60);
    let mut renewals = Vec::new();
    for (n, (answer, job)) in verdicts.into_iter().zip(&jobs).enumerate() {
        let stale = matches!(answer.value, Verdict::Stale { .. });
        assert_eq!(stale, n % 3 == 0, "claim, item {n}: {:?}", answer.value);
        let token = if stale { Token(7) } else { awarded(answer.value).token };
        renewals.push(Renewal { job: job.name.clone(), token, lease: LONG });
    }
    for (n, answer) in all(t.store.renew(&renewals).await, 60).into_iter().enumerate() {
        assert_eq!(answer.value == Renewed::Lost, n % 3 == 0, "renew, item {n}");
    }
}

pub(super) async fn as_many_items_as_there_may_be_jobs_fit_in_one_batch(t: Subject) {
    let many = t.harness.most_jobs;
    let jobs = t.jobs(many).await;
    let at = jobs[many - 1].due().await;
    let claims: Vec<_> = jobs.iter().map(|job| job.ask_planned(at)).collect();
    let awards: Vec<_> =
        all(t.store.claim(&claims).await, many).into_iter().map(|answer| awarded(answer.value)).collect();
    assert!(awards.iter().all(|award| award.occurrence == Occurrence::Planned(at)));
    let renewals: Vec<_> = jobs
        .iter()
        .zip(&awards)
        .map(|(job, award)| Renewal { job: job.name.clone(), token: award.token, lease: LONG })
        .collect();
    for renewed in all(t.store.renew(&renewals).await, many) {
        assert!(matches!(renewed.value, Renewed::Extended { .. }), "{renewed:?}");
    }
    let finishes: Vec<_> = jobs
        .iter()
        .zip(&awards)
        .map(|(job, award)| Finish {
            job: job.name.clone(),
            token: award.token,
            outcome: Outcome::Succeeded,
            message: Some("m".repeat(1000)),
        })
        .collect();
    for finished in all(t.store.finish(&finishes).await, many) {
        assert!(matches!(finished.value, Finished::Closed(_)), "{finished:?}");
    }
    let names: Vec<_> = jobs.iter().map(|job| job.name.clone()).collect();
    for (read, award) in all(t.store.inspect(&names, u8::MAX).await, many).into_iter().zip(&awards) {
        let history = read.value.unwrap().history;
        assert_eq!(history.iter().map(|run| run.token).collect::<Vec<_>>(), [award.token]);
    }
    let controls: Vec<_> =
        names.into_iter().map(|job| Control { job, action: ControlAction::Forget }).collect();
    for done in all(t.store.control(&controls).await, many) {
        assert_eq!(done.value, Controlled::Done);
    }
}

/// The runtime gives up on a call at its deadline: the future is dropped wherever it is.
pub(super) async fn a_call_that_is_dropped_half_way_leaves_the_store_usable(t: Subject) {
    let jobs = t.jobs(50).await;
    let at = jobs[49].due().await;
    let claims: Vec<_> = jobs.iter().map(|job| job.ask_planned(at)).collect();
    for polls in 1..30 {
        let again: Vec<_> =
            claims.iter().map(|claim| Claim { nonce: fresh_nonce(), ..claim.clone() }).collect();
        let mut call = std::pin::pin!(t.store.claim(&again));
        let mut left = polls;
        std::future::poll_fn(|context| {
            left -= 1;
            match call.as_mut().poll(context) {
                Poll::Pending if left > 0 => Poll::Pending,
                Poll::Pending | Poll::Ready(_) => Poll::Ready(()),
            }
        })
        .await;
    }
    // Whatever of it happened, each job was awarded at most once, and the next calls work.
    for answer in all(t.store.claim(&claims).await, jobs.len()) {
        let fine = match &answer.value {
            Verdict::Awarded(award) => award.attempt == 1,
            Verdict::AlreadyDecided(record) => record.attempt == 1 && record.runs == 0,
            _ => false,
        };
        assert!(fine, "{answer:?}");
    }
    let registered = jobs[0].register(&jobs[0].spec()).await;
    assert!(matches!(registered, Registered::InForce(_)), "{registered:?}");
}

pub(super) async fn batches_of_the_same_jobs_in_any_order_do_not_hinder_each_other(t: Subject) {
    let jobs = t.jobs(40).await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let store = t.handle().await;
        let mut orders: Vec<_> = jobs
            .iter()
            .map(|job| Control { job: job.name.clone(), action: ControlAction::Trigger })
            .collect();
        tasks.push(async move {
            for _ in 0..5 {
                // In one order for all, a store that takes its locks as they come would not be caught.
                fastrand::shuffle(&mut orders);
                for done in all(store.control(&orders).await, orders.len()) {
                    assert_eq!(done.value, Controlled::Done);
                }
            }
        });
    }
    at_once(tasks).await;
    for job in &jobs {
        assert_eq!(job.record().await.manual_asked, 20, "{}", job.name);
    }
}
