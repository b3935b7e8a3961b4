//! A record and its closed runs as JSON, for the stores that keep them as one text; an operator can read it.

use serde::{Deserialize, Serialize};

use super::damage::NEWER;
use crate::protocol::{
    Fingerprint, InstanceId, Millis, Nonce, Occurrence, Record, Run, RunOutcome, Status, Token,
};

/// How many runs of a job are kept.
pub(super) const HISTORY: u8 = 20;

/// The form of the texts; another one was written by another version of this program.
const FORM: u8 = 1;

/// Why a text cannot be read.
pub(super) type Damage = String;

/// What was written in this form, or why it cannot be read.
pub(super) fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, Damage> {
    #[derive(Deserialize)]
    struct Form {
        form: u8,
    }
    let Form { form } = read_json(bytes)?;
    if form > FORM {
        return Err(format!("{NEWER}: its form is {form}, and this program reads {FORM}"));
    }
    if form != FORM {
        return Err(format!("its form is {form}, and this program reads {FORM}"));
    }
    read_json(bytes)
}

/// What JSON says, or why it cannot be read.
pub(super) fn read_json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Damage> {
    // It repeats what it found, however long that is.
    serde_json::from_slice(bytes).map_err(|error| error.to_string().chars().take(200).collect())
}

/// The text of something with string keys only.
pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    #[derive(Serialize)]
    struct Formed<'a, T> {
        form: u8,
        #[serde(flatten)]
        value: &'a T,
    }
    serde_json::to_vec(&Formed { form: FORM, value }).unwrap_or_default()
}

/// Runs, the newest first, with one more that was closed.
pub(super) fn with_closed<'a, R: Clone + 'a>(
    closed: Option<R>,
    runs: impl IntoIterator<Item = &'a R>,
) -> Vec<R> {
    closed.into_iter().chain(runs.into_iter().cloned()).take(usize::from(HISTORY)).collect()
}

/// A record.
#[derive(Serialize, Deserialize)]
pub(super) struct RecordText {
    decided: i64,
    occurrence: String,
    status: String,
    attempt: u32,
    crashes: u32,
    errors: u32,
    started: i64,
    until: i64,
    token: u64,
    holder: String,
    nonce: String,
    paused: bool,
    cancel: Option<u64>,
    manual_asked: u64,
    manual_done: u64,
    schedule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<i64>,
    runs: u64,
}

impl RecordText {
    pub(super) fn of(record: &Record) -> Self {
        Self {
            decided: record.decided.0,
            occurrence: written(record.occurrence),
            status: record.status.as_str().to_owned(),
            attempt: record.attempt,
            crashes: record.crashes,
            errors: record.errors,
            started: record.started.0,
            until: record.until.0,
            token: record.token.0,
            holder: record.holder.to_string(),
            nonce: record.nonce.to_string(),
            paused: record.paused,
            cancel: record.cancel.map(|token| token.0),
            manual_asked: record.manual_asked,
            manual_done: record.manual_done,
            schedule: record.schedule.to_string(),
            next: record.next.map(|next| next.0),
            runs: record.runs,
        }
    }

    pub(super) fn read(self) -> Result<Record, Damage> {
        Ok(Record {
            decided: Millis(self.decided),
            occurrence: occurrence(&self.occurrence)?,
            status: Status::parse(&self.status).ok_or_else(|| wrong("status", &self.status))?,
            attempt: self.attempt,
            crashes: self.crashes,
            errors: self.errors,
            started: Millis(self.started),
            until: Millis(self.until),
            token: Token(self.token),
            holder: InstanceId::new(&self.holder).map_err(|error| error.to_string())?,
            nonce: Nonce::parse(&self.nonce).ok_or_else(|| wrong("nonce", &self.nonce))?,
            paused: self.paused,
            cancel: self.cancel.map(Token),
            manual_asked: self.manual_asked,
            manual_done: self.manual_done,
            schedule: Fingerprint::parse(&self.schedule).ok_or_else(|| wrong("schedule", &self.schedule))?,
            next: self.next.map(Millis),
            runs: self.runs,
        })
    }
}

/// A closed run.
#[derive(Serialize, Deserialize)]
pub(super) struct RunText {
    occurrence: String,
    attempt: u32,
    token: u64,
    holder: String,
    started: i64,
    ended: i64,
    outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl RunText {
    pub(super) fn of(run: &Run) -> Self {
        Self {
            occurrence: written(run.occurrence),
            attempt: run.attempt,
            token: run.token.0,
            holder: run.holder.to_string(),
            started: run.started.0,
            ended: run.ended.0,
            outcome: run.outcome.as_str().to_owned(),
            message: run.message.clone(),
        }
    }

    pub(super) fn read(self) -> Result<Run, Damage> {
        Ok(Run {
            occurrence: occurrence(&self.occurrence)?,
            attempt: self.attempt,
            token: Token(self.token),
            holder: InstanceId::new(&self.holder).map_err(|error| error.to_string())?,
            started: Millis(self.started),
            ended: Millis(self.ended),
            outcome: RunOutcome::parse(&self.outcome).ok_or_else(|| wrong("outcome", &self.outcome))?,
            message: self.message,
        })
    }
}

#[cfg(any(feature = "rabbitmq", test))]
pub(super) fn read_runs(runs: Vec<RunText>) -> Result<Vec<Run>, Damage> {
    runs.into_iter().map(RunText::read).collect()
}

fn written(occurrence: Occurrence) -> String {
    match occurrence {
        Occurrence::Planned(at) => format!("planned:{}", at.0),
        Occurrence::Manual(seq) => format!("manual:{seq}"),
    }
}

fn occurrence(text: &str) -> Result<Occurrence, Damage> {
    let read = match text.split_once(':') {
        Some(("planned", at)) => at.parse().ok().map(|at| Occurrence::Planned(Millis(at))),
        Some(("manual", seq)) => seq.parse().ok().map(Occurrence::Manual),
        Some(_) | None => None,
    };
    read.ok_or_else(|| wrong("occurrence", text))
}

fn wrong(what: &str, text: &str) -> Damage {
    let shown: String = text.chars().take(60).collect();
    format!("{shown:?} is no {what}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::protocol::{JobName, JobSpec, Registered, StoreNow, register};

    /// A new record.
    pub(in super::super) fn record() -> Record {
        let spec = JobSpec {
            job: JobName::new("job").unwrap(),
            schedule: Fingerprint(u128::MAX - 1),
            by: InstanceId::new("a").unwrap(),
            replace: None,
            next: None,
        };
        match register(None, &spec, StoreNow(1_700_000_000_000_000)).answer {
            Registered::Created(record) => record,
            other => unreachable!("{other:?}"),
        }
    }

    /// A closed run whose message takes room.
    pub(in super::super) fn run(token: u64) -> Run {
        Run {
            occurrence: Occurrence::Manual(token),
            attempt: u32::MAX,
            token: Token(token),
            holder: InstanceId::new("b").unwrap(),
            started: Millis(i64::MIN),
            ended: Millis(i64::MAX),
            outcome: RunOutcome::Failed,
            message: Some("€ \"\\\u{0}\n".repeat(250)),
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Text {
        record: RecordText,
        runs: Vec<RunText>,
    }

    fn text(record: &Record, run: &Run) -> Vec<u8> {
        encode(&Text { record: RecordText::of(record), runs: vec![RunText::of(run)] })
    }

    fn read(bytes: &[u8]) -> Result<(Record, Vec<Run>), Damage> {
        let text: Text = decode(bytes)?;
        Ok((text.record.read()?, read_runs(text.runs)?))
    }

    #[test]
    fn what_is_written_is_read_again() {
        let full = Record {
            occurrence: Occurrence::Planned(Millis(i64::MIN)),
            cancel: Some(Token(u64::MAX)),
            next: Some(Millis(-1)),
            nonce: Nonce { instance: u64::MAX, seq: 1 },
            paused: true,
            status: Status::Waiting,
            ..record()
        };
        for record in [record(), full] {
            assert_eq!(read(&text(&record, &run(u64::MAX))), Ok((record, vec![run(u64::MAX)])));
        }
    }

    #[test]
    fn the_newest_twenty_runs_are_kept() {
        let runs = (1..=25).fold(Vec::new(), |runs, token| with_closed(Some(run(token)), &runs));
        let tokens: Vec<_> = with_closed(None, &runs).iter().map(|run| run.token.0).collect();
        assert_eq!(tokens, (6..=25).rev().collect::<Vec<_>>());
    }

    #[test]
    fn what_somebody_else_wrote_is_damage_and_says_where() {
        let good = String::from_utf8(text(&record(), &run(1))).unwrap();
        for (from, to, told) in [
            ("\"form\":1", "\"form\":2", "was written by a newer anarchon: its form is 2"),
            ("\"form\":1", "\"form\":0", "its form is 0, and this program reads 1"),
            ("\"status\":\"idle\"", "\"status\":\"napping\"", "\"napping\" is no status"),
            ("\"outcome\":\"failed\"", "\"outcome\":\"\"", "\"\" is no outcome"),
            ("manual:1", "manual:-1", "is no occurrence"),
            ("\"holder\":\"a\"", "\"holder\":\"\"", "is not a valid name"),
            ("\"attempt\":0", "\"attempt\":-1", "invalid value"),
            ("{", "", "invalid type"),
        ] {
            assert!(good.contains(from), "{from}");
            let damage = read(good.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert!(damage.contains(told), "{to}: {damage}");
        }
        let huge = good.replacen("\"attempt\":0", &format!("\"attempt\":\"{}\"", "x".repeat(1_000_000)), 1);
        assert!(read(huge.as_bytes()).unwrap_err().len() <= 200);
        for text in ["", "null", "[]", "hello"] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
