//! The invariants over random histories: any calls in any order, repeated and delayed, with the clock stepped.

use std::collections::{HashMap, HashSet};

use super::*;

const MAX_ATTEMPTS: u32 = 3;

/// A call that can be made again later.
#[derive(Debug, Clone)]
enum Call {
    Claim(Claim),
    Renew(Token, Duration),
    Finish(Token, Outcome),
    Order(ControlAction),
}

/// What the invariants need to know of the past; emptied by `forget`, except for the token.
#[derive(Debug, Default)]
struct Seen {
    token: Token,
    /// By occurrence: the last attempt at it.
    attempts: HashMap<Occurrence, u32>,
    /// By occurrence: how many retries and releases.
    given_back: HashMap<Occurrence, u32>,
    ended: HashSet<Occurrence>,
    skipped: HashSet<Occurrence>,
    cancelled: HashSet<Token>,
    /// No planned occurrence up to here may start: it was paused away.
    gone: Option<Millis>,
    triggers: u64,
    manual: u64,
    /// The claims that were awarded or gave up.
    settled: HashSet<Nonce>,
}

struct History {
    rng: fastrand::Rng,
    one: One,
    now: StoreNow,
    seen: Seen,
    sent: Vec<Call>,
    nonce: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self { rng, one: One::new(), now: at(0), seen: Seen::default(), sent: Vec::new(), nonce: 0 }
    }

    fn step(&mut self) {
        self.now.0 += match self.rng.u8(..40) {
            0 => -3_600_000_000,
            1 => 3_600_000_000,
            2..10 => 0,
            _ => self.rng.i64(0..20_000_000),
        };
        if self.one.record.is_none() {
            self.one.register(&spec(), self.now);
        }
        // I3 does not hold across a loss together with a step back.
        if self.one.record().token == Token(0) {
            self.now.0 = self.now.0.max(self.seen.token.0.cast_signed() + 1);
        }
        let again = !self.sent.is_empty() && self.rng.u8(..4) == 0;
        let call = if again { self.sent[self.rng.usize(..self.sent.len())].clone() } else { self.draw() };
        self.sent.push(call.clone());
        self.make(&call, again);
    }

    fn draw(&mut self) -> Call {
        let record = self.one.record().clone();
        let token = if self.rng.u8(..5) == 0 { Token(self.rng.u64(..3)) } else { record.token };
        match self.rng.u8(..20) {
            0..5 => {
                let back = self.rng.i64(-2..90);
                let occurrence = Millis((self.now.millis().0 / 1000 - back) * 1000);
                self.ask(What::Planned(occurrence))
            }
            5..9 => {
                let observed = (self.rng.u8(..6) == 0).then_some(record.until);
                self.ask(What::Takeover { token, observed })
            }
            9..11 => {
                let seq = (record.manual_asked + 1).saturating_sub(self.rng.u64(..3));
                self.ask(What::Manual(seq))
            }
            11..13 => Call::Renew(token, LEASE),
            13..16 => {
                let ends = [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled, Outcome::Released];
                let retry = Outcome::Retry(Duration::from_secs(self.rng.u64(..40)));
                Call::Finish(token, if self.rng.bool() { retry } else { ends[self.rng.usize(..ends.len())] })
            }
            16 => Call::Order(ControlAction::Trigger),
            17 => Call::Order(if self.rng.bool() { ControlAction::Pause } else { ControlAction::Resume }),
            18 => Call::Order(ControlAction::Cancel(token)),
            _ if self.rng.u8(..10) == 0 => Call::Order(ControlAction::Forget),
            _ => Call::Order(ControlAction::Resume),
        }
    }

    fn ask(&mut self, what: What) -> Call {
        self.nonce += 1;
        let expires = if self.rng.u8(..4) == 0 { self.now.plus(LEASE / 2) } else { Millis::MAX };
        Call::Claim(Claim { max_attempts: MAX_ATTEMPTS, expires, ..ask(what, self.nonce) })
    }

    fn make(&mut self, call: &Call, again: bool) {
        let before = self.one.record().clone();
        match call {
            Call::Claim(asked) => {
                let verdict = self.one.claim(asked, self.now);
                self.judge(asked, &before, &verdict);
            }
            Call::Renew(token, lease) => {
                let renewed = self.one.renew(*token, *lease, self.now);
                let mine = before.token == *token && before.status == Status::Running;
                assert_eq!(renewed != Renewed::Lost, mine);
                assert!(mine || before == *self.one.record(), "I11: a stale renewal changed the record");
            }
            Call::Finish(token, outcome) => {
                self.one.finish(*token, *outcome, self.now);
                let mine = before.token == *token && before.status == Status::Running;
                assert!(
                    mine || before == *self.one.record(),
                    "I11, I12: a stale or second finish changed something"
                );
                match outcome {
                    _ if !mine => {}
                    Outcome::Succeeded | Outcome::Failed | Outcome::Cancelled => {
                        self.seen.ended.insert(before.occurrence);
                    }
                    Outcome::Retry(_) | Outcome::Released => {
                        *self.seen.given_back.entry(before.occurrence).or_default() += 1;
                    }
                }
            }
            Call::Order(ControlAction::Forget) if again => {}
            Call::Order(action) => self.carry_out(*action, &before),
        }
        if let Some(after) = &self.one.record {
            assert!(after.decided >= before.decided, "I4: decided went down");
        }
    }

    fn judge(&mut self, asked: &Claim, before: &Record, verdict: &Verdict) {
        let after = self.one.record();
        if self.seen.settled.contains(&asked.nonce) {
            assert_eq!(after, before, "I12: a repeated claim changed something");
        }
        match verdict {
            Verdict::Awarded(award) if before.nonce != asked.nonce => {
                self.seen.settled.insert(asked.nonce);
                self.judge_award(asked, before, *award);
            }
            Verdict::GaveUp(record) => {
                self.seen.settled.insert(asked.nonce);
                self.seen.ended.insert(record.occurrence);
            }
            Verdict::Skipped(record) => {
                self.seen.skipped.insert(Occurrence::Planned(record.decided));
            }
            Verdict::Awarded(_)
            | Verdict::AlreadyDone(_)
            | Verdict::Stale { .. }
            | Verdict::Expired
            | Verdict::Early
            | Verdict::AlreadyDecided(_)
            | Verdict::Paused(_)
            | Verdict::Missed
            | Verdict::Held(_)
            | Verdict::Unregistered => {}
        }
    }

    fn judge_award(&mut self, asked: &Claim, before: &Record, award: Award) {
        assert!(self.now.millis() <= asked.expires, "I21: an award that nobody waits for");
        let seen = &mut self.seen;
        let observed =
            matches!(asked.what, What::Takeover { observed, .. } if observed == Some(before.until));
        let live = before.status == Status::Running && before.until.0 * 1000 > self.now.0;
        assert!(!live || observed, "I1: awarded under a live lease");
        assert!(award.token > seen.token, "I3: the token did not grow");
        let last = seen.attempts.insert(award.occurrence, award.attempt).unwrap_or(0);
        assert_eq!(award.attempt, last + 1, "I2: attempts are not consecutive");
        assert!(!seen.ended.contains(&award.occurrence), "I5: awarded after its finish");
        assert!(!seen.skipped.contains(&award.occurrence), "I8: awarded after a skip");
        let given_back = seen.given_back.get(&award.occurrence).copied().unwrap_or(0);
        assert!(award.attempt <= MAX_ATTEMPTS + given_back, "I16: too many attempts");
        if award.attempt > 1 {
            assert_eq!(award.occurrence, before.occurrence);
            assert!(!seen.cancelled.contains(&before.token), "I19: an attempt followed a cancel");
        }
        match award.occurrence {
            Occurrence::Planned(due) if award.attempt == 1 => {
                assert!(due.0 * 1000 <= self.now.0, "I6: awarded early");
                assert!(due.plus(WINDOW) >= self.now.millis(), "I6: awarded after the window");
                assert!(!before.paused, "I17: awarded while paused");
                assert!(seen.gone.is_none_or(|gone| due > gone), "I17: awarded although paused away");
            }
            Occurrence::Manual(seq) if award.attempt == 1 => {
                assert!(seq > seen.manual && seq <= seen.triggers, "I18: a manual run without a trigger");
                seen.manual = seq;
            }
            Occurrence::Planned(_) | Occurrence::Manual(_) => {}
        }
        seen.token = award.token;
    }

    fn carry_out(&mut self, action: ControlAction, before: &Record) {
        let answer = self.one.order(action, self.now);
        match action {
            ControlAction::Trigger => self.seen.triggers += 1,
            ControlAction::Pause => {}
            ControlAction::Resume if before.paused => {
                self.seen.gone = self.seen.gone.max(Some(self.now.millis()));
            }
            ControlAction::Resume => {}
            ControlAction::Cancel(token) => {
                if answer == Controlled::Done {
                    self.seen.cancelled.insert(token);
                }
            }
            ControlAction::Forget => {
                // A call from before the loss names nothing that is there after it, except by chance.
                self.sent.clear();
                self.seen = Seen { token: self.seen.token, ..Seen::default() };
            }
        }
    }

    /// I18: a trigger is awarded once no lease is live.
    fn serve_triggers(&mut self) {
        let Some(record) = self.one.record.clone().filter(Record::has_trigger) else { return };
        self.now = StoreNow(self.now.0.max(record.until.0 * 1000));
        let asked = ask(What::Manual(record.manual_asked), u64::MAX);
        let award = self.one.award(&asked, self.now);
        assert_eq!(award.occurrence, Occurrence::Manual(self.seen.triggers));
    }
}

#[test]
fn no_history_breaks_an_invariant() {
    let asked = std::env::var("ANARCHON_HISTORY_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = asked.map_or_else(|| (0..2000).map(|_| fastrand::u64(..)).collect(), |seed: u64| vec![seed]);
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| {
            let mut history = History::new(seed);
            for _ in 0..200 {
                history.step();
            }
            history.serve_triggers();
        });
        if let Err(panic) = outcome {
            eprintln!("rerun with ANARCHON_HISTORY_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
