//! What the fuzz targets of the stores share, and the one of their URLs. The records' are beside what reads them.

#[path = "../../../anarchon-schedule/tests/fuzzing/mod.rs"]
pub(super) mod fuzzing;
#[cfg(all(
    feature = "nats",
    feature = "postgres",
    feature = "rabbitmq",
    feature = "redis",
    feature = "sqlite"
))]
mod urls;

use std::time::Duration;

use crate::protocol::{
    self, Claim, Control, ControlAction, Fingerprint, Finish, InstanceId, JobName, JobSpec, LeaseEnd, Millis,
    Nonce, Outcome, Record, Renewal, Replace, StoreNow, Token, What,
};

/// What damages texts, beside the pieces of one's own: where numbers, texts and JSON have their edges.
pub(super) const PIECES: [&str; 44] = [
    "0",
    "1",
    "-1",
    "+1",
    "1e3",
    "1.5",
    "255",
    "256",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "null",
    "true",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    ",",
    ":",
    "\n",
    "\r\n",
    " ",
    "\0",
    "é",
    "\u{feff}",
    "planned:",
    "manual:",
    "running",
    "waiting",
    "idle",
    "succeeded",
    "\"form\":1,",
    "\"form\":2,",
    "\"token\":",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":{\"a\":",
];

/// Whether it is one line that fits in an error, whatever it is about.
pub(super) fn is_one_clear_line(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= 400 && !text.contains(char::is_control)
}

/// Whatever a record says, every rule has an answer to it: in a build with checked arithmetic none panics.
pub(super) fn is_answered(record: &Record) {
    let job = JobName::new("job").unwrap();
    let by = InstanceId::new("me").unwrap();
    let second = Duration::from_secs(1);
    let mut answered = vec![record.clone()];
    for now in [i64::MIN, 0, 1_700_000_000_000_000, i64::MAX].map(StoreNow) {
        for lease in [second, Duration::MAX] {
            for (what, end) in [
                (What::Planned(now.millis()), LeaseEnd::ByClock),
                (What::Planned(Millis::MAX), LeaseEnd::Over),
                (What::Takeover { token: record.token, observed: None }, LeaseEnd::ByClock),
                (What::Takeover { token: record.token, observed: Some(record.until) }, LeaseEnd::Live),
                (What::Manual(record.manual_asked), LeaseEnd::Over),
            ] {
                let claim = Claim {
                    job: job.clone(),
                    what,
                    lease,
                    window: lease,
                    max_attempts: 3,
                    schedule: record.schedule,
                    next: None,
                    holder: by.clone(),
                    nonce: Nonce { instance: 7, seq: 7 },
                    expires: Millis::MAX,
                };
                answered.extend(written(protocol::claim(Some(record), &claim, now, end).write));
            }
            let renewal = Renewal { job: job.clone(), token: record.token, lease };
            answered.extend(written(protocol::renew(Some(record), &renewal, now).write));
            for outcome in [Outcome::Succeeded, Outcome::Retry(lease), Outcome::Released] {
                let finish = Finish { job: job.clone(), token: record.token, outcome, message: None };
                answered.extend(written(protocol::finish(Some(record), &finish, now).write));
            }
        }
        for action in [
            ControlAction::Trigger,
            ControlAction::Pause,
            ControlAction::Resume,
            ControlAction::Cancel(record.token),
        ] {
            let control = Control { job: job.clone(), action };
            answered.extend(written(protocol::control(Some(record), &control, now).write));
        }
        let replace = Some(Replace { old: record.schedule, since: now.millis() });
        let schedule = Fingerprint(record.schedule.0.wrapping_add(1));
        let spec = JobSpec { job: job.clone(), schedule, by: by.clone(), replace, next: None };
        answered.extend(written(protocol::register(Some(record), &spec, now).write));
    }
    for record in answered {
        let _ = format!("{} {} {} {record:?}", record.occurrence, record.started, record.until);
    }
    let _ = Token(record.token.0).to_string();
}

fn written(write: Option<protocol::Write>) -> Option<Record> {
    match write {
        Some(protocol::Write::Put { record, .. }) => Some(*record),
        Some(protocol::Write::Delete) | None => None,
    }
}
