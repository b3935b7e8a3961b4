//! What the scripts answer.

use redis::Value;

use crate::{
    protocol::{
        Fingerprint, InstanceId, Millis, Nonce, Occurrence, Record, Run, RunOutcome, Status, StoreNow, Token,
    },
    store::{Stamped, StoreError},
};

/// What a call of a script answers: the server's time, and what became of each item.
#[derive(Debug)]
pub(super) struct Replies {
    now: StoreNow,
    items: Vec<Value>,
}

/// What became of an item: a word, and texts. A record is one of them, its form and its fields joined by blanks.
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

impl Replies {
    /// Of a call with so many items.
    pub(super) fn read(value: Value, items: usize) -> Result<Self, Damage> {
        let Value::Array(mut values) = value else { return Err(format!("{} is not a list", shown(&value))) };
        if values.len() != items + 1 {
            return Err(format!("{} parts for {items} items", values.len()));
        }
        let now = StoreNow(number(&text(values.remove(0))?)?);
        Ok(Self { now, items: values })
    }

    /// Each of them.
    pub(super) fn into_items(self, replicas: Option<u64>) -> impl Iterator<Item = Result<Reply, Damage>> {
        self.items.into_iter().map(move |item| Reply::read(item, self.now, replicas))
    }
}

impl Reply {
    fn read(value: Value, now: StoreNow, replicas: Option<u64>) -> Result<Self, Damage> {
        let Value::Array(items) = value else { return Err(format!("{} is not a list", shown(&value))) };
        let mut texts = items.into_iter().map(text);
        let word = texts.next().unwrap_or_else(|| Err("it is too short".to_owned()))?;
        Ok(Self { now, word, rest: texts.collect::<Result<_, _>>()?, replicas })
    }

    pub(super) fn stamp<T>(&self, value: T) -> Stamped<T> {
        Stamped { value, now: self.now }
    }

    /// The record that the reply holds.
    pub(super) fn record(&self) -> Result<Record, Damage> {
        let kept = self.rest.first().ok_or_else(|| "no record".to_owned())?;
        let fields: Vec<&str> = kept.splitn(FIELDS + 1, ' ').collect();
        let [
            "1",
            schedule,
            nonce,
            decided,
            of,
            status,
            attempt,
            crashes,
            errors,
            started,
            until,
            token,
            by,
            paused,
            cancel,
            asked,
            done,
            runs,
        ] = fields[..]
        else {
            return Err(format!("a record of {} fields", kept.split(' ').count()));
        };
        Ok(Record {
            decided: Millis(number(decided)?),
            occurrence: occurrence(of)?,
            status: Status::parse(status).ok_or_else(|| wrong("status", status))?,
            attempt: number(attempt)?,
            crashes: number(crashes)?,
            errors: number(errors)?,
            started: Millis(number(started)?),
            until: Millis(number(until)?),
            token: Token(number(token)?),
            holder: holder(by)?,
            nonce: Nonce::parse(nonce).ok_or_else(|| wrong("nonce", nonce))?,
            paused: match paused {
                "0" => false,
                "1" => true,
                _ => return Err(wrong("paused", paused)),
            },
            cancel: match cancel {
                "" => None,
                token => Some(Token(number(token)?)),
            },
            manual_asked: number(asked)?,
            manual_done: number(done)?,
            schedule: Fingerprint::parse(schedule).ok_or_else(|| wrong("schedule", schedule))?,
            next: None,
            runs: number(runs)?,
        })
    }

    /// The runs behind the record.
    pub(super) fn runs(&self) -> impl Iterator<Item = Result<Run, Damage>> {
        self.rest.iter().skip(1).map(|text| run(text))
    }
}

/// How many fields a record has, its form among them.
const FIELDS: usize = 18;

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

/// Of digits alone, and not beyond what the scripts can count.
fn number<T: TryFrom<i64>>(text: &str) -> Result<T, Damage> {
    let whole =
        text.parse().ok().filter(|whole: &i64| whole.unsigned_abs() < 1 << 53 && !text.starts_with('+'));
    whole.and_then(|whole| T::try_from(whole).ok()).ok_or_else(|| wrong("number", text))
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
        "1 0123456789abcdef0123456789abcdef 00000000000000010000000000000002 1700000000000 planned:1700000000000 running 1 0 0 \
         1700000000000 1700000030000 1700000000000000 a 0 1700000000000000 2 1 2",
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

    /// As the server sends it: the time, and the list of the one item.
    fn read(value: Value) -> Result<Reply, Damage> {
        let whole = match value {
            Value::Array(mut items) if !items.is_empty() => {
                let now = items.remove(0);
                Value::Array(vec![now, Value::Array(items)])
            }
            other => other,
        };
        let mut items = Replies::read(whole, 1)?.into_items(None);
        items.next().expect("there is one")
    }

    #[test]
    fn a_value_of_any_size_is_told_in_one_short_line() {
        let huge = || Value::SimpleString("x".repeat(1_000_000));
        let now = || Value::SimpleString("1700000000000000".to_owned());
        let list = |items: Vec<Value>| read(Value::Array(items));
        let one = |text: &str| Value::SimpleString(text.to_owned());
        let place = list(vec![now(), one("members"), one("0"), one("0"), huge()]).unwrap();
        let instance = list(vec![now(), one("members"), one("0"), one("1"), huge(), one("")]).unwrap();
        for damage in [
            read(huge()).unwrap_err(),
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
        let reply = read(whole).unwrap();
        assert_eq!((reply.record().unwrap().runs, reply.runs().filter_map(Result::ok).count()), (2, 2));
        play(20_000, damaged, |value| {
            let reply = match read(value.clone()) {
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
