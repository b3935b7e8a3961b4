//! Rows as records and runs.

use sqlx::{Row as _, postgres::PgRow};

use crate::{
    protocol::{Fingerprint, InstanceId, Millis, Nonce, Record, Run, RunOutcome, Status, Token},
    store::columns::{Columns, Damage},
};

/// 128 bits, which the server writes with dashes.
fn bits<T>(
    columns: &mut Columns<'_, PgRow>,
    what: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, Damage> {
    columns.word(what, |text| parse(&text.replace('-', "")))
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
        nonce: bits(&mut columns, "nonce", Nonce::parse)?,
        paused: columns.take()?,
        cancel: columns
            .take::<Option<i64>>()?
            .map(|n| u64::try_from(n).map(Token).map_err(|_| format!("cancel is {n}")))
            .transpose()?,
        manual_asked: columns.number("manual_asked")?,
        manual_done: columns.number("manual_done")?,
        schedule: bits(&mut columns, "schedule", Fingerprint::parse)?,
        next: None,
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
