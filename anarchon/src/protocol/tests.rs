//! One test a rule, by the numbers of the table in [`claim`](super::claim()); then the invariants over random histories.

use std::time::Duration;

use super::*;

mod histories;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
const WINDOW: Duration = Duration::from_secs(60);
/// 2026-01-01 00:00:00 UTC in seconds; the tests count from here.
const EPOCH: i64 = 1_767_225_600;

/// The store's clock, this many seconds into the test.
fn at(second: i64) -> StoreNow {
    StoreNow((EPOCH + second) * 1_000_000)
}

/// An occurrence, this many seconds into the test.
fn ms(second: i64) -> Millis {
    Millis((EPOCH + second) * 1000)
}

fn schedule() -> Fingerprint {
    Fingerprint(7)
}

fn job() -> JobName {
    JobName::new("job").unwrap()
}

fn instance(name: &str) -> InstanceId {
    InstanceId::new(name).unwrap()
}

fn nonce(seq: u64) -> Nonce {
    Nonce { instance: 1, seq }
}

fn spec() -> JobSpec {
    JobSpec { job: job(), schedule: schedule(), by: instance("a"), replace: None, next: None }
}

/// A claim of "a"; each nonce is used once per test.
fn ask(what: What, seq: u64) -> Claim {
    Claim {
        job: job(),
        what,
        lease: LEASE,
        window: WINDOW,
        max_attempts: 3,
        schedule: schedule(),
        holder: instance("a"),
        nonce: nonce(seq),
        next: None,
        expires: Millis::MAX,
    }
}

fn planned(second: i64, seq: u64) -> Claim {
    ask(What::Planned(ms(second)), seq)
}

fn takeover(token: Token, seq: u64) -> Claim {
    ask(What::Takeover { token, observed: None }, seq)
}

/// A store for one job: applies what the functions decide, keeps all history.
#[derive(Debug, Clone, Default)]
struct One {
    record: Option<Record>,
    history: Vec<Run>,
}

impl One {
    /// Registered at second 0.
    fn new() -> Self {
        let mut one = Self::default();
        one.register(&spec(), at(0));
        one
    }
    /// With a run of the occurrence at second 10, awarded at second 10 with nonce 1, until second 40.
    fn running() -> (Self, Award) {
        let mut one = Self::new();
        let award = one.award(&planned(10, 1), at(10));
        (one, award)
    }
    /// With a retry after an error at second 12, due at second 20.
    fn waiting() -> (Self, Award) {
        let (mut one, award) = Self::running();
        one.finish(award.token, Outcome::Retry(8 * SECOND), at(12));
        (one, award)
    }
    fn apply<T>(&mut self, decision: Decision<T>) -> T {
        match decision.write {
            None => {}
            Some(Write::Delete) => *self = Self::default(),
            Some(Write::Put { record, closed }) => {
                self.record = Some(*record);
                self.history.extend(closed);
            }
        }
        decision.answer
    }
    fn record(&self) -> &Record {
        self.record.as_ref().unwrap()
    }
    fn edit(&mut self) -> &mut Record {
        self.record.as_mut().unwrap()
    }
    fn register(&mut self, spec: &JobSpec, now: StoreNow) -> Registered {
        self.apply(register(self.record.as_ref(), spec, now))
    }
    fn claim(&mut self, asked: &Claim, now: StoreNow) -> Verdict {
        self.apply(claim(self.record.as_ref(), asked, now, LeaseEnd::ByClock))
    }
    fn award(&mut self, asked: &Claim, now: StoreNow) -> Award {
        match self.claim(asked, now) {
            Verdict::Awarded(award) => award,
            other => panic!("not awarded: {other:?}"),
        }
    }
    fn renew(&mut self, token: Token, lease: Duration, now: StoreNow) -> Renewed {
        self.apply(renew(self.record.as_ref(), &Renewal { job: job(), token, lease }, now))
    }
    fn finish(&mut self, token: Token, outcome: Outcome, now: StoreNow) -> Finished {
        let asked = Finish { job: job(), token, outcome, message: None };
        self.apply(finish(self.record.as_ref(), &asked, now))
    }
    fn order(&mut self, action: ControlAction, now: StoreNow) -> Controlled {
        self.apply(control(self.record.as_ref(), &Control { job: job(), action }, now))
    }
    /// Asks, and checks that nothing was written.
    fn claim_in_vain(&mut self, asked: &Claim, now: StoreNow) -> Verdict {
        let before = self.clone();
        let verdict = self.claim(asked, now);
        assert_eq!((&self.record, &self.history), (&before.record, &before.history), "{verdict:?} wrote");
        verdict
    }
}

// ---- claim, whatever is asked for ----

#[test]
fn a_job_without_a_record_is_unregistered() {
    let mut none = One::default();
    assert_eq!(none.claim(&planned(1, 1), at(1)), Verdict::Unregistered);
    assert_eq!(none.renew(Token(1), LEASE, at(1)), Renewed::Lost);
    assert_eq!(none.finish(Token(1), Outcome::Succeeded, at(1)), Finished::Refused);
    for action in [ControlAction::Trigger, ControlAction::Pause, ControlAction::Resume, ControlAction::Forget]
    {
        assert_eq!(none.order(action, at(1)), Controlled::Unregistered);
    }
    assert_eq!(none.record, None, "only register creates");
}

#[test]
fn rule_1_a_repeated_claim_is_answered_with_the_award_it_won() {
    let (mut one, award) = One::running();
    // Even when the schedule changed in between: rule 1 comes before rule 2.
    one.edit().schedule = Fingerprint(8);
    assert_eq!(one.claim_in_vain(&planned(10, 1), at(11)), Verdict::Awarded(award));
}

#[test]
fn rule_1_a_repeated_claim_is_answered_with_the_renewed_lease() {
    let (mut one, award) = One::running();
    one.renew(award.token, LEASE, at(20));
    let Verdict::Awarded(again) = one.claim_in_vain(&planned(10, 1), at(21)) else { panic!() };
    assert_eq!(again, Award { until: ms(50), ..award });
}

#[test]
fn rule_1_a_duplicate_of_the_claim_does_not_win_again_after_its_run_was_closed() {
    let outcomes =
        [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled, Outcome::Retry(SECOND), Outcome::Released];
    for outcome in outcomes {
        let (mut one, award) = One::running();
        one.finish(award.token, outcome, at(11));
        let record = one.record().clone();
        assert_eq!(one.claim_in_vain(&planned(10, 1), at(30)), Verdict::AlreadyDone(record), "{outcome:?}");
    }
}

#[test]
fn rule_1_a_duplicate_of_an_older_claim_does_not_win_after_a_takeover() {
    let (mut one, first) = One::running();
    one.award(&takeover(first.token, 2), at(40));
    let record = one.record().clone();
    assert_eq!(one.claim_in_vain(&planned(10, 1), at(41)), Verdict::AlreadyDecided(record));
}

#[test]
fn rule_1b_a_claim_is_good_until_the_last_microsecond_of_its_expiry_and_no_longer() {
    let in_time = |seq| Claim { expires: ms(20), ..planned(10, seq) };
    let last = StoreNow(at(20).0 + 999);
    let late = StoreNow(at(20).0 + 1000);
    let mut one = One::new();
    // Rule 1b comes before rule 2.
    let other = Claim { schedule: Fingerprint(8), ..in_time(1) };
    assert_eq!(one.claim_in_vain(&other, late), Verdict::Expired);
    assert_eq!(one.claim_in_vain(&in_time(2), late), Verdict::Expired);
    let award = one.award(&in_time(3), last);
    // Rule 1 comes before rule 1b.
    assert_eq!(one.claim_in_vain(&in_time(3), late), Verdict::Awarded(award));
    let next = Claim { expires: ms(20), ..takeover(award.token, 4) };
    assert_eq!(one.claim_in_vain(&next, at(1000)), Verdict::Expired);
    one.order(ControlAction::Trigger, at(1000));
    let manual = Claim { expires: ms(20), ..ask(What::Manual(1), 5) };
    assert_eq!(one.claim_in_vain(&manual, at(1000)), Verdict::Expired);
}

#[test]
fn rule_2_a_claim_with_another_schedule_is_stale() {
    let mut one = One::new();
    // Rule 2 comes before rule 3.
    let other = Claim { schedule: Fingerprint(8), ..planned(99, 1) };
    assert_eq!(one.claim_in_vain(&other, at(10)), Verdict::Stale { schedule: schedule() });
}

// ---- claim of a planned occurrence ----

#[test]
fn rule_3_an_occurrence_is_not_awarded_a_microsecond_before_its_time() {
    let mut one = One::new();
    assert_eq!(one.claim_in_vain(&planned(10, 1), StoreNow(at(10).0 - 1)), Verdict::Early);
    one.award(&planned(10, 1), at(10));
}

#[test]
fn rule_3_an_early_claim_does_not_use_up_a_pause() {
    let mut one = One::new();
    one.order(ControlAction::Pause, at(1));
    assert_eq!(one.claim_in_vain(&planned(10, 1), at(9)), Verdict::Early);
}

#[test]
fn rule_4_an_occurrence_at_or_before_the_decided_one_is_already_decided() {
    let (mut one, _) = One::running();
    for second in [9, 10] {
        let record = one.record().clone();
        assert_eq!(one.claim_in_vain(&planned(second, 2), at(12)), Verdict::AlreadyDecided(record));
    }
}

#[test]
fn rule_4_comes_before_the_pause_and_the_window() {
    let mut one = One::new();
    one.order(ControlAction::Pause, at(1));
    let record = one.record().clone();
    assert_eq!(one.claim_in_vain(&planned(0, 1), at(1000)), Verdict::AlreadyDecided(record));
}

#[test]
fn rule_5_a_paused_job_decides_the_occurrence_without_an_award() {
    let mut one = One::new();
    one.order(ControlAction::Pause, at(1));
    // Outside the window too: rule 5 comes before rule 6.
    let verdict = one.claim(&planned(10, 1), at(1000));
    assert_eq!(verdict, Verdict::Paused(one.record().clone()));
    assert_eq!((one.record().decided, one.record().status), (ms(10), Status::Idle));
    assert_eq!(one.history, []);
}

#[test]
fn rule_6_an_occurrence_is_missed_a_millisecond_after_its_window_and_not_before() {
    let mut one = One::new();
    let end = at(10 + 60);
    assert_eq!(one.claim_in_vain(&planned(10, 1), StoreNow(end.0 + 1000)), Verdict::Missed);
    one.award(&planned(10, 1), end);
}

#[test]
fn rule_6_comes_before_the_skip() {
    let (mut one, _) = One::running();
    one.edit().until = ms(1000);
    assert_eq!(one.claim_in_vain(&planned(11, 2), at(72)), Verdict::Missed);
}

#[test]
fn rule_7_an_occurrence_under_a_live_lease_is_skipped_for_good() {
    let (mut one, award) = One::running();
    let Verdict::Skipped(record) = one.claim(&planned(20, 2), StoreNow(at(40).0 - 1)) else { panic!() };
    assert_eq!((record.token, record.until, record.decided), (award.token, ms(40), ms(20)));
    assert_eq!(record.occurrence, award.occurrence, "the run in flight keeps its occurrence");
    one.finish(award.token, Outcome::Succeeded, at(41));
    let Verdict::AlreadyDecided(_) = one.claim_in_vain(&planned(20, 3), at(42)) else { panic!() };
}

#[test]
fn rule_8_a_due_occurrence_is_awarded() {
    let mut one = One::new();
    let award = one.award(&planned(10, 1), StoreNow(at(10).0 + 1));
    let want = Award {
        occurrence: Occurrence::Planned(ms(10)),
        attempt: 1,
        crashes: 0,
        errors: 0,
        started: ms(10),
        // Rounded up: a lease is never short.
        until: Millis(ms(40).0 + 1),
        token: Token((at(10).0 + 1).cast_unsigned()),
    };
    assert_eq!(award, want);
    let record = one.record();
    assert_eq!((record.decided, record.status), (ms(10), Status::Running));
    assert_eq!((&record.holder, record.nonce), (&instance("a"), nonce(1)));
    assert_eq!(one.history, []);
}

#[test]
fn rule_8_the_newest_occurrence_closes_an_expired_run_as_lost() {
    let (mut one, first) = One::running();
    let award = one.award(&Claim { holder: instance("b"), ..planned(40, 2) }, at(40));
    assert!(award.token > first.token);
    assert_eq!((award.attempt, award.crashes), (1, 0));
    let lost = Run {
        occurrence: Occurrence::Planned(ms(10)),
        attempt: 1,
        token: first.token,
        holder: instance("a"),
        started: ms(10),
        ended: ms(40),
        outcome: RunOutcome::Lost,
        message: None,
    };
    assert_eq!((&one.history[..], one.record().runs), (&[lost][..], 1));
}

#[test]
fn rule_8_the_newest_occurrence_closes_a_waiting_retry_as_lost() {
    let (mut one, _) = One::waiting();
    let award = one.award(&planned(15, 2), at(15));
    assert_eq!((award.attempt, award.errors), (1, 0));
    let outcomes: Vec<_> = one.history.iter().map(|run| run.outcome).collect();
    assert_eq!(outcomes, [RunOutcome::Retrying, RunOutcome::Lost]);
}

#[test]
fn rule_8_a_finished_run_is_not_closed_again() {
    let (mut one, award) = One::running();
    one.finish(award.token, Outcome::Succeeded, at(11));
    one.award(&planned(20, 2), at(20));
    assert_eq!(one.history.len(), 1);
}

#[test]
fn rule_8_clears_the_cancel_of_the_run_before() {
    let (mut one, award) = One::running();
    one.order(ControlAction::Cancel(award.token), at(11));
    one.award(&planned(40, 2), at(40));
    assert_eq!(one.record().cancel, None);
}

#[test]
fn a_token_grows_even_when_the_clock_went_back() {
    let (mut one, first) = One::running();
    one.finish(first.token, Outcome::Succeeded, at(11));
    one.edit().decided = ms(-100);
    let again = one.award(&planned(-50, 2), at(-50));
    assert_eq!(again.token, Token(first.token.0 + 1));
}

// ---- claim of a takeover ----

#[test]
fn rule_9_a_takeover_of_another_token_is_already_done() {
    let (mut one, first) = One::running();
    let second = one.award(&takeover(first.token, 2), at(40));
    let record = one.record().clone();
    // A late duplicate of the first takeover's rival.
    assert_eq!(one.claim_in_vain(&takeover(first.token, 3), at(100)), Verdict::AlreadyDone(record.clone()));
    assert_eq!(
        one.claim_in_vain(&takeover(Token(second.token.0 + 1), 4), at(100)),
        Verdict::AlreadyDone(record)
    );
}

#[test]
fn rule_9_a_takeover_of_a_finished_run_is_already_done() {
    for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled] {
        let (mut one, award) = One::running();
        one.finish(award.token, outcome, at(11));
        let record = one.record().clone();
        assert_eq!(one.claim_in_vain(&takeover(award.token, 2), at(50)), Verdict::AlreadyDone(record));
    }
    let mut idle = One::new();
    let record = idle.record().clone();
    assert_eq!(idle.claim_in_vain(&takeover(Token(0), 1), at(1)), Verdict::AlreadyDone(record));
}

#[test]
fn rule_10_a_takeover_before_the_end_of_the_lease_is_held() {
    let (mut one, award) = One::running();
    let record = one.record().clone();
    let just_before = StoreNow(at(40).0 - 1);
    assert_eq!(one.claim_in_vain(&takeover(award.token, 2), just_before), Verdict::Held(record));
}

#[test]
fn rule_10_a_retry_is_held_until_it_is_due() {
    let (mut one, award) = One::waiting();
    let record = one.record().clone();
    let just_before = StoreNow(at(20).0 - 1);
    assert_eq!(one.claim_in_vain(&takeover(award.token, 2), just_before), Verdict::Held(record));
    one.award(&takeover(award.token, 2), at(20));
}

#[test]
fn rule_10_an_observed_lease_is_over_whatever_the_clock_says() {
    let (mut one, award) = One::running();
    let seen = |until| ask(What::Takeover { token: award.token, observed: Some(until) }, 2);
    // A renewal in between shows that the holder lives.
    let Verdict::Held(_) = one.claim_in_vain(&seen(ms(39)), at(-3600)) else { panic!() };
    assert_eq!(one.award(&seen(ms(40)), at(-3600)).attempt, 2);
}

#[test]
fn rule_10_observing_does_not_make_a_retry_due() {
    let (mut one, award) = One::waiting();
    let seen = ask(What::Takeover { token: award.token, observed: Some(ms(20)) }, 2);
    let Verdict::Held(_) = one.claim_in_vain(&seen, at(15)) else { panic!() };
}

#[test]
fn rule_10_a_store_that_knows_the_holder_overrules_the_clock() {
    let (one, award) = One::running();
    let asked = takeover(award.token, 2);
    let verdict = |end, second| claim(one.record.as_ref(), &asked, at(second), end).answer;
    assert!(matches!(verdict(LeaseEnd::Live, 50), Verdict::Held(_)));
    assert!(matches!(verdict(LeaseEnd::Over, 11), Verdict::Awarded(_)));
}

#[test]
fn rule_11_the_takeover_of_a_cancelled_run_gives_up() {
    let (mut one, award) = One::running();
    one.order(ControlAction::Cancel(award.token), at(11));
    // With attempts left and inside the window.
    let Verdict::GaveUp(record) = one.claim(&takeover(award.token, 2), at(40)) else { panic!() };
    assert_eq!((record.status, &record), (Status::Cancelled, one.record()));
    assert_eq!(one.history.last().unwrap().outcome, RunOutcome::Cancelled);
}

#[test]
fn rule_11_no_retry_follows_when_the_cancel_came_during_the_run() {
    for outcome in [Outcome::Retry(SECOND), Outcome::Released] {
        let (mut one, award) = One::running();
        one.order(ControlAction::Cancel(award.token), at(11));
        one.finish(award.token, outcome, at(12));
        let Verdict::GaveUp(record) = one.claim(&takeover(award.token, 2), at(20)) else { panic!() };
        assert_eq!(record.status, Status::Cancelled);
    }
}

#[test]
fn rule_12_the_last_allowed_crash_is_the_end() {
    let (mut one, first) = One::running();
    let second = one.award(&takeover(first.token, 2), at(40));
    let third = one.award(&takeover(second.token, 3), at(70));
    assert_eq!((third.attempt, third.crashes), (3, 2));
    let Verdict::GaveUp(record) = one.claim(&takeover(third.token, 4), at(100)) else { panic!() };
    assert_eq!((record.status, record.crashes), (Status::Lost, 2));
    let outcomes: Vec<_> = one.history.iter().map(|run| (run.attempt, run.outcome)).collect();
    assert_eq!(outcomes, [(1, RunOutcome::Lost), (2, RunOutcome::Lost), (3, RunOutcome::Lost)]);
}

#[test]
fn rule_12_errors_and_releases_are_not_crashes() {
    let (mut one, first) = One::running();
    let once = |what| Claim { max_attempts: 1, ..what };
    one.finish(first.token, Outcome::Retry(SECOND), at(11));
    let second = one.award(&once(takeover(first.token, 2)), at(12));
    one.finish(second.token, Outcome::Released, at(13));
    let third = one.award(&once(takeover(second.token, 3)), at(13));
    assert_eq!((third.attempt, third.crashes, third.errors), (3, 0, 1));
    let Verdict::GaveUp(_) = one.claim(&once(takeover(third.token, 4)), at(43)) else { panic!() };
}

#[test]
fn rule_12_a_lease_that_ended_a_window_ago_is_given_up_and_not_before() {
    for start in [One::running, One::waiting] {
        let (one, award) = start();
        let end = one.record().until.0 * 1000 + 60_000_000;
        one.clone().award(&takeover(award.token, 2), StoreNow(end));
        let Verdict::GaveUp(record) = one.clone().claim(&takeover(award.token, 2), StoreNow(end + 1000))
        else {
            panic!()
        };
        assert_eq!(record.status, Status::Lost);
    }
}

#[test]
fn rule_13_an_expired_lease_is_awarded_with_a_higher_token() {
    let (mut one, first) = One::running();
    let second = one.award(&Claim { holder: instance("b"), ..takeover(first.token, 2) }, at(40));
    let want = Award {
        attempt: 2,
        crashes: 1,
        started: ms(40),
        until: ms(70),
        token: Token(at(40).0.cast_unsigned()),
        ..first
    };
    assert_eq!(second, want);
    assert_eq!((&one.record().holder, one.record().decided), (&instance("b"), ms(10)));
    assert_eq!(one.history.last().unwrap().outcome, RunOutcome::Lost);
}

#[test]
fn rule_13_a_retry_is_the_next_attempt_without_a_crash() {
    let (mut one, first) = One::waiting();
    let second = one.award(&takeover(first.token, 2), at(20));
    assert_eq!((second.attempt, second.crashes, second.errors), (2, 0, 1));
    assert_eq!(one.history.len(), 1, "the attempt before was closed when it failed");
}

#[test]
fn rule_13_goes_on_while_paused() {
    let (mut one, first) = One::waiting();
    one.order(ControlAction::Pause, at(13));
    one.award(&takeover(first.token, 2), at(20));
}

// ---- claim of a manual run ----

#[test]
fn rule_14_a_trigger_that_was_served_or_never_asked_for_is_already_done() {
    let mut one = One::new();
    one.order(ControlAction::Trigger, at(1));
    for seq in [0, 2, u64::MAX] {
        let record = one.record().clone();
        assert_eq!(one.claim_in_vain(&ask(What::Manual(seq), 1), at(2)), Verdict::AlreadyDone(record));
    }
    let award = one.award(&ask(What::Manual(1), 2), at(2));
    one.finish(award.token, Outcome::Succeeded, at(3));
    let record = one.record().clone();
    assert_eq!(one.claim_in_vain(&ask(What::Manual(1), 3), at(4)), Verdict::AlreadyDone(record));
}

#[test]
fn rule_15_a_trigger_stays_asked_while_a_lease_is_live() {
    let (mut one, award) = One::running();
    one.order(ControlAction::Trigger, at(11));
    let record = one.record().clone();
    assert_eq!(one.claim_in_vain(&ask(What::Manual(1), 2), at(12)), Verdict::Held(record));
    one.finish(award.token, Outcome::Succeeded, at(13));
    one.award(&ask(What::Manual(1), 2), at(14));
}

#[test]
fn rule_16_all_triggers_so_far_become_one_run() {
    let mut one = One::new();
    for second in 1..=3 {
        one.order(ControlAction::Trigger, at(second));
    }
    assert!(one.record().has_trigger());
    let award = one.award(&ask(What::Manual(1), 1), at(5));
    assert_eq!((award.occurrence, award.attempt), (Occurrence::Manual(3), 1));
    assert_eq!(one.record().manual_done, 3);
    assert!(!one.record().has_trigger());
}

#[test]
fn rule_16_a_manual_run_starts_while_paused_and_leaves_decided_alone() {
    let mut one = One::new();
    one.order(ControlAction::Pause, at(1));
    one.order(ControlAction::Trigger, at(1));
    one.award(&ask(What::Manual(1), 1), at(5));
    assert_eq!(one.record().decided, ms(0));
}

#[test]
fn rule_16_a_manual_run_closes_an_unfinished_one_as_lost() {
    for (start, now) in [(One::running as fn() -> _, at(40)), (One::waiting, at(15))] {
        let (mut one, award) = start();
        one.order(ControlAction::Trigger, at(14));
        let manual = one.award(&ask(What::Manual(1), 2), now);
        assert_eq!((manual.attempt, manual.crashes, manual.errors), (1, 0, 0));
        let lost = one.history.last().unwrap();
        assert_eq!((lost.token, lost.outcome), (award.token, RunOutcome::Lost));
    }
}

// ---- renew ----

#[test]
fn a_renewal_extends_the_lease_from_now() {
    let (mut one, award) = One::running();
    let extended = Renewed::Extended { until: ms(50), cancel: false };
    assert_eq!(one.renew(award.token, LEASE, at(20)), extended);
    assert_eq!(one.record().until, ms(50));
}

#[test]
fn a_late_renewal_counts_when_nobody_took_over() {
    let (mut one, award) = One::running();
    assert_eq!(one.renew(award.token, LEASE, at(100)), Renewed::Extended { until: ms(130), cancel: false });
}

#[test]
fn a_renewal_after_a_takeover_is_lost_and_changes_nothing() {
    let (mut one, first) = One::running();
    one.award(&takeover(first.token, 2), at(40));
    let before = one.record().clone();
    assert_eq!(one.renew(first.token, LEASE, at(41)), Renewed::Lost);
    assert_eq!(one.record(), &before);
}

#[test]
fn a_renewal_of_a_closed_run_is_lost_and_changes_nothing() {
    let outcomes =
        [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled, Outcome::Retry(SECOND), Outcome::Released];
    for outcome in outcomes {
        let (mut one, award) = One::running();
        one.finish(award.token, outcome, at(11));
        let before = one.record().clone();
        assert_eq!(one.renew(award.token, LEASE, at(12)), Renewed::Lost, "{outcome:?}");
        assert_eq!(one.record(), &before);
    }
}

#[test]
fn two_renewals_at_one_instant_leave_different_ends() {
    let (mut one, award) = One::running();
    one.renew(award.token, LEASE, at(20));
    let extended = Renewed::Extended { until: Millis(ms(50).0 + 1), cancel: false };
    assert_eq!(one.renew(award.token, LEASE, at(20)), extended);
}

#[test]
fn a_renewal_tells_of_a_cancel_of_its_own_run_only() {
    let (mut one, award) = One::running();
    one.order(ControlAction::Cancel(award.token), at(11));
    assert!(matches!(one.renew(award.token, LEASE, at(12)), Renewed::Extended { cancel: true, .. }));
    one.edit().cancel = Some(Token(award.token.0 - 1));
    assert!(matches!(one.renew(award.token, LEASE, at(13)), Renewed::Extended { cancel: false, .. }));
}

// ---- finish ----

#[test]
fn a_finish_closes_the_run_with_its_outcome_and_one_history_entry() {
    let ends = [
        (Outcome::Succeeded, Status::Succeeded, RunOutcome::Succeeded),
        (Outcome::Failed, Status::Failed, RunOutcome::Failed),
        (Outcome::Cancelled, Status::Cancelled, RunOutcome::Cancelled),
        (Outcome::Retry(SECOND), Status::Waiting, RunOutcome::Retrying),
        (Outcome::Released, Status::Waiting, RunOutcome::Released),
    ];
    for (asked, status, outcome) in ends {
        let (mut one, award) = One::running();
        let Finished::Closed(record) = one.finish(award.token, asked, at(12)) else { panic!("{asked:?}") };
        assert_eq!((record.status, record.runs, &record), (status, 1, one.record()));
        let run = Run {
            occurrence: award.occurrence,
            attempt: 1,
            token: award.token,
            holder: instance("a"),
            started: ms(10),
            ended: ms(12),
            outcome,
            message: None,
        };
        assert_eq!(one.history, [run]);
    }
}

#[test]
fn a_finish_keeps_the_message_of_the_error() {
    let (one, award) = One::running();
    let message = Some("no such host".to_owned());
    let asked = Finish { job: job(), token: award.token, outcome: Outcome::Failed, message: message.clone() };
    let Some(Write::Put { closed, .. }) = finish(one.record.as_ref(), &asked, at(12)).write else { panic!() };
    assert_eq!(closed.unwrap().message, message);
}

#[test]
fn a_retry_counts_an_error_and_is_due_after_its_delay() {
    let (one, _) = One::waiting();
    assert_eq!((one.record().errors, one.record().crashes, one.record().until), (1, 0, ms(20)));
}

#[test]
fn a_release_counts_nothing_and_is_due_at_once() {
    let (mut one, award) = One::running();
    one.finish(award.token, Outcome::Released, at(12));
    assert_eq!((one.record().errors, one.record().crashes, one.record().until), (0, 0, ms(12)));
}

#[test]
fn a_late_finish_counts_when_nobody_took_over() {
    let (mut one, award) = One::running();
    assert!(matches!(one.finish(award.token, Outcome::Succeeded, at(1000)), Finished::Closed(_)));
    assert_eq!(one.record().status, Status::Succeeded);
}

#[test]
fn a_repeated_finish_is_closed_and_changes_nothing() {
    for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled, Outcome::Retry(SECOND)] {
        let (mut one, award) = One::running();
        one.finish(award.token, outcome, at(12));
        let before = one.clone();
        let again = one.finish(award.token, Outcome::Succeeded, at(13));
        assert_eq!(again, Finished::Closed(before.record().clone()), "{outcome:?}");
        assert_eq!((one.record(), &one.history), (before.record(), &before.history));
    }
}

#[test]
fn a_finish_after_a_takeover_is_refused_and_changes_nothing() {
    let (mut one, first) = One::running();
    one.award(&takeover(first.token, 2), at(40));
    let before = one.clone();
    assert_eq!(one.finish(first.token, Outcome::Succeeded, at(41)), Finished::Refused);
    assert_eq!((one.record(), &one.history), (before.record(), &before.history));
}

#[test]
fn a_finish_of_a_run_that_was_given_up_is_refused() {
    let (mut one, award) = One::running();
    let last = Claim { max_attempts: 1, ..takeover(award.token, 2) };
    assert!(matches!(one.claim(&last, at(40)), Verdict::GaveUp(_)));
    assert_eq!(one.finish(award.token, Outcome::Succeeded, at(41)), Finished::Refused);
}

#[test]
fn a_finish_of_a_job_that_never_ran_is_refused() {
    assert_eq!(One::new().finish(Token(0), Outcome::Succeeded, at(1)), Finished::Refused);
}

// ---- register ----

#[test]
fn a_new_job_decides_all_that_was_before_it() {
    let mut one = One::default();
    let Registered::Created(record) = one.register(&spec(), at(0)) else { panic!() };
    assert_eq!((record.decided, record.status, record.token), (ms(0), Status::Idle, Token(0)));
    assert_eq!(&record, one.record());
    assert!(matches!(one.claim(&planned(0, 1), at(1)), Verdict::AlreadyDecided(_)));
    one.award(&planned(1, 2), at(1));
}

#[test]
fn registering_the_schedule_in_force_changes_nothing() {
    let (mut one, _) = One::running();
    let before = one.record().clone();
    assert_eq!(one.register(&spec(), at(20)), Registered::InForce(before.clone()));
    assert_eq!(one.record(), &before);
}

#[test]
fn registering_another_schedule_is_stale_and_changes_nothing() {
    let mut one = One::new();
    let before = one.record().clone();
    let other = JobSpec { schedule: Fingerprint(8), ..spec() };
    assert_eq!(one.register(&other, at(20)), Registered::Stale(before.clone()));
    assert_eq!(one.record(), &before);
}

fn replacing(old: Fingerprint, since: i64) -> JobSpec {
    JobSpec { schedule: Fingerprint(8), replace: Some(Replace { old, since: ms(since) }), ..spec() }
}

#[test]
fn a_schedule_replaces_only_the_one_it_names() {
    let mut one = One::new();
    assert!(matches!(one.register(&replacing(Fingerprint(9), 10), at(20)), Registered::Stale(_)));
    let Registered::InForce(record) = one.register(&replacing(schedule(), 10), at(20)) else { panic!() };
    assert_eq!((record.schedule, &record), (Fingerprint(8), one.record()));
    // Its duplicate finds its own schedule in force.
    let before = one.record().clone();
    assert_eq!(one.register(&replacing(schedule(), 15), at(30)), Registered::InForce(before.clone()));
    assert_eq!(one.record(), &before);
}

#[test]
fn a_replacement_catches_up_from_since_but_never_from_the_future_or_backwards() {
    for (since, decided) in [(10, 10), (30, 20), (-5, 0)] {
        let mut one = One::new();
        one.register(&replacing(schedule(), since), at(20));
        assert_eq!(one.record().decided, ms(decided), "since {since}");
    }
}

#[test]
fn a_replacement_leaves_the_run_in_flight_alone() {
    let (mut one, award) = One::running();
    let before = one.record().clone();
    one.register(&replacing(schedule(), 5), at(20));
    assert_eq!(one.record(), &Record { schedule: Fingerprint(8), ..before });
    assert!(matches!(one.renew(award.token, LEASE, at(21)), Renewed::Extended { .. }));
    assert!(matches!(one.finish(award.token, Outcome::Succeeded, at(22)), Finished::Closed(_)));
}

// ---- operators' orders ----

#[test]
fn every_trigger_counts() {
    let mut one = One::new();
    one.order(ControlAction::Trigger, at(1));
    assert_eq!(one.order(ControlAction::Trigger, at(1)), Controlled::Done);
    assert_eq!((one.record().manual_asked, one.record().manual_done), (2, 0));
}

#[test]
fn a_pause_leaves_the_run_in_flight_alone() {
    let (mut one, award) = One::running();
    let before = one.record().clone();
    assert_eq!(one.order(ControlAction::Pause, at(11)), Controlled::Done);
    assert_eq!(one.record(), &Record { paused: true, ..before });
    assert!(matches!(one.renew(award.token, LEASE, at(12)), Renewed::Extended { cancel: false, .. }));
}

#[test]
fn what_fell_due_during_a_pause_is_gone_after_it_claimed_or_not() {
    let mut one = One::new();
    one.order(ControlAction::Pause, at(1));
    assert_eq!(one.order(ControlAction::Resume, at(20)), Controlled::Done);
    assert!(!one.record().paused);
    assert!(matches!(one.claim(&planned(20, 1), at(21)), Verdict::AlreadyDecided(_)));
    one.award(&planned(21, 2), at(21));
}

#[test]
fn a_resume_never_takes_decided_back() {
    let (mut one, _) = One::running();
    one.order(ControlAction::Pause, at(11));
    one.order(ControlAction::Resume, at(-3600));
    assert_eq!(one.record().decided, ms(10));
}

#[test]
fn resuming_a_job_that_is_not_paused_changes_nothing() {
    let mut one = One::new();
    let before = one.record().clone();
    assert_eq!(one.order(ControlAction::Resume, at(20)), Controlled::Done);
    assert_eq!(one.record(), &before);
}

#[test]
fn cancelling_a_running_job_sets_the_flag_and_nothing_else() {
    let (mut one, award) = One::running();
    let before = one.record().clone();
    assert_eq!(one.order(ControlAction::Cancel(award.token), at(11)), Controlled::Done);
    assert_eq!(one.record(), &Record { cancel: Some(award.token), ..before });
    assert_eq!(one.history, []);
}

#[test]
fn cancelling_a_waiting_job_ends_it() {
    let (mut one, award) = One::waiting();
    assert_eq!(one.order(ControlAction::Cancel(award.token), at(13)), Controlled::Done);
    assert_eq!(one.record().status, Status::Cancelled);
    assert_eq!(one.history.last().unwrap().outcome, RunOutcome::Cancelled);
    assert!(matches!(one.claim(&takeover(award.token, 2), at(20)), Verdict::AlreadyDone(_)));
}

#[test]
fn cancelling_another_token_or_a_finished_run_changes_nothing() {
    let (mut one, award) = One::running();
    let before = one.record().clone();
    assert_eq!(one.order(ControlAction::Cancel(Token(1)), at(11)), Controlled::NoSuchRun);
    assert_eq!(one.record(), &before);
    one.finish(award.token, Outcome::Succeeded, at(12));
    let before = one.record().clone();
    assert_eq!(one.order(ControlAction::Cancel(award.token), at(13)), Controlled::NoSuchRun);
    assert_eq!(one.record(), &before);
    assert_eq!(One::new().order(ControlAction::Cancel(Token(0)), at(1)), Controlled::NoSuchRun);
}

#[test]
fn forgetting_deletes_the_record_and_what_comes_late_finds_nothing_to_change() {
    let (mut one, award) = One::running();
    assert_eq!(one.order(ControlAction::Forget, at(11)), Controlled::Done);
    assert_eq!((&one.record, &one.history[..]), (&None, &[][..]));
    one.register(&spec(), at(12));
    let before = one.record().clone();
    assert_eq!(one.renew(award.token, LEASE, at(13)), Renewed::Lost);
    assert_eq!(one.finish(award.token, Outcome::Succeeded, at(13)), Finished::Refused);
    assert!(matches!(one.claim(&planned(10, 1), at(13)), Verdict::AlreadyDecided(_)));
    assert!(matches!(one.claim(&takeover(award.token, 2), at(13)), Verdict::AlreadyDone(_)));
    assert_eq!(one.record(), &before);
    assert!(one.award(&planned(13, 3), at(13)).token > award.token);
}

// ---- times and names ----

#[test]
fn a_reading_is_rounded_down_and_the_end_of_a_lease_up() {
    assert_eq!(StoreNow(1999).millis(), Millis(1));
    assert_eq!(StoreNow(-1).millis(), Millis(-1));
    assert_eq!(StoreNow(1000).plus(Duration::ZERO), Millis(1));
    assert_eq!(StoreNow(1000).plus(Duration::from_nanos(1)), Millis(2));
    assert_eq!(StoreNow(-999).plus(Duration::from_millis(1)), Millis(1));
    assert_eq!(Millis(5).minus(Duration::from_micros(1)), Millis(4));
    assert_eq!(Millis(5).since(Millis(9)), Duration::ZERO);
}

#[test]
fn names_are_1_to_100_of_the_allowed_characters() {
    for right in ["a", "A-Z_0.9", &"n".repeat(100)] {
        assert_eq!(JobName::new(right).unwrap().as_str(), right);
    }
    for wrong in ["", "a b", "a/b", "ä", "{a}", "a\n", &"n".repeat(101)] {
        let message = Namespace::new(wrong).unwrap_err().to_string();
        assert!(message.contains(&format!("{wrong:?}")), "{message}");
    }
}

#[test]
fn what_stores_keep_as_text_reads_back() {
    let print = Fingerprint::of("every 5m");
    assert_eq!(Fingerprint::parse(&print.to_string()), Some(print));
    let claim = Nonce { instance: u64::MAX, seq: 1 };
    assert_eq!(Nonce::parse(&claim.to_string()), Some(claim));
    for wrong in ["", "0", &"g".repeat(32), &format!("+{}", "0".repeat(31)), &"0".repeat(33)] {
        assert_eq!((Fingerprint::parse(wrong), Nonce::parse(wrong)), (None, None), "{wrong:?}");
    }
    for word in ["idle", "running", "waiting", "succeeded", "failed", "cancelled", "lost"] {
        assert_eq!(Status::parse(word).unwrap().as_str(), word);
    }
    for word in ["succeeded", "failed", "retrying", "released", "cancelled", "lost"] {
        assert_eq!(RunOutcome::parse(word).unwrap().as_str(), word);
    }
    assert_eq!((Status::parse("Idle"), RunOutcome::parse("waiting")), (None, None));
}

/// Expected: SipHash-2-4-128 under the key of zeros, by a program written from its paper and checked against the
/// published vector for the empty text (key 00..0f).
#[test]
fn a_fingerprint_does_not_depend_on_the_build() {
    let known = [
        ("", "f4f2ced447ab02427de0a38047d74950"),
        ("every 5m", "3d8e5ae0e6b25329f2e22115054a116b"),
        ("cron 0 0 * * *", "77d5d13c49cab5532058ddced744d037"),
    ];
    for (text, hex) in known {
        assert_eq!(Fingerprint::of(text).to_string(), hex, "{text:?}");
    }
}

// ---- extremes ----

#[test]
fn no_rule_panics_on_extreme_values() {
    let times = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX / 1000, i64::MAX - 1, i64::MAX];
    let lengths = [Duration::ZERO, Duration::from_nanos(1), Duration::MAX];
    let mut seed = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let rng = &mut seed;
        let mut time = || times[rng.usize(..times.len())];
        let (decided, started, until, now, planned) = (time(), time(), time(), StoreNow(time()), time());
        let counts = [0, 1, u32::MAX - 1, u32::MAX];
        let longs = [0, 1, u64::MAX - 1, u64::MAX];
        let mut count = || counts[rng.usize(..counts.len())];
        let (attempt, crashes, errors, max_attempts) = (count(), count(), count(), count());
        let mut long = || longs[rng.usize(..longs.len())];
        let (token, asked, done, runs, seq) = (Token(long()), long(), long(), long(), long());
        let statuses = [Status::Idle, Status::Running, Status::Waiting, Status::Succeeded, Status::Lost];
        let record = Record {
            decided: Millis(decided),
            occurrence: Occurrence::Planned(Millis(planned)),
            status: statuses[rng.usize(..statuses.len())],
            attempt,
            crashes,
            errors,
            started: Millis(started),
            until: Millis(until),
            token,
            holder: instance("a"),
            nonce: nonce(1),
            paused: rng.bool(),
            cancel: rng.bool().then_some(token),
            manual_asked: asked,
            manual_done: done,
            schedule: schedule(),
            next: None,
            runs,
        };
        let whats = [
            What::Planned(Millis(planned)),
            What::Takeover { token, observed: None },
            What::Takeover { token, observed: Some(Millis(until)) },
            What::Manual(seq),
        ];
        let length = lengths[rng.usize(..lengths.len())];
        for what in whats {
            let asked = Claim { lease: length, window: length, max_attempts, ..ask(what, 2) };
            let _ = claim(Some(&record), &asked, now, LeaseEnd::ByClock);
        }
        let _ = renew(Some(&record), &Renewal { job: job(), token, lease: length }, now);
        for outcome in [Outcome::Succeeded, Outcome::Retry(length), Outcome::Released] {
            let _ = finish(Some(&record), &Finish { job: job(), token, outcome, message: None }, now);
        }
        for action in [ControlAction::Trigger, ControlAction::Resume, ControlAction::Cancel(token)] {
            let _ = control(Some(&record), &Control { job: job(), action }, now);
        }
        let replace = Some(Replace { old: schedule(), since: Millis(started) });
        let _ = register(Some(&record), &JobSpec { schedule: Fingerprint(8), replace, ..spec() }, now);
        let _ = (Millis(until).to_string(), Millis(until).minus(length), Millis(until).plus(length));
    }
}

#[test]
fn counters_at_their_end_stay_there() {
    let (mut one, first) = One::waiting();
    let end = one.edit();
    (end.attempt, end.errors, end.runs, end.manual_asked) = (u32::MAX, u32::MAX, u64::MAX, u64::MAX);
    let next = one.award(&takeover(first.token, 2), at(20));
    one.finish(next.token, Outcome::Retry(SECOND), at(21));
    one.order(ControlAction::Trigger, at(21));
    let record = one.record();
    assert_eq!((record.attempt, record.errors), (u32::MAX, u32::MAX));
    assert_eq!((record.runs, record.manual_asked), (u64::MAX, u64::MAX));
}
