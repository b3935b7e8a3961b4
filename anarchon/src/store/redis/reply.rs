//! What the scripts answer.

use redis::Value;

use crate::{
    protocol::{
        Fingerprint, InstanceId, Millis, Nonce, Occurrence, Record, Run, RunOutcome, Status, StoreNow, Token,
    },
    store::{Stamped, StoreError},
};

/// A list of texts that begins with the server's time and a word. A record is one of them, its fields joined by blanks.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) now: StoreNow,
    pub(super) word: String,
    pub(super) rest: Vec<String>,
    /// How many replicas have what the call wrote, where that was asked for.
    pub(super) replicas: Option<u64>,
}

/// Why a reply cannot be read.
pub(super) type Damage = String;

impl Reply {
    pub(super) fn read(value: Value) -> Result<Self, Damage> {
        let Value::Array(items) = value else { return Err(format!("{} is not a list", shown(&value))) };
        let mut texts = items.into_iter().map(text);
        let mut next = || texts.next().unwrap_or_else(|| Err("it is too short".to_owned()));
        let (now, word) = (StoreNow(number(&next()?)?), next()?);
        Ok(Self { now, word, rest: texts.collect::<Result<_, _>>()?, replicas: None })
    }

    pub(super) fn stamp<T>(&self, value: T) -> Stamped<T> {
        Stamped { value, now: self.now }
    }

    /// The record that the reply holds.
    pub(super) fn record(&self) -> Result<Record, Damage> {
        let row = self.rest.first().ok_or_else(|| "no record".to_owned())?;
        let fields: Vec<&str> = row.splitn(FIELDS + 1, ' ').collect();
        if fields.len() != FIELDS {
            return Err(format!("a record of {} fields", row.split(' ').count()));
        }
        let field = |i: usize| fields[i];
        Ok(Record {
            decided: Millis(number(field(0))?),
            occurrence: occurrence(field(1))?,
            status: Status::parse(field(2)).ok_or_else(|| wrong("status", field(2)))?,
            attempt: number(field(3))?,
            crashes: number(field(4))?,
            errors: number(field(5))?,
            started: Millis(number(field(6))?),
            until: Millis(number(field(7))?),
            token: Token(number(field(8))?),
            holder: holder(field(9))?,
            nonce: Nonce::parse(field(10)).ok_or_else(|| wrong("nonce", field(10)))?,
            paused: field(11) == "1",
            cancel: match field(12) {
                "" => None,
                token => Some(Token(number(token)?)),
            },
            manual_asked: number(field(13))?,
            manual_done: number(field(14))?,
            schedule: Fingerprint::parse(field(15)).ok_or_else(|| wrong("schedule", field(15)))?,
            next: None,
            runs: number(field(16))?,
        })
    }

    /// The runs behind the record.
    pub(super) fn runs(&self) -> impl Iterator<Item = Result<Run, Damage>> {
        self.rest.iter().skip(1).map(|text| run(text))
    }
}

/// How many fields a record has.
const FIELDS: usize = 17;

fn text(value: Value) -> Result<String, Damage> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) => Ok(text),
        other => Err(format!("{} is not a text", shown(&other))),
    }
}

/// The beginning of what may be large.
fn shown(value: &Value) -> String {
    format!("{value:?}").chars().take(60).collect()
}

fn run(text: &str) -> Result<Run, Damage> {
    let parts: Vec<&str> = text.splitn(8, ' ').collect();
    let [of, attempt, token, by, started, ended, outcome, message] = parts[..] else {
        return Err(format!("{} words", parts.len()));
    };
    Ok(Run {
        occurrence: occurrence(of)?,
        attempt: number(attempt)?,
        token: Token(number(token)?),
        holder: holder(by)?,
        started: Millis(number(started)?),
        ended: Millis(number(ended)?),
        outcome: RunOutcome::parse(outcome).ok_or_else(|| wrong("outcome", outcome))?,
        message: message.strip_prefix('+').map(str::to_owned),
    })
}

fn occurrence(text: &str) -> Result<Occurrence, Damage> {
    match text.split_once(':') {
        Some(("planned", at)) => Ok(Occurrence::Planned(Millis(number(at)?))),
        Some(("manual", seq)) => Ok(Occurrence::Manual(number(seq)?)),
        Some(_) | None => Err(wrong("occurrence", text)),
    }
}

fn holder(text: &str) -> Result<InstanceId, Damage> {
    InstanceId::new(text).map_err(|error| error.to_string())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Damage> {
    text.parse().map_err(|_| wrong("number", text))
}

fn wrong(what: &str, text: &str) -> Damage {
    let shown: String = text.chars().take(60).collect();
    format!("{shown:?} is no {what}")
}

/// A reply that no script of ours gives: another program answers, or another version of this one.
pub(super) fn foreign(server: &str, damage: &str) -> StoreError {
    StoreError::unknown(format_args!(
        "{server} answered what anarchon does not understand ({damage}); look for a proxy that changes replies"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{
        PIECES,
        fuzzing::{Random, play},
        is_answered, is_one_clear_line,
    };

    /// A record that runs, and two of its runs.
    const REPLY: [&str; 5] = [
        "1700000000000000",
        "record",
        "1700000000000 planned:1700000000000 running 1 0 0 1700000000000 1700000030000 1700000000000000 a \
         00000000000000010000000000000002 0 1700000000000000 2 1 0123456789abcdef0123456789abcdef 2",
        "planned:1600000000000 1 1600000000000000 a 1600000000000 1600000000001 succeeded -",
        "manual:1 4294967295 1600000000000002 b-1.c 1600000000000 1600000000001 failed +no route to host",
    ];

    fn damaged(random: &mut Random) -> Value {
        let texts = REPLY.map(|text| text.as_bytes().to_vec());
        let mut items: Vec<Value> = texts.iter().cloned().map(Value::BulkString).collect();
        if let Some(item) = items.get_mut(random.below(texts.len())) {
            *item = Value::BulkString(random.bytes(&texts, &PIECES).0);
        }
        if random.below(2) == 0 {
            return Value::Array(items);
        }
        let others = |random: &mut Random| {
            let other = match random.below(6) {
                0 => Value::Nil,
                1 => Value::Int(random.next() as i64),
                2 => Value::Array(vec![Value::Double(f64::NAN); random.below(100)]),
                3 => Value::VerbatimString { format: redis::VerbatimFormat::Text, text: "1".to_owned() },
                4 => Value::SimpleString((*random.pick(&PIECES)).to_owned()),
                _ => Value::BulkString(random.bytes(&texts, &PIECES).0),
            };
            vec![other]
        };
        match random.below(50) {
            0 => others(random).remove(0),
            _ => Value::Array(random.mutate(items, others, others)),
        }
    }

    #[test]
    fn a_value_of_any_size_is_told_in_one_short_line() {
        let huge = || Value::SimpleString("x".repeat(1_000_000));
        let now = || Value::SimpleString("1700000000000000".to_owned());
        let list = |items: Vec<Value>| Reply::read(Value::Array(items));
        let one = |text: &str| Value::SimpleString(text.to_owned());
        let place = list(vec![now(), one("members"), one("0"), one("0"), huge()]).unwrap();
        let instance = list(vec![now(), one("members"), one("0"), one("1"), huge(), one("")]).unwrap();
        for damage in [
            Reply::read(huge()).unwrap_err(),
            list(vec![huge()]).unwrap_err(),
            list(vec![now(), Value::Array(vec![huge()])]).unwrap_err(),
            super::super::members(&place, &[]).unwrap_err(),
            super::super::members(&instance, &[]).unwrap_err(),
        ] {
            assert!(is_one_clear_line(&damage), "{}", damage.len());
        }
    }

    #[test]
    fn mutations_of_a_reply_are_a_record_or_a_clear_damage() {
        let whole = Value::Array(REPLY.map(|text| Value::SimpleString(text.to_owned())).to_vec());
        let reply = Reply::read(whole).unwrap();
        assert_eq!((reply.record().unwrap().runs, reply.runs().filter_map(Result::ok).count()), (2, 2));
        play(20_000, damaged, |value| {
            let reply = match Reply::read(value.clone()) {
                Ok(reply) => reply,
                Err(damage) => {
                    assert!(is_one_clear_line(&damage), "{damage}");
                    return false;
                }
            };
            for damage in reply.runs().filter_map(Result::err).chain(super::super::members(&reply, &[]).err())
            {
                assert!(is_one_clear_line(&damage), "{damage}");
            }
            match reply.record() {
                Ok(record) => is_answered(&record),
                Err(damage) => assert!(is_one_clear_line(&damage), "{damage}"),
            }
            reply.record().is_ok()
        });
    }
}
