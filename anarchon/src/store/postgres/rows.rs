//! Rows as records and runs.

use sqlx::{Decode, Postgres, Row as _, Type, postgres::PgRow};

use crate::protocol::{
    Fingerprint, InstanceId, Millis, Nonce, Occurrence, Record, Run, RunOutcome, Status, Token,
};

/// What is wrong with a row that somebody else wrote.
pub(super) type Damage = String;

/// Reads the columns of a row in order, and says which one does not hold what it should.
struct Columns<'r> {
    row: &'r PgRow,
    next: usize,
}

impl<'r> Columns<'r> {
    fn of(row: &'r PgRow, first: usize) -> Self {
        Self { row, next: first }
    }
    fn take<T: Decode<'r, Postgres> + Type<Postgres>>(&mut self) -> Result<T, Damage> {
        let column = self.next;
        self.next += 1;
        self.row.try_get(column).map_err(|e| e.to_string())
    }
    fn number<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T, Damage> {
        let n: i64 = self.take()?;
        T::try_from(n).map_err(|_| format!("{what} is {n}"))
    }
    fn word<T>(&mut self, what: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, Damage> {
        let word: &str = self.take()?;
        parse(word).ok_or_else(|| format!("{what} is {:?}", word.chars().take(60).collect::<String>()))
    }
    /// 128 bits, which the server writes with dashes.
    fn bits<T>(&mut self, what: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, Damage> {
        self.word(what, |text| parse(&text.replace('-', "")))
    }
    fn occurrence(&mut self) -> Result<Occurrence, Damage> {
        let planned = self.word("kind", |word| match word {
            "planned" => Some(true),
            "manual" => Some(false),
            _ => None,
        })?;
        let n: i64 = self.take()?;
        if planned {
            return Ok(Occurrence::Planned(Millis(n)));
        }
        u64::try_from(n).map(Occurrence::Manual).map_err(|_| format!("occurrence is {n}"))
    }
}

/// A number of 4 or 8 bytes.
pub(super) fn number<T: TryFrom<i64>>(row: &PgRow, column: usize) -> Result<T, Damage> {
    let read: Result<i64, _> = row.try_get(column);
    let n = match read {
        Ok(n) => n,
        Err(_) => row.try_get::<i32, _>(column).map_err(|e| e.to_string())?.into(),
    };
    T::try_from(n).map_err(|_| format!("column {column} is {n}"))
}

pub(super) fn text(row: &PgRow, column: usize) -> Result<String, Damage> {
    row.try_get(column).map_err(|e| e.to_string())
}

pub(super) fn flag(row: &PgRow, column: usize) -> Result<bool, Damage> {
    row.try_get(column).map_err(|e| e.to_string())
}

/// The record in a row, if there is one.
pub(super) fn record(row: &PgRow, first: usize) -> Result<Option<Record>, Damage> {
    let mut columns = Columns::of(row, first);
    if columns.take::<Option<&str>>()?.is_none() {
        return Ok(None);
    }
    let decided = Millis(columns.take()?);
    let occurrence = columns.occurrence()?;
    Ok(Some(Record {
        decided,
        occurrence,
        status: columns.word("status", Status::parse)?,
        attempt: columns.number("attempt")?,
        crashes: columns.number("crashes")?,
        errors: columns.number("errors")?,
        started: Millis(columns.take()?),
        until: Millis(columns.take()?),
        token: Token(columns.number("token")?),
        holder: columns.word("holder", |text| InstanceId::new(text).ok())?,
        nonce: columns.bits("nonce", Nonce::parse)?,
        paused: columns.take()?,
        cancel: columns
            .take::<Option<i64>>()?
            .map(|n| u64::try_from(n).map(Token).map_err(|_| format!("cancel is {n}")))
            .transpose()?,
        manual_asked: columns.number("manual_asked")?,
        manual_done: columns.number("manual_done")?,
        schedule: columns.bits("schedule", Fingerprint::parse)?,
        runs: columns.number("runs")?,
    }))
}

/// The run in a row of `inspect.sql`, if there is one.
pub(super) fn run(row: &PgRow, first: usize) -> Result<Option<Run>, Damage> {
    let mut columns = Columns::of(row, first);
    if columns.take::<Option<i64>>()?.is_none() {
        return Ok(None);
    }
    Ok(Some(Run {
        occurrence: columns.occurrence()?,
        attempt: columns.number("attempt")?,
        token: Token(columns.number("token")?),
        holder: columns.word("holder", |text| InstanceId::new(text).ok())?,
        started: Millis(columns.take()?),
        ended: Millis(columns.take()?),
        outcome: columns.word("outcome", RunOutcome::parse)?,
        message: columns.take()?,
    }))
}
