//! What the bucket keeps under the key of a job: a line with the record, and one for each of its newest runs.
//!
//! Every instance reads every record whenever it changes; the runs are read only when somebody asks for them.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::protocol::{
    Fingerprint, InstanceId, Millis, Nonce, Occurrence, Record, Run, RunOutcome, Status, Token,
};

/// How many runs of a job are kept.
pub(super) const HISTORY: u8 = 20;

/// The form of the values; another one was written by another version of this program.
const FORM: u8 = 1;

/// Why a value cannot be read.
pub(super) type Damage = String;

/// A record, with what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) record: Record,
    /// Newest first, as they are written.
    runs: Vec<Arc<str>>,
    /// How long the lease of the running attempt is: others time it on their own clocks.
    pub(super) lease: Duration,
    /// Set by an award or a renewal: stored by the server later than this, it is void, as nobody trusts it any more.
    pub(super) void_after: Option<Millis>,
    /// Names the write that made it what it is, so that the writer knows it again when the reply was lost.
    pub(super) write: u64,
}

/// A lease that a write begins or makes longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) lease: Duration,
    pub(super) void_after: Millis,
}

impl Kept {
    /// What follows `before` when `record` takes its place.
    pub(super) fn following(
        before: Option<&Self>,
        record: Record,
        closed: Option<&Run>,
        granted: Option<Granted>,
        write: u64,
    ) -> Self {
        let mut runs: Vec<Arc<str>> = closed.map(RunText::line).into_iter().collect();
        runs.extend(before.iter().flat_map(|before| before.runs.iter().cloned()));
        runs.truncate(usize::from(HISTORY));
        let lease = granted.map(|granted| granted.lease).or(before.map(|before| before.lease));
        let void_after = granted.map(|granted| granted.void_after);
        Self { record, runs, lease: lease.unwrap_or_default(), void_after, write }
    }

    /// A record without any runs.
    #[cfg(test)]
    pub(super) fn bare(record: Record, lease: Duration) -> Self {
        Self { record, runs: Vec::new(), lease, void_after: None, write: 1 }
    }

    /// At most `room` bytes, where the record alone fits in: the oldest runs are left out.
    pub(super) fn encode(&self, room: usize) -> Vec<u8> {
        let mut text = serde_json::to_vec(&Text::of(self)).unwrap_or_default();
        for run in &self.runs {
            if text.len() + 1 + run.len() > room {
                break;
            }
            text.push(b'\n');
            text.extend(run.as_bytes());
        }
        text
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let all = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let mut lines = all.lines();
        let first = lines.next().unwrap_or_default();
        let form: Form = serde_json::from_str(first).map_err(|error| error.to_string())?;
        if form.form != FORM {
            return Err(format!("its form is {}, and this version of anarchon reads {FORM}", form.form));
        }
        let text: Text = serde_json::from_str(first).map_err(|error| error.to_string())?;
        text.read(lines.take(usize::from(HISTORY)).map(Into::into).collect())
    }

    /// Up to so many of the newest runs, newest first.
    pub(super) fn history(&self, most: u8) -> Vec<Run> {
        let readable = |line: &Arc<str>| match RunText::read(line) {
            Ok(run) => Some(run),
            // A lost line of history is no reason to withhold the record.
            Err(damage) => {
                tracing::warn!(damage, "skipped a damaged run in the history");
                None
            }
        };
        self.runs.iter().take(most.into()).filter_map(readable).collect()
    }
}

#[derive(Deserialize)]
struct Form {
    form: u8,
}

#[derive(Serialize, Deserialize)]
struct Text {
    form: u8,
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
    runs_closed: u64,
    lease_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    void_after: Option<i64>,
    write: u64,
}

#[derive(Serialize, Deserialize)]
struct RunText {
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

impl Text {
    fn of(kept: &Kept) -> Self {
        let record = &kept.record;
        Self {
            form: FORM,
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
            runs_closed: record.runs,
            lease_us: u64::try_from(kept.lease.as_micros()).unwrap_or(u64::MAX),
            void_after: kept.void_after.map(|at| at.0),
            write: kept.write,
        }
    }

    fn read(self, runs: Vec<Arc<str>>) -> Result<Kept, Damage> {
        let record = Record {
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
            runs: self.runs_closed,
        };
        Ok(Kept {
            record,
            runs,
            lease: Duration::from_micros(self.lease_us),
            void_after: self.void_after.map(Millis),
            write: self.write,
        })
    }
}

impl RunText {
    fn line(run: &Run) -> Arc<str> {
        let text = Self {
            occurrence: written(run.occurrence),
            attempt: run.attempt,
            token: run.token.0,
            holder: run.holder.to_string(),
            started: run.started.0,
            ended: run.ended.0,
            outcome: run.outcome.as_str().to_owned(),
            message: run.message.clone(),
        };
        serde_json::to_string(&text).unwrap_or_default().into()
    }

    fn read(line: &str) -> Result<Run, Damage> {
        let text: Self = serde_json::from_str(line).map_err(|error| error.to_string())?;
        text.run()
    }

    fn run(self) -> Result<Run, Damage> {
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

    pub(in super::super) fn record() -> Record {
        let spec = JobSpec {
            job: JobName::new("job").unwrap(),
            schedule: Fingerprint(7),
            by: InstanceId::new("a").unwrap(),
            replace: None,
        };
        match register(None, &spec, StoreNow(1_700_000_000_000_000)).answer {
            Registered::Created(record) => record,
            other => unreachable!("{other:?}"),
        }
    }

    fn run(n: u64) -> Run {
        Run {
            occurrence: Occurrence::Manual(n),
            attempt: 1,
            token: Token(n),
            holder: InstanceId::new("a").unwrap(),
            started: Millis(1),
            ended: Millis(2),
            outcome: RunOutcome::Failed,
            message: Some("€\"\\\n".repeat(250)),
        }
    }

    fn with_runs(count: u64) -> Kept {
        (1..=count).fold(Kept::following(None, record(), None, None, 0), |before, n| {
            let granted = Granted { lease: Duration::from_secs(30), void_after: Millis(5) };
            Kept::following(Some(&before), record(), Some(&run(n)), Some(granted), n)
        })
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut kept = with_runs(3);
        kept.record.cancel = Some(Token(u64::MAX));
        kept.record.nonce = Nonce { instance: u64::MAX, seq: 1 };
        assert_eq!(Kept::decode(&kept.encode(usize::MAX)), Ok(kept));
    }

    #[test]
    fn only_what_grants_a_lease_can_be_void() {
        let granted = with_runs(1);
        assert_eq!(granted.void_after, Some(Millis(5)));
        let after = Kept::following(Some(&granted), record(), None, None, 2);
        assert_eq!((after.lease, after.void_after), (granted.lease, None));
    }

    #[test]
    fn the_newest_twenty_runs_are_kept_and_fewer_where_there_is_no_room() {
        let kept = with_runs(25);
        let tokens = |kept: &Kept| kept.history(255).iter().map(|run| run.token.0).collect::<Vec<_>>();
        assert_eq!(tokens(&kept), (6..=25).rev().collect::<Vec<_>>());
        let whole = kept.encode(usize::MAX).len();
        let short = kept.encode(whole - 1);
        assert!(short.len() < whole);
        assert_eq!(tokens(&Kept::decode(&short).unwrap()), (7..=25).rev().collect::<Vec<_>>());
        assert_eq!(tokens(&Kept::decode(&kept.encode(0)).unwrap()), Vec::<u64>::new());
        assert_eq!(kept.history(3), [run(25), run(24), run(23)]);
    }

    #[test]
    fn what_somebody_else_wrote_is_damage_and_says_where() {
        let good = String::from_utf8(with_runs(1).encode(usize::MAX)).unwrap();
        for (from, to, told) in [
            ("\"form\":1", "\"form\":2", "its form is 2"),
            ("\"status\":\"idle\"", "\"status\":\"napping\"", "\"napping\" is no status"),
            ("planned:", "planed:", "is no occurrence"),
            ("\"holder\":\"a\"", "\"holder\":\"\"", "is not a valid name"),
            ("\"attempt\":0", "\"attempt\":-1", "invalid value"),
            ("{", "", "invalid type"),
        ] {
            assert!(good.contains(from), "{from}");
            let damage = Kept::decode(good.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert!(damage.contains(told), "{to}: {damage}");
        }
        assert!(Kept::decode(b"").is_err() && Kept::decode(b"null").is_err());
        for (from, to) in [("\"failed\"", "\"\""), ("manual:1", "manual:-1"), ("{\"occurrence\"", "")] {
            let start = good.find('\n').unwrap();
            let damaged = format!("{}{}", &good[..start], good[start..].replacen(from, to, 1));
            assert_ne!(damaged, good, "{from}");
            assert_eq!(Kept::decode(damaged.as_bytes()).unwrap().history(20), [], "{to}");
        }
    }
}
