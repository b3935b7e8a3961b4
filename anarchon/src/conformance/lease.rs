//! Leases: held while they last, extended by renewals, over in time and never before; rules 9, 10 and 13.

use std::time::Duration;

use anarchon_schedule::LONGEST_OPTION;

use super::subject::{LONG, SHORT, Subject, awarded, instance, until};
use crate::{
    protocol::{
        Award, Claim, ControlAction, Finished, Millis, Outcome, Record, Renewed, RunOutcome, Status, Token,
        Verdict, What,
    },
    store::{LeaseScope, Stamped},
};

pub(super) async fn rule_9_a_takeover_of_another_token_is_already_done(t: Subject) {
    let job = t.job("job").await;
    let first = job.start(SHORT).await;
    let second = job.next_attempt(first.token, SHORT).await;
    job.after(second.until).await;
    for token in [Token(0), first.token, Token(second.token.0 - 1), Token(second.token.0 + 1)] {
        let verdict = job.claim_in_vain(&job.ask_takeover(token)).await;
        assert_eq!(verdict, Verdict::AlreadyDone(job.record().await), "{token}");
    }
    job.next_attempt(second.token, LONG).await;
}

pub(super) async fn rule_9_a_takeover_of_a_finished_run_is_already_done(t: Subject) {
    let job = t.job("job").await;
    let idle = job.claim_in_vain(&job.ask_takeover(Token(0))).await;
    assert_eq!(idle, Verdict::AlreadyDone(job.record().await));
    for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled] {
        let award = job.start(SHORT).await;
        let record = job.close(award.token, outcome).await;
        job.after(award.until).await;
        let verdict = job.claim_in_vain(&job.ask_takeover(award.token)).await;
        assert_eq!(verdict, Verdict::AlreadyDone(record), "{outcome:?}");
    }
}

pub(super) async fn rule_10_a_live_lease_is_held(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(LONG).await;
    let verdict = job.claim_in_vain(&job.ask_takeover(award.token)).await;
    assert_eq!(verdict, Verdict::Held(job.record().await));
    let other = job.through(&t.handle().await);
    if t.is_shared() {
        assert_eq!(other.claim_in_vain(&job.ask_takeover(award.token)).await, verdict);
        return;
    }
    // It may take the lease for another one, and then has a record to look at again.
    let verdict = other.claim(&job.ask_takeover(award.token)).await.value;
    let (Verdict::Held(told) | Verdict::AlreadyDone(told)) = verdict else { panic!("{verdict:?}") };
    assert_eq!(told.status, Status::Running);
    let verdict = other.claim(&job.ask_takeover(told.token)).await.value;
    assert!(matches!(verdict, Verdict::Held(_)), "{verdict:?}");
    other.sees_only_that_it_is_held().await;
}

pub(super) async fn rule_10_a_retry_is_held_until_it_is_due(t: Subject) {
    let job = t.job("job").await;
    let first = job.start(LONG).await;
    let waiting = job.close(first.token, Outcome::Retry(LONG)).await;
    let takeover = |observed| job.ask(What::Takeover { token: first.token, observed });
    for observed in [None, Some(waiting.until)] {
        let verdict = job.claim_in_vain(&takeover(observed)).await;
        assert_eq!(verdict, Verdict::Held(waiting.clone()), "observing does not make a retry due");
    }
    let second = job.start(LONG).await;
    let waiting = job.close(second.token, Outcome::Retry(SHORT)).await;
    let answer = job.take_over(&job.ask_takeover(second.token)).await;
    assert!(answer.now.millis() >= waiting.until, "at {:?}, due at {}", answer.now, waiting.until);
    assert_eq!(awarded(answer.value).attempt, 2);
}

pub(super) async fn rule_10_a_lease_that_was_observed_unchanged_is_over_whatever_the_clock_says(t: Subject) {
    let job = t.job("job").await;
    let first = job.start(LONG).await;
    let seen = |until| job.ask(What::Takeover { token: first.token, observed: Some(until) });
    // A renewal in between shows that the holder lives.
    job.renew(first.token, LONG).await;
    let until = job.record().await.until;
    assert_ne!(until, first.until);
    for wrong in [first.until, Millis(until.0 - 1), Millis(until.0 + 1), Millis(0)] {
        let verdict = job.claim_in_vain(&seen(wrong)).await;
        assert_eq!(verdict, Verdict::Held(job.record().await));
    }
    let second = job.award(&seen(until)).await;
    assert_eq!((second.attempt, second.crashes), (2, 1));
}

pub(super) async fn rule_13_an_expired_lease_is_awarded_with_a_higher_token_and_not_before_its_end(
    t: Subject,
) {
    let job = t.job("job").await;
    let first = job.start(SHORT).await;
    let before = job.record().await;
    let claim = Claim { holder: instance("b"), lease: LONG, ..job.ask_takeover(first.token) };
    let Stamped { value: verdict, now } = job.take_over(&claim).await;
    assert!(now.millis() >= first.until, "at {now:?}, the lease lasted until {}", first.until);
    let second = awarded(verdict);
    let want = Award {
        attempt: 2,
        crashes: 1,
        started: now.millis(),
        until: now.plus(LONG),
        token: Token(u64::try_from(now.0).unwrap().max(first.token.0 + 1)),
        ..first
    };
    assert_eq!(second, want);
    let record = job.record().await;
    let want = Record {
        attempt: 2,
        crashes: 1,
        started: second.started,
        until: second.until,
        token: second.token,
        holder: claim.holder,
        nonce: record.nonce,
        runs: before.runs + 1,
        ..before
    };
    assert_eq!(record, want);
    assert_eq!(job.outcomes().await, [(1, RunOutcome::Lost)]);
}

pub(super) async fn rule_13_a_retry_and_a_release_are_no_crashes(t: Subject) {
    let job = t.job("job").await;
    let first = job.start(LONG).await;
    job.close(first.token, Outcome::Retry(Duration::ZERO)).await;
    let second = job.next_attempt(first.token, LONG).await;
    assert_eq!((second.attempt, second.crashes, second.errors), (2, 0, 1));
    job.close(second.token, Outcome::Released).await;
    let third = job.next_attempt(second.token, LONG).await;
    assert_eq!((third.attempt, third.crashes, third.errors), (3, 0, 1));
    assert!(first.token < second.token && second.token < third.token);
    // Each attempt was closed once, when it ended, and not again when the next one was awarded.
    assert_eq!(job.outcomes().await, [(2, RunOutcome::Released), (1, RunOutcome::Retrying)]);
}

pub(super) async fn a_short_lease_ends_while_a_long_one_beside_it_stays(t: Subject) {
    let (short, long) = (t.job("short").await, t.job("long").await);
    let (first, other) = (short.start(SHORT).await, long.start(LONG).await);
    match &t.guarantees.lease {
        LeaseScope::PerClaim => {
            short.next_attempt(first.token, LONG).await;
            let verdict = long.claim_in_vain(&long.ask_takeover(other.token)).await;
            assert!(matches!(verdict, Verdict::Held(_)), "{verdict:?}");
        }
        LeaseScope::PerConnection(range) => {
            assert!(!range.is_empty() && *range.start() > Duration::ZERO, "{range:?}");
        }
    }
}

pub(super) async fn a_lease_of_no_length_is_over_at_once(t: Subject) {
    let job = t.job("job").await;
    let first = job.start(Duration::ZERO).await;
    // Rounded up to a whole millisecond.
    let answer = job.take_over(&job.ask_takeover(first.token)).await;
    assert!(answer.now.millis() >= first.until);
    assert_eq!(awarded(answer.value).attempt, 2);
}

/// The longest that an option may be.
pub(super) async fn leases_windows_and_delays_of_a_hundred_years_are_borne(t: Subject) {
    let job = t.job("job").await;
    // Some stores reckon in floating point.
    let near = |told: Millis, expected: Millis| (told.0 - expected.0).abs() <= 1;
    let at = job.due().await;
    let claim = Claim { lease: LONGEST_OPTION, window: LONGEST_OPTION, ..job.ask_planned(at) };
    let Stamped { value, now } = job.claim(&claim).await;
    let award = awarded(value);
    assert!(near(award.until, now.plus(LONGEST_OPTION)), "{award:?} at {now:?}");
    let Stamped { value, now } = job.renew(award.token, LONGEST_OPTION).await;
    let Renewed::Extended { until, .. } = value else { panic!("{value:?}") };
    assert!(near(until, now.plus(LONGEST_OPTION)), "{until:?} at {now:?}");
    let Stamped { value, now } = job.finish(award.token, Outcome::Retry(LONGEST_OPTION)).await;
    let Finished::Closed(record) = value else { panic!("{value:?}") };
    assert_eq!((record.status, &record), (Status::Waiting, &job.record().await));
    assert!(near(record.until, now.plus(LONGEST_OPTION)), "{record:?} at {now:?}");
    let next = job.start(LONG).await;
    assert!(next.token > award.token);
}

pub(super) async fn a_renewal_extends_the_lease_from_now(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(LONG).await;
    let before = job.record().await;
    for lease in [2 * LONG, SHORT, LONG] {
        let Stamped { value: renewed, now } = job.renew(award.token, lease).await;
        let until = now.plus(lease);
        assert_eq!(renewed, Renewed::Extended { until, cancel: false });
        assert_eq!(job.record().await, Record { until, ..before.clone() }, "and nothing else");
    }
}

pub(super) async fn a_renewed_lease_outlives_its_first_end(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(SHORT).await;
    job.renew(award.token, LONG).await;
    job.after(award.until).await;
    let verdict = job.claim_in_vain(&job.ask_takeover(award.token)).await;
    assert!(matches!(verdict, Verdict::Held(_)), "{verdict:?}");
    let at = job.due().await;
    let verdict = job.claim(&job.ask_planned(at)).await.value;
    assert!(matches!(verdict, Verdict::Skipped(_)), "{verdict:?}");
}

pub(super) async fn each_renewal_changes_the_end_of_the_lease(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(LONG).await;
    let mut last = award.until;
    // Most of these follow each other within a millisecond where the store is fast.
    for _ in 0..50 {
        let Renewed::Extended { until, .. } = job.renew(award.token, LONG).await.value else {
            panic!("lost")
        };
        assert_ne!(until, last, "a watcher takes an unchanged end for a dead holder");
        last = until;
    }
}

pub(super) async fn a_late_renewal_counts_when_nobody_took_over(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(SHORT).await;
    job.after(award.until).await;
    let renewed = job.renew(award.token, LONG).await.value;
    assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
    let verdict = job.claim_in_vain(&job.ask_takeover(award.token)).await;
    assert!(matches!(verdict, Verdict::Held(_)), "{verdict:?}");
}

pub(super) async fn a_late_finish_counts_when_nobody_took_over(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(SHORT).await;
    job.after(award.until).await;
    let record = job.close(award.token, Outcome::Succeeded).await;
    assert_eq!(record.status, Status::Succeeded);
}

pub(super) async fn a_stale_holder_changes_nothing(t: Subject) {
    let job = t.job("job").await;
    let first = job.start(SHORT).await;
    let second = job.next_attempt(first.token, LONG).await;
    let before = job.snapshot().await;
    for token in [Token(0), first.token, Token(second.token.0 - 1), Token(second.token.0 + 1)] {
        assert_eq!(job.renew(token, LONG).await.value, Renewed::Lost);
        for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Retry(SHORT), Outcome::Released] {
            assert_eq!(job.finish(token, outcome).await.value, Finished::Refused);
        }
    }
    assert_eq!(job.snapshot().await, before);
}

pub(super) async fn a_renewal_of_a_closed_run_is_lost(t: Subject) {
    let job = t.job("job").await;
    let outcomes =
        [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled, Outcome::Retry(LONG), Outcome::Released];
    for outcome in outcomes {
        let award = job.start(LONG).await;
        let record = job.close(award.token, outcome).await;
        assert_eq!(job.renew(award.token, LONG).await.value, Renewed::Lost, "{outcome:?}");
        assert_eq!(job.record().await, record);
    }
}

pub(super) async fn without_a_record_a_lease_is_lost_and_a_finish_refused(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(LONG).await;
    job.obey(ControlAction::Forget).await;
    assert_eq!(job.renew(award.token, LONG).await.value, Renewed::Lost);
    assert_eq!(job.finish(award.token, Outcome::Succeeded).await.value, Finished::Refused);
    assert_eq!(job.inspect(0).await.value, None);
    // Made again, its tokens still grow.
    job.register(&job.spec()).await;
    assert_eq!(job.renew(award.token, LONG).await.value, Renewed::Lost);
    assert_eq!(job.finish(award.token, Outcome::Succeeded).await.value, Finished::Refused);
    assert!(job.start(LONG).await.token > award.token);
}

pub(super) async fn renewals_keep_a_short_lease_for_as_long_as_they_come(t: Subject) {
    let job = t.job("job").await;
    let lease = 8 * SHORT;
    let award = job.start(lease).await;
    let end = award.until.plus(lease);
    until("the lease was kept for twice its length", async || {
        let renewed = job.renew(award.token, lease).await;
        let Renewed::Extended { until, .. } = renewed.value else { panic!("lost at {:?}", renewed.now) };
        let answer = job.claim(&job.ask_takeover(award.token)).await;
        let over = answer.now.millis() >= until;
        assert_eq!(matches!(answer.value, Verdict::Held(_)), !over, "{answer:?}, renewed until {until}");
        // A machine that stood still between the two calls has ended the lease by right.
        (over || renewed.now.millis() > end).then_some(())
    })
    .await;
}
