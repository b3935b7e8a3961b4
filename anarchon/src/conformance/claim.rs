//! The rules of a claim, by the numbers of the table in [`claim`](crate::protocol::claim()): 1 to 8 and 14 to 16.

use std::time::Duration;

use super::subject::{LONG, OTHER_SCHEDULE, SHORT, Subject, all, fresh_nonce, instance, name, until};
use crate::{
    protocol::{
        Award, Claim, ControlAction, Millis, Occurrence, Outcome, Record, RunOutcome, Status, StoreNow,
        Token, Verdict, What,
    },
    store::Stamped,
};

pub(super) async fn a_job_without_a_record_is_unregistered(t: Subject) {
    let job = t.job("job").await;
    job.obey(ControlAction::Forget).await;
    for what in
        [What::Planned(Millis(0)), What::Takeover { token: Token(1), observed: None }, What::Manual(1)]
    {
        assert_eq!(job.claim(&job.ask(what)).await.value, Verdict::Unregistered);
    }
    assert_eq!(job.inspect(0).await.value, None, "only register creates");
}

pub(super) async fn rule_1_a_repeated_claim_is_answered_with_the_award_it_won(t: Subject) {
    let job = t.job("job").await;
    let claim = job.ask_planned(job.due().await);
    let award = job.award(&claim).await;
    assert_eq!(job.claim_in_vain(&claim).await, Verdict::Awarded(award));
    let other = job.through(&t.handle().await);
    if t.is_shared() {
        assert_eq!(other.claim_in_vain(&claim).await, Verdict::Awarded(award));
    } else {
        other.sees_only_that_it_is_held().await;
        let verdict = other.claim(&claim).await.value;
        let is_lost = matches!(verdict, Verdict::AlreadyDecided(_));
        assert!(is_lost, "an instance repeats its claims itself: {verdict:?}");
    }
    // Rule 1 comes before rule 2, and the stored values are told, not those asked for.
    let changed = Claim { schedule: OTHER_SCHEDULE, lease: SHORT, ..claim };
    assert_eq!(job.claim_in_vain(&changed).await, Verdict::Awarded(award));
    job.renew(award.token, 2 * LONG).await;
    let until = job.record().await.until;
    assert_eq!(job.claim_in_vain(&changed).await, Verdict::Awarded(Award { until, ..award }));
}

pub(super) async fn rule_1_a_nonce_that_differs_in_one_bit_is_another_claim(t: Subject) {
    let job = t.job("job").await;
    let claim = job.ask_planned(job.due().await);
    job.award(&claim).await;
    for bit in [0, 1, 31, 52, 53, 63] {
        let mut low = claim.clone();
        low.nonce.seq ^= 1 << bit;
        let mut high = claim.clone();
        high.nonce.instance ^= 1 << bit;
        for other in [low, high] {
            let verdict = job.claim_in_vain(&other).await;
            assert!(matches!(verdict, Verdict::AlreadyDecided(_)), "bit {bit}: {verdict:?}");
        }
    }
}

pub(super) async fn rule_1_a_duplicate_does_not_win_again_after_its_run_was_closed(t: Subject) {
    let job = t.job("job").await;
    let outcomes = [
        Outcome::Succeeded,
        Outcome::Failed,
        Outcome::Cancelled,
        Outcome::Retry(Duration::ZERO),
        Outcome::Retry(LONG),
        Outcome::Released,
    ];
    for outcome in outcomes {
        let claim = job.ask_planned(job.due().await);
        let award = job.award(&claim).await;
        let record = job.close(award.token, outcome).await;
        assert_eq!(job.claim_in_vain(&claim).await, Verdict::AlreadyDone(record), "{outcome:?}");
    }
}

pub(super) async fn rule_1_a_duplicate_does_not_win_again_after_a_takeover(t: Subject) {
    let job = t.job("job").await;
    let claim = Claim { lease: SHORT, ..job.ask_planned(job.due().await) };
    let award = job.award(&claim).await;
    job.next_attempt(award.token, LONG).await;
    let verdict = job.claim_in_vain(&claim).await;
    assert_eq!(verdict, Verdict::AlreadyDecided(job.record().await));
}

pub(super) async fn rule_1b_a_claim_that_nobody_waits_for_any_more_changes_nothing(t: Subject) {
    let job = t.job("job").await;
    let due = job.due().await;
    let in_time = Claim { expires: due.plus(LONG), ..job.ask_planned(due) };
    let expired = |claim: &Claim, now: StoreNow| Claim {
        nonce: fresh_nonce(),
        expires: Millis(now.millis().0 - 1),
        ..claim.clone()
    };
    assert_eq!(job.claim_in_vain(&expired(&in_time, job.now().await)).await, Verdict::Expired);
    let award = job.award(&in_time).await;
    let now = job.now().await;
    // Rule 1 comes before rule 1b: who won says so however late the question is.
    let late = Claim { nonce: in_time.nonce, ..expired(&in_time, now) };
    assert_eq!(job.claim_in_vain(&late).await, Verdict::Awarded(award));
    // Rule 1b comes before all others.
    let takeover = What::Takeover { token: award.token, observed: Some(award.until) };
    for what in
        [What::Planned(now.millis()), What::Planned(Millis(award.until.0 * 2)), takeover, What::Manual(1)]
    {
        let claim = expired(&job.ask(what), now);
        assert_eq!(job.claim_in_vain(&claim).await, Verdict::Expired, "{what:?}");
        let stale = Claim { schedule: OTHER_SCHEDULE, ..claim };
        assert_eq!(job.claim_in_vain(&stale).await, Verdict::Expired, "{what:?}");
    }
}

pub(super) async fn rule_2_a_claim_with_another_schedule_is_stale(t: Subject) {
    let job = t.job("job").await;
    let other = |what| Claim { schedule: OTHER_SCHEDULE, ..job.ask(what) };
    let stale = Verdict::Stale { schedule: super::subject::SCHEDULE };
    let award = job.start(LONG).await;
    // Rule 2 comes before all that look at what is asked for.
    let future = What::Planned(Millis(award.until.0 * 2));
    let takeover = What::Takeover { token: award.token, observed: Some(award.until) };
    for what in [future, What::Planned(Millis(0)), takeover, What::Manual(1)] {
        assert_eq!(job.claim_in_vain(&other(what)).await, stale, "{what:?}");
    }
}

pub(super) async fn rule_3_no_occurrence_is_awarded_before_its_time(t: Subject) {
    let job = t.job("job").await;
    let now = job.now().await.millis();
    let far = job.ask_planned(now.plus(LONG));
    assert_eq!(job.claim_in_vain(&far).await, Verdict::Early);
    // Rule 3 comes before rule 5: an early claim does not use up the pause.
    job.obey(ControlAction::Pause).await;
    assert_eq!(job.claim_in_vain(&far).await, Verdict::Early);
    job.obey(ControlAction::Resume).await;

    let at = job.now().await.millis().plus(Duration::from_millis(50));
    let Stamped { value: verdict, now } = until("an occurrence is no longer early", async || {
        let answer = job.claim(&job.ask_planned(at)).await;
        if answer.value == Verdict::Early {
            assert!(answer.now.millis() < at, "early at {:?}, planned for {at}", answer.now);
            None
        } else {
            Some(answer)
        }
    })
    .await;
    assert!(now.millis() >= at, "awarded at {now:?}, planned for {at}");
    assert_eq!(super::subject::awarded(verdict).occurrence, Occurrence::Planned(at));
}

pub(super) async fn rule_4_an_occurrence_at_or_before_the_decided_one_is_already_decided(t: Subject) {
    let job = t.job("job").await;
    let created = job.record().await;
    // What was before the first registration never runs.
    let verdict = job.claim_in_vain(&job.ask_planned(created.decided)).await;
    assert_eq!(verdict, Verdict::AlreadyDecided(created.clone()));
    job.after(created.decided.plus(Duration::from_millis(3))).await;
    let award = job.start(LONG).await;
    let record = job.record().await;
    let Occurrence::Planned(at) = award.occurrence else { panic!("{award:?}") };
    assert_eq!(record.decided, at);
    for earlier in [0, 1, 2, 1_000_000_000] {
        let old = job.ask_planned(Millis(at.0 - earlier));
        assert_eq!(job.claim_in_vain(&old).await, Verdict::AlreadyDecided(record.clone()), "{earlier} ms");
        // Rule 4 comes before rule 6.
        let old = Claim { window: Duration::ZERO, ..old };
        assert_eq!(job.claim_in_vain(&old).await, Verdict::AlreadyDecided(record.clone()), "{earlier} ms");
    }
}

pub(super) async fn rule_5_a_paused_job_decides_an_occurrence_without_an_award(t: Subject) {
    let job = t.job("job").await;
    job.obey(ControlAction::Pause).await;
    let before = job.record().await;
    let at = job.due().await;
    job.after(at).await;
    // Rule 5 comes before rule 6.
    let claim = Claim { window: Duration::ZERO, ..job.ask_planned(at) };
    let passed = Record { decided: at, ..before };
    assert_eq!(job.claim(&claim).await.value, Verdict::Paused(passed.clone()));
    assert_eq!(job.record().await, passed);
    let verdict = job.claim_in_vain(&job.ask_planned(at)).await;
    assert!(matches!(verdict, Verdict::AlreadyDecided(_)), "{verdict:?}");
    assert_eq!(job.history().await, []);
}

pub(super) async fn rule_5_comes_before_the_skip(t: Subject) {
    let job = t.job("job").await;
    job.start(LONG).await;
    job.obey(ControlAction::Pause).await;
    let claim = job.ask_planned(job.due().await);
    let verdict = job.claim(&claim).await.value;
    assert!(matches!(verdict, Verdict::Paused(_)), "{verdict:?}");
}

pub(super) async fn rule_6_an_occurrence_is_missed_after_its_window_and_decided_by_nobody(t: Subject) {
    let job = t.job("job").await;
    let at = job.due().await;
    let window = Duration::from_millis(40);
    job.after(at.plus(window)).await;
    let late = Claim { window, ..job.ask_planned(at) };
    assert_eq!(job.claim_in_vain(&late).await, Verdict::Missed);
    let award = job.award(&job.ask_planned(at)).await;
    assert_eq!(award.occurrence, Occurrence::Planned(at));
    // Rule 6 comes before rule 7.
    let next = job.due().await;
    job.after(next).await;
    let late = Claim { window: Duration::ZERO, ..job.ask_planned(next) };
    assert_eq!(job.claim_in_vain(&late).await, Verdict::Missed);
}

pub(super) async fn rule_7_an_occurrence_under_a_live_lease_is_skipped_for_good(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(LONG).await;
    let before = job.record().await;
    let at = job.due().await;
    let claim = Claim { holder: instance("b"), ..job.ask_planned(at) };
    let skipped = Record { decided: at, ..before };
    assert_eq!(job.claim(&claim).await.value, Verdict::Skipped(skipped.clone()));
    assert_eq!(job.record().await, skipped);
    assert_eq!(job.claim_in_vain(&claim).await, Verdict::AlreadyDecided(skipped), "the same call again");
    // Whoever asks, and when the run is over too.
    job.close(award.token, Outcome::Succeeded).await;
    let verdict = job.claim_in_vain(&job.ask_planned(at)).await;
    assert!(matches!(verdict, Verdict::AlreadyDecided(_)), "{verdict:?}");
}

pub(super) async fn rule_8_a_due_occurrence_is_awarded_with_all_that_was_asked_for(t: Subject) {
    let job = t.job("job").await;
    let before = job.record().await;
    let at = job.due().await;
    // Rounded up, so that no lease is short.
    let lease = LONG + Duration::from_nanos(400_001);
    let claim = Claim { lease, holder: instance("b"), ..job.ask_planned(at) };
    let Stamped { value: verdict, now } = job.claim(&claim).await;
    let want = Award {
        occurrence: Occurrence::Planned(at),
        attempt: 1,
        crashes: 0,
        errors: 0,
        started: now.millis(),
        until: now.plus(lease),
        token: Token(u64::try_from(now.0).unwrap()),
    };
    assert_eq!(verdict, Verdict::Awarded(want));
    let record = Record {
        decided: at,
        occurrence: want.occurrence,
        status: Status::Running,
        attempt: 1,
        started: want.started,
        until: want.until,
        token: want.token,
        holder: claim.holder,
        nonce: claim.nonce,
        ..before
    };
    assert_eq!(job.record().await, record);
    assert_eq!(job.history().await, []);
}

pub(super) async fn rule_8_the_newest_occurrence_closes_an_expired_run_as_lost(t: Subject) {
    let job = t.job("job").await;
    let lost = job.start(SHORT).await;
    job.obey(ControlAction::Cancel(lost.token)).await;
    t.over(&job, lost.until).await;
    let before = job.record().await;
    let claim = Claim { holder: instance("b"), ..job.ask_planned(job.due().await) };
    let Stamped { value: verdict, now } = job.claim(&claim).await;
    let award = super::subject::awarded(verdict);
    assert_eq!((award.attempt, award.crashes, award.errors), (1, 0, 0));
    assert!(award.token > lost.token);
    let record = job.record().await;
    assert_eq!((record.cancel, record.runs), (None, before.runs + 1), "the cancel was for the run before");
    let run = &job.history().await[0];
    assert_eq!((run.occurrence, run.attempt, run.token), (lost.occurrence, 1, lost.token));
    assert_eq!((&run.holder, run.started, run.ended), (&instance("a"), lost.started, now.millis()));
    assert_eq!((run.outcome, &run.message), (RunOutcome::Lost, &None));
}

pub(super) async fn rule_8_the_newest_occurrence_closes_a_waiting_run_as_lost(t: Subject) {
    let job = t.job("job").await;
    let waiting = job.start(LONG).await;
    job.close(waiting.token, Outcome::Retry(LONG)).await;
    let award = job.start(LONG).await;
    assert_eq!((award.attempt, award.errors), (1, 0));
    assert_eq!(job.outcomes().await, [(1, RunOutcome::Lost), (1, RunOutcome::Retrying)]);
}

pub(super) async fn rule_8_a_finished_run_is_not_closed_again(t: Subject) {
    let job = t.job("job").await;
    for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled] {
        let award = job.start(LONG).await;
        job.close(award.token, outcome).await;
    }
    job.start(LONG).await;
    let want = [RunOutcome::Cancelled, RunOutcome::Failed, RunOutcome::Succeeded];
    assert_eq!(job.outcomes().await, want.map(|outcome| (1, outcome)));
}

pub(super) async fn after_downtime_the_newest_occurrence_runs_once_and_the_older_ones_never(t: Subject) {
    let job = t.job("job").await;
    let first = job.due().await;
    job.after(first.plus(Duration::from_millis(20))).await;
    let newest = job.due().await;
    let award = job.award(&job.ask_planned(newest)).await;
    job.close(award.token, Outcome::Succeeded).await;
    for missed in [first, Millis(newest.0 - 1), newest] {
        let verdict = job.claim_in_vain(&job.ask_planned(missed)).await;
        assert!(matches!(verdict, Verdict::AlreadyDecided(_)), "{verdict:?}");
    }
}

pub(super) async fn rule_14_a_trigger_that_was_served_or_never_asked_for_is_already_done(t: Subject) {
    let job = t.job("job").await;
    let manual = |seq| job.ask(What::Manual(seq));
    let verdict = job.claim_in_vain(&manual(1)).await;
    assert_eq!(verdict, Verdict::AlreadyDone(job.record().await));
    job.obey(ControlAction::Trigger).await;
    for seq in [0, 2, u64::from(u32::MAX)] {
        assert_eq!(job.claim_in_vain(&manual(seq)).await, Verdict::AlreadyDone(job.record().await));
    }
    let award = job.award(&manual(1)).await;
    let record = job.close(award.token, Outcome::Succeeded).await;
    assert_eq!(job.claim_in_vain(&manual(1)).await, Verdict::AlreadyDone(record));
}

pub(super) async fn rule_15_a_trigger_stays_asked_while_a_lease_is_live(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(LONG).await;
    job.obey(ControlAction::Trigger).await;
    assert_eq!(job.claim_in_vain(&job.ask(What::Manual(1))).await, Verdict::Held(job.record().await));
    let record = job.close(award.token, Outcome::Succeeded).await;
    assert!(record.has_trigger(), "told to the one that finishes");
    job.award(&job.ask(What::Manual(1))).await;
}

pub(super) async fn rule_16_all_triggers_so_far_become_one_run_that_leaves_the_plan_alone(t: Subject) {
    let job = t.job("job").await;
    job.obey(ControlAction::Pause).await;
    for _ in 0..3 {
        job.obey(ControlAction::Trigger).await;
    }
    let before = job.record().await;
    let claim = job.ask(What::Manual(2));
    let award = job.award(&claim).await;
    assert_eq!((award.occurrence, award.attempt), (Occurrence::Manual(3), 1));
    let record = job.record().await;
    let want =
        Record { manual_asked: 3, manual_done: 3, decided: before.decided, paused: true, ..record.clone() };
    assert_eq!(record, want);
    let verdict = job.claim_in_vain(&job.ask(What::Manual(3))).await;
    assert!(matches!(verdict, Verdict::AlreadyDone(_)), "{verdict:?}");
}

pub(super) async fn rule_16_a_manual_run_closes_an_unfinished_one_as_lost(t: Subject) {
    let job = t.job("job").await;
    let waiting = job.start(LONG).await;
    job.close(waiting.token, Outcome::Retry(LONG)).await;
    job.obey(ControlAction::Trigger).await;
    let manual = job.award(&Claim { lease: SHORT, ..job.ask(What::Manual(1)) }).await;
    assert_eq!((manual.attempt, manual.crashes, manual.errors), (1, 0, 0));
    assert_eq!(job.outcomes().await[0], (1, RunOutcome::Lost));
    // A manual run is taken over like any other, and a later one takes the place of an expired one.
    job.obey(ControlAction::Trigger).await;
    t.over(&job, manual.until).await;
    let next = job.award(&job.ask(What::Manual(2))).await;
    assert_eq!((next.occurrence, next.attempt), (Occurrence::Manual(2), 1));
    assert_eq!(job.history().await[0].occurrence, Occurrence::Manual(1));
    assert_eq!(job.outcomes().await[0], (1, RunOutcome::Lost));
}

pub(super) async fn one_batch_takes_all_kinds_of_claims(t: Subject) {
    let jobs = t.jobs(4).await;
    let lost = jobs[1].start(SHORT).await;
    jobs[2].obey(ControlAction::Trigger).await;
    t.over(&jobs[1], lost.until).await;
    let due = jobs[0].due().await;
    let claims = [
        jobs[0].ask_planned(due),
        jobs[1].ask_takeover(lost.token),
        jobs[2].ask(What::Manual(1)),
        Claim { job: name("nobody"), nonce: fresh_nonce(), ..jobs[3].ask_planned(due) },
    ];
    let answers = all(t.store.claim(&claims).await, claims.len());
    let won: Vec<_> = answers[..3]
        .iter()
        .map(|answer| super::subject::awarded(answer.value.clone()))
        .map(|award| (award.occurrence, award.attempt))
        .collect();
    assert_eq!(won, [(Occurrence::Planned(due), 1), (lost.occurrence, 2), (Occurrence::Manual(1), 1)]);
    assert_eq!(answers[3].value, Verdict::Unregistered);
    assert!(answers.iter().all(|answer| answer.now > StoreNow(0)));
}
