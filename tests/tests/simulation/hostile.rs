//! A store that answers anything: wrong kinds and numbers of answers, extreme numbers, other jobs' records.

use std::time::Duration;

use anarchon::{
    clock::Mono,
    engine::{Action, Call, CallId, Engine, Event, Reply, RunEnd, Settings},
    policy::Policy,
    protocol::{
        Award, Fingerprint, Finished, InstanceId, JobName, Members, Millis, Nonce, Occurrence, Record,
        Registered, Renewed, Status, StoreNow, Token, Verdict, Waiting,
    },
    store::{Answer, Guarantees, Snapshot, Stamped, StoreError},
};
use fastrand::Rng;

use crate::plan::{SECOND, job};

/// Plays one engine against such a store for a virtual minute; the answer is how often it was called.
pub(crate) fn play(seed: u64) -> usize {
    let mut rng = Rng::with_seed(seed);
    let jobs = vec![
        job("one", "1s", Policy::default()),
        job("two", "100ms", Policy { lease: Duration::from_secs(5), retries: 3, ..Policy::default() }),
        job("three", "* * * * *", Policy { timeout: Some(Duration::ZERO), ..Policy::default() }),
    ];
    let prints: Vec<Fingerprint> = jobs.iter().map(|j| j.fingerprint).collect();
    let settings = Settings {
        instance: instance("me"),
        nonce: 1,
        seed,
        concurrency: rng.bool().then_some(1),
        drain: Duration::from_secs(1),
        zones: String::new(),
    };
    let mut engine = Engine::new(settings, jobs);
    let mut time = rng.u64(0..1 << 40);
    let end = time + 60 * SECOND;
    let sane = rng.f64();
    let mut calls = 0;
    let mut open: Vec<(CallId, Call, u64)> = Vec::new();
    let mut runs = Vec::new();
    engine.handle(Event::Opened(Guarantees::new("hostile")), Mono(time));
    let mut stopping = false;
    loop {
        while let Some(action) = engine.next_action() {
            match action {
                Action::Call { id, call, .. } => {
                    calls += 1;
                    open.push((id, call, time));
                }
                Action::Start(start) => runs.push(start.run),
                Action::Stopped => return calls,
                Action::Ready
                | Action::Failed(_)
                | Action::Trust { .. }
                | Action::Cancel { .. }
                | Action::Drop { .. }
                | Action::Report(_) => {}
            }
        }
        assert!(time < end + 600 * SECOND, "seed {seed}: it never stopped");
        if time >= end && !std::mem::replace(&mut stopping, true) {
            engine.handle(Event::Shutdown, Mono(time));
            continue;
        }
        let next = engine.next_wakeup().map_or(time + SECOND, |m| m.0.max(time + 1));
        if !open.is_empty() && (rng.bool() || open.len() > 5) {
            let (id, call, sent) = open.swap_remove(rng.usize(0..open.len()));
            time += rng.u64(1..100_000);
            let reply = if rng.f64() < sane {
                fitting(&call, &mut rng, &prints, time)
            } else {
                any(&mut rng, &prints, time)
            };
            let event = Event::Reply { call: id, sent: Mono(sent), received: Mono(time), reply };
            engine.handle(event, Mono(time));
        } else if !runs.is_empty() && (rng.u8(0..4) == 0 || stopping) {
            let run = runs.swap_remove(rng.usize(0..runs.len()));
            let end = match rng.u8(0..3) {
                0 => RunEnd::Dropped,
                1 => RunEnd::Returned { error: None, saw_cancel: rng.bool() },
                _ => RunEnd::Returned { error: Some("no luck".to_owned()), saw_cancel: rng.bool() },
            };
            engine.handle(Event::RunEnded { run, end }, Mono(time));
        } else {
            time = next.min(time + 10 * SECOND);
            engine.handle(Event::Tick, Mono(time));
        }
    }
}

fn instance(id: &str) -> InstanceId {
    InstanceId::new(id).expect("a right name")
}

fn number(rng: &mut Rng, time: u64) -> i64 {
    match rng.u8(0..8) {
        0 => i64::MIN,
        1 => i64::MAX,
        2 => 0,
        3 => rng.i64(..),
        _ => (time as i64) / 1000 + rng.i64(-100_000..100_000),
    }
}

fn now(rng: &mut Rng, time: u64) -> StoreNow {
    match rng.u8(0..10) {
        0 => StoreNow(rng.i64(..)),
        1 => StoreNow(if rng.bool() { i64::MAX } else { i64::MIN }),
        _ => StoreNow(time as i64),
    }
}

fn waiting(rng: &mut Rng, prints: &[Fingerprint], time: u64) -> Vec<Waiting> {
    let one = |(name, schedule): (&str, &Fingerprint)| Waiting {
        job: JobName::new(name).expect("a right name"),
        schedule: *schedule,
        since: Millis(number(rng, time)),
    };
    ["one", "two", "three"].into_iter().zip(prints).map(one).collect()
}

fn record(rng: &mut Rng, prints: &[Fingerprint], time: u64) -> Record {
    let all = [
        Status::Idle,
        Status::Running,
        Status::Waiting,
        Status::Succeeded,
        Status::Failed,
        Status::Cancelled,
        Status::Lost,
    ];
    Record {
        decided: Millis(number(rng, time)),
        occurrence: occurrence(rng, time),
        status: all[rng.usize(0..all.len())],
        attempt: rng.u32(..),
        crashes: rng.u32(..),
        errors: rng.u32(..),
        started: Millis(number(rng, time)),
        until: Millis(number(rng, time)),
        token: Token(if rng.bool() { rng.u64(0..5) } else { u64::MAX }),
        holder: instance(if rng.bool() { "me" } else { "other" }),
        nonce: Nonce { instance: 1, seq: rng.u64(0..10) },
        paused: rng.bool(),
        cancel: rng.bool().then(|| Token(rng.u64(0..5))),
        manual_asked: rng.u64(0..3),
        manual_done: rng.u64(0..3),
        schedule: if rng.bool() { prints[rng.usize(0..prints.len())] } else { Fingerprint(rng.u128(..)) },
        next: None,
        runs: rng.u64(..),
    }
}

fn occurrence(rng: &mut Rng, time: u64) -> Occurrence {
    if rng.bool() { Occurrence::Planned(Millis(number(rng, time))) } else { Occurrence::Manual(rng.u64(..)) }
}

fn item<T>(rng: &mut Rng, time: u64, value: impl FnOnce(&mut Rng) -> T) -> Answer<T> {
    match rng.u8(0..10) {
        0 => Err(StoreError::unknown("?")),
        1 => Err(StoreError::unavailable("?")),
        2 => Err(StoreError::misconfigured("?")),
        _ => Ok(Stamped { value: value(rng), now: now(rng, time) }),
    }
}

fn list<T>(n: usize, rng: &mut Rng, time: u64, mut value: impl FnMut(&mut Rng) -> T) -> Vec<Answer<T>> {
    (0..n).map(|_| item(rng, time, &mut value)).collect()
}

fn verdict(rng: &mut Rng, prints: &[Fingerprint], time: u64) -> Verdict {
    match rng.u8(0..11) {
        0 => Verdict::AlreadyDone(record(rng, prints, time)),
        1 => Verdict::Stale { schedule: Fingerprint(rng.u128(..)) },
        2 if rng.bool() => Verdict::Expired,
        2 => Verdict::Early,
        3 => Verdict::AlreadyDecided(record(rng, prints, time)),
        4 => Verdict::Paused(record(rng, prints, time)),
        5 => Verdict::Missed,
        6 => Verdict::Skipped(record(rng, prints, time)),
        7 => Verdict::Held(record(rng, prints, time)),
        8 => Verdict::GaveUp(record(rng, prints, time)),
        9 => Verdict::Unregistered,
        _ => Verdict::Awarded(Award {
            occurrence: occurrence(rng, time),
            attempt: rng.u32(..),
            crashes: rng.u32(..),
            errors: rng.u32(..),
            started: Millis(number(rng, time)),
            until: Millis(number(rng, time)),
            token: Token(rng.u64(0..5)),
        }),
    }
}

fn any(rng: &mut Rng, prints: &[Fingerprint], time: u64) -> Reply {
    let n = rng.usize(0..4);
    of_kind(rng.u8(0..6), n, rng, prints, time)
}

fn fitting(call: &Call, rng: &mut Rng, prints: &[Fingerprint], time: u64) -> Reply {
    let (kind, n) = match call {
        Call::Beat(_) => (0, 1),
        Call::Register(items) => (1, items.len()),
        Call::Claim(items) => (2, items.len()),
        Call::Renew(items) => (3, items.len()),
        Call::Finish(items) => (4, items.len()),
        Call::Inspect(items) => (5, items.len()),
    };
    of_kind(kind, n, rng, prints, time)
}

fn of_kind(kind: u8, n: usize, rng: &mut Rng, prints: &[Fingerprint], time: u64) -> Reply {
    match kind {
        0 => Reply::Beat(item(rng, time, |rng| Members {
            known: rng.bool(),
            instances: vec![instance("other")],
            announced: Vec::new(),
            waiting: waiting(rng, prints, time),
            zones: vec!["x".to_owned()],
        })),
        1 => Reply::Register(list(n, rng, time, |rng| match rng.u8(0..3) {
            0 => Registered::Created(record(rng, prints, time)),
            1 => Registered::InForce(record(rng, prints, time)),
            _ => Registered::Stale(record(rng, prints, time)),
        })),
        2 => Reply::Claim(list(n, rng, time, |rng| verdict(rng, prints, time))),
        3 => Reply::Renew(list(n, rng, time, |rng| match rng.bool() {
            true => Renewed::Extended { until: Millis(number(rng, time)), cancel: rng.u8(0..9) == 0 },
            false => Renewed::Lost,
        })),
        4 => Reply::Finish(list(n, rng, time, |rng| match rng.bool() {
            true => Finished::Closed(record(rng, prints, time)),
            false => Finished::Refused,
        })),
        _ => Reply::Inspect(list(n, rng, time, |rng| {
            rng.bool().then(|| Snapshot { record: record(rng, prints, time), history: Vec::new() })
        })),
    }
}
