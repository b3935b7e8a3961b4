//! Attempts: how they end, what is counted, when they stop; rules 11 and 12, `finish` and the history.

use std::time::Duration;

use super::subject::{LONG, SHORT, Subject, all, fresh_nonce, instance, one};
use crate::{
    protocol::{Claim, ControlAction, Finish, Finished, Outcome, Record, Run, RunOutcome, Status, Verdict},
    store::Stamped,
};

pub(super) async fn rule_11_the_takeover_of_a_cancelled_run_gives_up(t: Subject) {
    let job = t.job("job").await;
    let award = job.start(SHORT).await;
    job.obey(ControlAction::Cancel(award.token)).await;
    let Stamped { value: verdict, now } = job.take_over(&job.ask_takeover(award.token)).await;
    let record = job.record().await;
    assert_eq!(verdict, Verdict::GaveUp(record.clone()));
    assert_eq!((record.status, record.attempt, record.crashes), (Status::Cancelled, 1, 0));
    let run = &job.history().await[0];
    assert_eq!((run.outcome, run.token, run.ended), (RunOutcome::Cancelled, award.token, now.millis()));
    assert_eq!(job.finish(award.token, Outcome::Succeeded).await.value, Finished::Closed(record));
}

pub(super) async fn rule_11_no_retry_follows_a_cancel_that_came_during_the_run(t: Subject) {
    let job = t.job("job").await;
    for outcome in [Outcome::Retry(Duration::ZERO), Outcome::Released] {
        let award = job.start(LONG).await;
        job.obey(ControlAction::Cancel(award.token)).await;
        job.close(award.token, outcome).await;
        let verdict = job.take_over(&job.ask_takeover(award.token)).await.value;
        assert_eq!(verdict, Verdict::GaveUp(job.record().await));
        assert_eq!(job.record().await.status, Status::Cancelled);
    }
}

pub(super) async fn rule_12_the_last_allowed_crash_is_the_end(t: Subject) {
    let job = t.job("job").await;
    let first = job.start(SHORT).await;
    let second = job.next_attempt(first.token, SHORT).await;
    let third = job.next_attempt(second.token, SHORT).await;
    assert_eq!((third.attempt, third.crashes), (3, 2));
    let verdict = job.take_over(&job.ask_takeover(third.token)).await.value;
    let record = job.record().await;
    assert_eq!(verdict, Verdict::GaveUp(record.clone()));
    assert_eq!((record.status, record.attempt, record.runs), (Status::Lost, 3, 3));
    assert_eq!(job.outcomes().await, [3, 2, 1].map(|attempt| (attempt, RunOutcome::Lost)));
    // What the holder has to say now was not kept.
    assert_eq!(job.finish(third.token, Outcome::Succeeded).await.value, Finished::Refused);
    assert_eq!(job.record().await, record);
    // A newer occurrence starts anew.
    let next = job.start(LONG).await;
    assert_eq!((next.attempt, next.crashes, next.errors), (1, 0, 0));
}

pub(super) async fn rule_12_errors_and_releases_are_no_crashes(t: Subject) {
    let job = t.job("job").await;
    let mut award = job.start(LONG).await;
    for outcome in [Outcome::Retry(Duration::ZERO), Outcome::Released, Outcome::Retry(Duration::ZERO)] {
        job.close(award.token, outcome).await;
        let once = Claim { max_attempts: 1, lease: SHORT, ..job.ask_takeover(award.token) };
        award = super::subject::awarded(job.take_over(&once).await.value);
    }
    assert_eq!((award.attempt, award.crashes, award.errors), (4, 0, 2));
    let once = Claim { max_attempts: 1, ..job.ask_takeover(award.token) };
    let verdict = job.take_over(&once).await.value;
    assert!(matches!(verdict, Verdict::GaveUp(_)), "{verdict:?}");
}

pub(super) async fn rule_12_what_was_over_for_longer_than_the_window_is_given_up(t: Subject) {
    let job = t.job("job").await;
    let window = Duration::from_millis(30);
    for waiting in [false, true] {
        let award = job.start(SHORT).await;
        let over = if waiting {
            job.close(award.token, Outcome::Retry(Duration::ZERO)).await.until
        } else {
            award.until
        };
        t.over(&job, over.plus(window)).await;
        let late = Claim { window, ..job.ask_takeover(award.token) };
        assert_eq!(job.claim(&late).await.value, Verdict::GaveUp(job.record().await));
        assert_eq!(
            (job.record().await.status, job.outcomes().await[0]),
            (Status::Lost, (1, RunOutcome::Lost))
        );
    }
}

pub(super) async fn a_finish_closes_the_run_with_its_outcome_and_one_history_entry(t: Subject) {
    let job = t.job("job").await;
    let outcomes = [
        (Outcome::Succeeded, Status::Succeeded, RunOutcome::Succeeded),
        (Outcome::Failed, Status::Failed, RunOutcome::Failed),
        (Outcome::Cancelled, Status::Cancelled, RunOutcome::Cancelled),
        (Outcome::Retry(LONG), Status::Waiting, RunOutcome::Retrying),
        (Outcome::Released, Status::Waiting, RunOutcome::Released),
    ];
    for (asked, status, outcome) in outcomes {
        let award = job.award(&Claim { holder: instance("b"), ..job.ask_planned(job.due().await) }).await;
        let before = job.record().await;
        let Stamped { value: finished, now } = job.finish(award.token, asked).await;
        let (errors, until) = match asked {
            Outcome::Retry(after) => (1, now.plus(after)),
            Outcome::Released => (0, now.millis()),
            Outcome::Succeeded | Outcome::Failed | Outcome::Cancelled => (0, before.until),
        };
        let record = Record { status, errors, until, runs: before.runs + 1, ..before };
        assert_eq!(finished, Finished::Closed(record.clone()), "{asked:?}");
        assert_eq!(job.record().await, record, "{asked:?}");
        let run = Run {
            occurrence: award.occurrence,
            attempt: 1,
            token: award.token,
            holder: instance("b"),
            started: award.started,
            ended: now.millis(),
            outcome,
            message: None,
        };
        let history = job.history().await;
        assert_eq!(history.first(), Some(&run));
        // An unfinished one is closed once more when the next takes its place.
        if status == Status::Waiting {
            job.obey(ControlAction::Cancel(award.token)).await;
        }
    }
}

pub(super) async fn a_repeated_finish_is_closed_and_changes_nothing(t: Subject) {
    let job = t.job("job").await;
    let outcomes =
        [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled, Outcome::Retry(LONG), Outcome::Released];
    for outcome in outcomes {
        let award = job.start(LONG).await;
        job.close(award.token, outcome).await;
        let before = job.snapshot().await;
        for again in [outcome, Outcome::Succeeded, Outcome::Retry(SHORT)] {
            let finished = job.finish(award.token, again).await.value;
            assert_eq!(finished, Finished::Closed(before.record.clone()), "{outcome:?}, then {again:?}");
        }
        assert_eq!(job.snapshot().await, before, "{outcome:?}");
    }
}

pub(super) async fn a_finish_of_a_job_that_never_ran_is_refused(t: Subject) {
    let job = t.job("job").await;
    let token = job.record().await.token;
    assert_eq!(job.finish(token, Outcome::Succeeded).await.value, Finished::Refused);
}

pub(super) async fn no_attempt_follows_a_finish(t: Subject) {
    let job = t.job("job").await;
    for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled] {
        let award = job.start(SHORT).await;
        let crate::protocol::Occurrence::Planned(at) = award.occurrence else { panic!("{award:?}") };
        job.close(award.token, outcome).await;
        job.after(award.until).await;
        for claim in [job.ask_planned(at), job.ask_takeover(award.token)] {
            let verdict = job.claim_in_vain(&claim).await;
            let refused = matches!(verdict, Verdict::AlreadyDecided(_) | Verdict::AlreadyDone(_));
            assert!(refused, "{outcome:?}: {verdict:?}");
        }
    }
}

pub(super) async fn the_message_of_an_error_is_kept_as_it_is(t: Subject) {
    let job = t.job("job").await;
    let messages = [
        None,
        Some(String::new()),
        Some("it's \"quoted\"; -- \\ {} %s $1 ?1 :a @b\r\n\ttwo lines".to_owned()),
        Some("Ωμέγα 漢字 🦀 \u{202e}é".to_owned()),
        Some("€".repeat(1000)),
    ];
    for message in messages {
        let award = job.start(LONG).await;
        let finish = Finish {
            job: job.name.clone(),
            token: award.token,
            outcome: Outcome::Failed,
            message: message.clone(),
        };
        let finished = one(t.store.finish(&[finish]).await).value;
        assert!(matches!(finished, Finished::Closed(_)), "{finished:?}");
        assert_eq!(job.history().await[0].message, message);
    }
}

pub(super) async fn the_history_is_told_newest_first_and_only_as_much_as_asked_for(t: Subject) {
    let job = t.job("job").await;
    let keep = usize::from(t.guarantees.history);
    assert!(keep > 0);
    let mut tokens = Vec::new();
    for _ in 0..keep + 3 {
        let award = job.start(LONG).await;
        job.close(award.token, Outcome::Succeeded).await;
        tokens.insert(0, award.token);
    }
    for asked in [0, 1, t.guarantees.history - 1, t.guarantees.history, u8::MAX] {
        let history = job.inspect(asked).await.value.unwrap().history;
        let told: Vec<_> = history.iter().map(|run| run.token).collect();
        assert_eq!(told, tokens[..keep.min(usize::from(asked))], "asked for {asked}");
    }
}

pub(super) async fn record_and_history_stay_within_their_bound(t: Subject) {
    let rounds = 3 * u64::from(t.guarantees.history) + 1;
    let jobs = t.jobs(50).await;
    for _ in 0..rounds {
        // The last one was registered, and is decided, no earlier than the others.
        let at = jobs[jobs.len() - 1].due().await;
        let claims: Vec<_> = jobs.iter().map(|job| job.ask_planned(at)).collect();
        let finishes: Vec<_> = all(t.store.claim(&claims).await, jobs.len())
            .into_iter()
            .zip(&jobs)
            .map(|(answer, job)| Finish {
                job: job.name.clone(),
                token: super::subject::awarded(answer.value).token,
                outcome: Outcome::Failed,
                message: Some("m".repeat(100)),
            })
            .collect();
        for finished in all(t.store.finish(&finishes).await, jobs.len()) {
            assert!(matches!(finished.value, Finished::Closed(_)), "{finished:?}");
        }
    }
    for job in &jobs {
        let snapshot = job.snapshot().await;
        assert_eq!(snapshot.record.runs, rounds);
        assert_eq!(snapshot.history.len(), usize::from(t.guarantees.history));
    }
    // Forgotten and made again, a job has no history of before.
    jobs[0].obey(ControlAction::Forget).await;
    jobs[0].register(&jobs[0].spec()).await;
    assert_eq!(jobs[0].history().await, []);
    let award = jobs[0].start(LONG).await;
    jobs[0].close(award.token, Outcome::Succeeded).await;
    assert_eq!(jobs[0].history().await.len(), 1);
}

pub(super) async fn attempts_stay_within_what_crashes_retries_and_releases_allow(t: Subject) {
    let job = t.job("job").await;
    let mut award = job.start(SHORT).await;
    let mut allowed = 3;
    for outcome in [None, Some(Outcome::Retry(Duration::ZERO)), None, Some(Outcome::Released)] {
        if let Some(outcome) = outcome {
            job.close(award.token, outcome).await;
            allowed += 1;
        }
        award = job.next_attempt(award.token, SHORT).await;
        assert!(award.attempt <= allowed);
    }
    assert_eq!((award.attempt, award.crashes, award.errors), (5, 2, 1));
    let last = Claim { nonce: fresh_nonce(), ..job.ask_takeover(award.token) };
    let verdict = job.take_over(&last).await.value;
    assert!(matches!(verdict, Verdict::GaveUp(_)), "{verdict:?}");
}
