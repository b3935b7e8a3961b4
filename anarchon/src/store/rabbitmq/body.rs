//! The token's body: the record of a job with its newest runs.

use serde::{Deserialize, Serialize};

use crate::{
    protocol::{Record, Run},
    store::{
        Snapshot,
        json::{self, Damage, RecordText, RunText},
    },
};

pub(super) use crate::store::json::HISTORY;

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// Drawn when the job was made: a token of before a `forget` is another one.
    pub birth: u64,
    pub record: Record,
    /// Newest first.
    history: Vec<Run>,
}

impl Body {
    pub fn new(birth: u64, record: Record) -> Self {
        Self { birth, record, history: Vec::new() }
    }

    /// The same job after a write.
    pub fn with(&self, record: Record, closed: Option<Run>) -> Self {
        Self { birth: self.birth, record, history: json::with_closed(closed, &self.history) }
    }

    pub fn snapshot(&self, history: u8) -> Snapshot {
        let history = self.history.iter().take(usize::from(history)).cloned().collect();
        Snapshot { record: self.record.clone(), history }
    }

    pub fn encode(&self) -> Vec<u8> {
        json::encode(&Text {
            birth: self.birth,
            record: RecordText::of(&self.record),
            runs: self.history.iter().map(RunText::of).collect(),
        })
    }

    /// Reads [`encode`](Self::encode), or says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let text: Text = json::decode(bytes)?;
        Ok(Self { birth: text.birth, record: text.record.read()?, history: json::read_runs(text.runs)? })
    }
}

#[derive(Serialize, Deserialize)]
struct Text {
    birth: u64,
    record: RecordText,
    runs: Vec<RunText>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        json::tests::{record, run},
        tests::{PIECES, fuzzing::play, is_answered, is_one_clear_line},
    };

    #[test]
    fn what_is_read_is_what_was_written() {
        let body = Body::new(u64::MAX, record()).with(record(), Some(run(1)));
        assert_eq!(Body::decode(&body.encode()), Ok(body));
    }

    #[test]
    fn as_many_runs_are_told_as_are_asked_for() {
        let body = (0..5).fold(Body::new(1, record()), |body, n| body.with(record(), Some(run(n))));
        for asked in [0, 2, 5, u8::MAX] {
            assert_eq!(body.snapshot(asked).history.len(), usize::from(asked.min(5)));
        }
    }

    #[test]
    fn mutations_of_a_token_are_a_record_or_a_clear_damage() {
        let body = |runs| (0..runs).fold(Body::new(1, record()), |body, n| body.with(record(), Some(run(n))));
        let texts = [0, 1, 3].map(|runs| body(runs).encode());
        play(
            20_000,
            |random| random.bytes(&texts, &PIECES),
            |bytes| match Body::decode(&bytes.0) {
                Ok(body) => {
                    is_answered(&body.record);
                    assert_eq!(Body::decode(&body.encode()), Ok(body));
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
