//! Operators' orders: trigger, pause, resume, cancel, forget.

use super::subject::{LONG, SHORT, Subject};
use crate::{
    protocol::{
        Control, ControlAction, Controlled, Finished, Outcome, Record, Renewed, RunOutcome, Status, Token,
        Verdict,
    },
    store::StoreErrorKind,
};

pub(super) async fn an_order_for_a_job_without_a_record_creates_none(t: Subject) {
    let job = t.job("job").await;
    job.obey(ControlAction::Forget).await;
    let actions = [
        ControlAction::Trigger,
        ControlAction::Pause,
        ControlAction::Resume,
        ControlAction::Cancel(Token(0)),
        ControlAction::Forget,
    ];
    for action in actions {
        assert_eq!(job.order(action).await, Controlled::Unregistered, "{action:?}");
    }
    assert_eq!(job.inspect(0).await.value, None);
}

pub(super) async fn every_trigger_counts(t: Subject) {
    let job = t.job("job").await;
    let before = job.record().await;
    for asked in 1..=3 {
        job.obey(ControlAction::Trigger).await;
        assert_eq!(job.record().await, Record { manual_asked: asked, ..before.clone() });
    }
}

pub(super) async fn a_pause_leaves_the_run_in_flight_and_its_next_attempts_alone(t: Subject) {
    let job = t.job("job").await;
    let first = job.start(LONG).await;
    let before = job.record().await;
    job.obey(ControlAction::Pause).await;
    job.obey(ControlAction::Pause).await;
    assert_eq!(job.record().await, Record { paused: true, ..before });
    let renewed = job.renew(first.token, SHORT).await.value;
    assert!(matches!(renewed, Renewed::Extended { cancel: false, .. }), "{renewed:?}");
    let second = job.next_attempt(first.token, LONG).await;
    job.close(second.token, Outcome::Retry(SHORT)).await;
    let third = job.next_attempt(second.token, LONG).await;
    assert_eq!((third.attempt, job.record().await.paused), (3, true));
}

pub(super) async fn what_fell_due_during_a_pause_is_gone_after_it_claimed_or_not(t: Subject) {
    let job = t.job("job").await;
    job.obey(ControlAction::Pause).await;
    let at = job.due().await;
    job.obey(ControlAction::Resume).await;
    let record = job.record().await;
    assert!(!record.paused && record.decided >= at);
    let verdict = job.claim_in_vain(&job.ask_planned(at)).await;
    assert!(matches!(verdict, Verdict::AlreadyDecided(_)), "{verdict:?}");
    job.start(LONG).await;
}

pub(super) async fn resuming_a_job_that_is_not_paused_changes_nothing(t: Subject) {
    let job = t.job("job").await;
    let before = job.record().await;
    job.after(before.decided).await;
    job.obey(ControlAction::Resume).await;
    assert_eq!(job.record().await, before);
}

pub(super) async fn the_holder_hears_of_a_cancel_at_its_next_renewal(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(LONG).await;
    let before = job.record().await;
    let other = job.through(&t.handle().await);
    if t.is_shared() {
        other.obey(ControlAction::Cancel(award.token)).await;
    } else {
        let order = Control { job: job.name.clone(), action: ControlAction::Cancel(award.token) };
        let refused = other.store.control(&[order]).await.remove(0).unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Misconfigured, "{refused}");
        assert_eq!(job.record().await, before);
        job.obey(ControlAction::Cancel(award.token)).await;
    }
    assert_eq!(job.record().await, Record { cancel: Some(award.token), ..before });
    assert_eq!(job.history().await, []);
    for _ in 0..2 {
        let renewed = job.renew(award.token, LONG).await.value;
        assert!(matches!(renewed, Renewed::Extended { cancel: true, .. }), "{renewed:?}");
    }
    let record = job.close(award.token, Outcome::Cancelled).await;
    assert_eq!(record.status, Status::Cancelled);
    // The next run is not the one that was meant.
    let next = job.start(LONG).await;
    let renewed = job.renew(next.token, LONG).await.value;
    assert!(matches!(renewed, Renewed::Extended { cancel: false, .. }), "{renewed:?}");
}

pub(super) async fn cancelling_a_waiting_job_ends_it(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(LONG).await;
    job.close(award.token, Outcome::Retry(SHORT)).await;
    job.obey(ControlAction::Cancel(award.token)).await;
    let record = job.record().await;
    assert_eq!((record.status, record.runs), (Status::Cancelled, 2));
    assert_eq!(job.outcomes().await, [(1, RunOutcome::Cancelled), (1, RunOutcome::Retrying)]);
    job.after(record.until).await;
    let verdict = job.claim_in_vain(&job.ask_takeover(award.token)).await;
    assert!(matches!(verdict, Verdict::AlreadyDone(_)), "{verdict:?}");
}

pub(super) async fn cancelling_another_token_or_a_finished_run_changes_nothing(t: Subject) {
    let job = t.job("job").await;
    let idle = job.snapshot().await;
    assert_eq!(job.order(ControlAction::Cancel(idle.record.token)).await, Controlled::NoSuchRun);
    assert_eq!(job.snapshot().await, idle);
    let award = job.start(LONG).await;
    let running = job.snapshot().await;
    for token in [Token(0), Token(award.token.0 - 1), Token(award.token.0 + 1)] {
        assert_eq!(job.order(ControlAction::Cancel(token)).await, Controlled::NoSuchRun);
    }
    assert_eq!(job.snapshot().await, running);
    job.close(award.token, Outcome::Succeeded).await;
    let finished = job.snapshot().await;
    assert_eq!(job.order(ControlAction::Cancel(award.token)).await, Controlled::NoSuchRun);
    assert_eq!(job.snapshot().await, finished);
}

pub(super) async fn what_comes_late_for_a_forgotten_job_finds_nothing_to_change(t: Subject) {
    let job = t.job("job").await;
    let at = job.due().await;
    let claim = job.ask_planned(at);
    let award = job.award(&claim).await;
    job.obey(ControlAction::Forget).await;
    job.after(at).await;
    job.register(&job.spec()).await;
    let before = job.snapshot().await;
    assert_eq!(job.renew(award.token, LONG).await.value, Renewed::Lost);
    assert_eq!(job.finish(award.token, Outcome::Failed).await.value, Finished::Refused);
    assert_eq!(job.order(ControlAction::Cancel(award.token)).await, Controlled::NoSuchRun);
    let verdict = job.claim(&claim).await.value;
    assert!(matches!(verdict, Verdict::AlreadyDecided(_)), "{verdict:?}");
    let verdict = job.claim(&job.ask_takeover(award.token)).await.value;
    assert!(matches!(verdict, Verdict::AlreadyDone(_)), "{verdict:?}");
    assert_eq!(job.snapshot().await, before);
}
