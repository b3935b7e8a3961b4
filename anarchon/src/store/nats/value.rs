//! What the bucket keeps under the key of a job: a line with the record, and a line for each of its newest runs.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    protocol::{Millis, Record, Run},
    store::json::{self, RecordText, RunText},
};

pub(super) use crate::store::json::{Damage, HISTORY};

/// A record, with what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub record: Record,
    /// Newest first, as they were written: most who read a record do not ask for them.
    runs: Vec<Arc<str>>,
    /// How long the lease of the running attempt is: others time it on their own clocks.
    pub lease: Duration,
    /// Set by an award or a renewal, and by what is written on top of a lease that is over: stored by the server later than
    /// this, the lease is void, as nobody trusts it any more.
    pub void_after: Option<Millis>,
    /// Names the write that made it what it is, so that the writer knows it again when the reply was lost.
    pub write: u64,
}

/// What a write says of a lease: mostly that it begins or becomes longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    pub lease: Duration,
    pub void_after: Millis,
}

impl Kept {
    /// What follows `before` when `record` takes its place.
    pub fn following(
        before: Option<&Self>,
        record: Record,
        closed: Option<&Run>,
        granted: Option<Granted>,
        write: u64,
    ) -> Self {
        let closed = closed.map(|run| serde_json::to_string(&RunText::of(run)).unwrap_or_default().into());
        let runs = json::with_closed(closed, before.iter().flat_map(|before| &before.runs));
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
    pub fn encode(&self, room: usize) -> Vec<u8> {
        let mut text = json::encode(&Text::of(self));
        for run in &self.runs {
            if text.len() + 1 + run.len() > room {
                break;
            }
            text.push(b'\n');
            text.extend(run.as_bytes());
        }
        text
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let all = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let mut lines = all.lines();
        let text: Text = json::decode(lines.next().unwrap_or_default().as_bytes())?;
        Ok(Self {
            record: text.record.read()?,
            runs: lines.take(usize::from(HISTORY)).map(Into::into).collect(),
            lease: Duration::from_micros(text.lease_us),
            void_after: text.void_after.map(Millis),
            write: text.write,
        })
    }

    /// Up to so many of the newest runs, newest first.
    pub fn history(&self, most: u8) -> Vec<Run> {
        let readable = |line: &Arc<str>| {
            let run: Result<RunText, Damage> = json::read_json(line.as_bytes());
            match run.and_then(RunText::read) {
                Ok(run) => Some(run),
                // A lost line of history is no reason to withhold the record.
                Err(damage) => {
                    tracing::warn!(damage, "skipped a damaged run in the history");
                    None
                }
            }
        };
        self.runs.iter().take(most.into()).filter_map(readable).collect()
    }
}

#[derive(Serialize, Deserialize)]
struct Text {
    record: RecordText,
    lease_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    void_after: Option<i64>,
    write: u64,
}

impl Text {
    fn of(kept: &Kept) -> Self {
        Self {
            record: RecordText::of(&kept.record),
            lease_us: u64::try_from(kept.lease.as_micros()).unwrap_or(u64::MAX),
            void_after: kept.void_after.map(|at| at.0),
            write: kept.write,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        json::tests::{record, run},
        tests::{PIECES, fuzzing::play, is_answered, is_one_clear_line},
    };

    fn with_runs(count: u64) -> Kept {
        (1..=count).fold(Kept::following(None, record(), None, None, 0), |before, n| {
            let granted = Granted { lease: Duration::from_secs(30), void_after: Millis(5) };
            Kept::following(Some(&before), record(), Some(&run(n)), Some(granted), n)
        })
    }

    #[test]
    fn what_is_written_is_read_again() {
        let kept = with_runs(3);
        assert_eq!((kept.lease, kept.write), (Duration::from_secs(30), 3));
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
    fn damage_of_the_record_is_told_and_a_damaged_run_is_left_out() {
        let good = String::from_utf8(with_runs(1).encode(usize::MAX)).unwrap();
        let (first, line) = good.split_once('\n').unwrap();
        assert!(Kept::decode(first.replacen("\"idle\"", "\"napping\"", 1).as_bytes()).is_err());
        for (from, to) in [("\"failed\"", "\"\""), ("manual:1", "manual:-1"), ("{\"occurrence\"", "")] {
            assert!(line.contains(from), "{from}");
            let damaged = format!("{first}\n{}", line.replacen(from, to, 1));
            assert_eq!(Kept::decode(damaged.as_bytes()).unwrap().history(20), [], "{to}");
        }
    }

    #[test]
    fn mutations_of_what_is_kept_are_a_record_or_a_clear_damage() {
        let texts = [0, 1, 3].map(|runs| with_runs(runs).encode(usize::MAX));
        play(
            20_000,
            |random| random.bytes(&texts, &PIECES),
            |bytes| match Kept::decode(&bytes.0) {
                Ok(kept) => {
                    is_answered(&kept.record);
                    assert!(kept.history(u8::MAX).len() <= usize::from(HISTORY));
                    // A record is written again without its oldest runs, and says the same.
                    let again = Kept::decode(&kept.encode(0)).unwrap();
                    assert_eq!((again.record, again.lease), (kept.record, kept.lease));
                    true
                }
                Err(damage) => {
                    assert!(is_one_clear_line(&damage), "{damage}");
                    false
                }
            },
        );
    }
}
