//! Records and runs as rows, and back.

use std::{fmt::Write as _, sync::LazyLock};

use sqlx::{SqliteConnection, sqlite::SqliteRow};

use super::HISTORY;
use crate::{
    clock::Mono,
    protocol::{
        Fingerprint, InstanceId, JobName, Millis, Nonce, Occurrence, Record, Run, RunOutcome, Status, Token,
    },
    store::{
        columns::{Columns, Damage},
        host_clock::Anchor,
    },
};

fn flag(columns: &mut Columns<'_, SqliteRow>, what: &str) -> Result<bool, Damage> {
    match columns.take()? {
        0_i64 => Ok(false),
        1 => Ok(true),
        other => Err(format!("{what} is {other}")),
    }
}

/// The anchor of the clock, from its three columns.
pub(super) fn anchor(row: &SqliteRow, first: usize) -> Result<Anchor, Damage> {
    let mut columns = Columns::of(row, first);
    Ok(Anchor { boot: columns.take()?, skew: columns.take()?, confirmed: Mono(columns.number("confirmed")?) })
}

/// One number, where nothing else than a number can be.
pub(super) fn number(row: &SqliteRow, column: usize) -> Result<i64, Damage> {
    Columns::of(row, column).take()
}

/// The record in a row of `read_jobs.sql`, if there is one.
pub(super) fn record(row: &SqliteRow, first: usize) -> Result<Option<Record>, Damage> {
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
        nonce: columns.word("nonce", Nonce::parse)?,
        paused: flag(&mut columns, "paused")?,
        cancel: columns
            .take::<Option<i64>>()?
            .map(|n| u64::try_from(n).map(Token).map_err(|_| format!("cancel is {n}")))
            .transpose()?,
        manual_asked: columns.number("manual_asked")?,
        manual_done: columns.number("manual_done")?,
        schedule: columns.word("schedule", Fingerprint::parse)?,
        next: None,
        runs: columns.number("runs")?,
    }))
}

/// The run in a row of `read_runs.sql`.
pub(super) fn run(row: &SqliteRow, first: usize) -> Result<(u64, Run), Damage> {
    let mut columns = Columns::of(row, first);
    let seq = columns.number("seq")?;
    Ok((
        seq,
        Run {
            occurrence: columns.occurrence()?,
            attempt: columns.number("attempt")?,
            token: Token(columns.number("token")?),
            holder: columns.word("holder", |text| InstanceId::new(text).ok())?,
            started: Millis(columns.take()?),
            ended: Millis(columns.take()?),
            outcome: columns.word("outcome", RunOutcome::parse)?,
            message: columns.take()?,
        },
    ))
}

/// Writes records, many with one statement.
pub(super) async fn put_records(
    connection: &mut SqliteConnection,
    namespace: &str,
    records: &[(&JobName, &Record)],
) -> Result<(), sqlx::Error> {
    for (statement, rows) in chunks(&PUT_JOBS, records) {
        let mut query = sqlx::query(statement);
        for (job, record) in rows {
            let (kind, occurrence) = split(record.occurrence);
            query = query
                .bind(namespace)
                .bind(job.as_str())
                .bind(record.decided.0)
                .bind(kind)
                .bind(occurrence)
                .bind(record.status.as_str())
                .bind(record.attempt)
                .bind(record.crashes)
                .bind(record.errors)
                .bind(record.started.0)
                .bind(record.until.0)
                .bind(signed(record.token.0))
                .bind(record.holder.as_str())
                .bind(record.nonce.to_string())
                .bind(record.paused)
                .bind(record.cancel.map(|token| signed(token.0)))
                .bind(signed(record.manual_asked))
                .bind(signed(record.manual_done))
                .bind(record.schedule.to_string())
                .bind(signed(record.runs));
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Writes closed runs into the rings of their jobs, many with one statement.
pub(super) async fn put_runs(
    connection: &mut SqliteConnection,
    namespace: &str,
    runs: &[(JobName, u64, Run)],
) -> Result<(), sqlx::Error> {
    for (statement, rows) in chunks(&PUT_RUNS, runs) {
        let mut query = sqlx::query(statement);
        for (job, seq, run) in rows {
            let (kind, occurrence) = split(run.occurrence);
            query = query
                .bind(namespace)
                .bind(job.as_str())
                .bind(signed(seq.saturating_sub(1) % u64::from(HISTORY)))
                .bind(signed(*seq))
                .bind(kind)
                .bind(occurrence)
                .bind(run.attempt)
                .bind(signed(run.token.0))
                .bind(run.holder.as_str())
                .bind(run.started.0)
                .bind(run.ended.0)
                .bind(run.outcome.as_str())
                .bind(run.message.as_deref().map(cut));
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// A JSON array of texts that need no escapes beyond a line break.
pub(super) fn json_array<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut json = String::from("[");
    for (i, text) in texts.enumerate() {
        let comma = if i == 0 { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(json, "{comma}\"{}\"", text.replace('\n', "\\n"));
    }
    json.push(']');
    json
}

fn split(occurrence: Occurrence) -> (&'static str, i64) {
    match occurrence {
        Occurrence::Planned(at) => ("planned", at.0),
        Occurrence::Manual(seq) => ("manual", signed(seq)),
    }
}

/// SQLite's integers are signed; no counter or token of ours gets near the edge.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Keeps the history of constant size whatever the caller hands in.
fn cut(message: &str) -> String {
    message.chars().take(1000).collect()
}

/// The same statement for 1, 16 and 128 rows: each is prepared once.
struct Statements(Vec<(usize, String)>);

static PUT_JOBS: LazyLock<Statements> = LazyLock::new(|| Statements::new(include_str!("put_jobs.sql"), 20));
static PUT_RUNS: LazyLock<Statements> = LazyLock::new(|| Statements::new(include_str!("put_runs.sql"), 13));

impl Statements {
    fn new(head: &str, columns: usize) -> Self {
        let row = format!("({})", vec!["?"; columns].join(", "));
        let text = |rows: usize| (rows, format!("{head}{}", vec![row.as_str(); rows].join(",\n")));
        Self([128, 16, 1].map(text).into())
    }
}

/// Splits the rows into the sizes that there are statements for.
fn chunks<'a, T>(
    statements: &'static Statements,
    mut rows: &'a [T],
) -> impl Iterator<Item = (&'static str, &'a [T])> {
    std::iter::from_fn(move || {
        let (size, statement) = statements.0.iter().find(|(size, _)| *size <= rows.len())?;
        let (now, later) = rows.split_at(*size);
        rows = later;
        Some((statement.as_str(), now))
    })
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Connection as _};

    use super::*;
    use crate::store::tests::{
        PIECES,
        fuzzing::{Random, play},
        is_answered, is_one_clear_line,
    };

    /// A row of each table as SQL: what stands in the columns of a record, and of a run.
    const RECORD: [&str; 19] = [
        "'job'",
        "1700000000000",
        "'planned'",
        "1700000000000",
        "'running'",
        "1",
        "0",
        "0",
        "1700000000000",
        "1700000030000",
        "1700000000000000",
        "'a'",
        "'00000000000000010000000000000002'",
        "0",
        "NULL",
        "2",
        "1",
        "'0123456789abcdef0123456789abcdef'",
        "2",
    ];
    const RUN: [&str; 9] = [
        "1",
        "'manual'",
        "1",
        "4294967295",
        "1600000000000002",
        "'b-1.c'",
        "1600000000000",
        "1600000000001",
        "'failed'",
    ];

    /// What any column may hold, whatever its type says.
    fn value(random: &mut Random) -> String {
        let blob = |random: &mut Random| {
            let bytes = random.bytes(&[b"planned".to_vec(), b"a".to_vec()], &PIECES).0;
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        match random.below(6) {
            0 => "NULL".to_owned(),
            1 => (random.next() as i64).to_string(),
            2 => {
                random.pick(&["-1", "4294967296", "9223372036854775807", "-9223372036854775808"]).to_string()
            }
            3 => random.pick(&["1.5", "9e999", "-9e999", "1e3"]).to_string(),
            4 => format!("x'{}'", blob(random)),
            _ => format!("CAST(x'{}' AS TEXT)", blob(random)),
        }
    }

    #[test]
    fn mutations_of_a_row_are_a_record_or_a_clear_damage() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let connection = runtime.block_on(SqliteConnection::connect("sqlite::memory:")).unwrap();
        let connection = std::cell::RefCell::new(connection);
        let make = |random: &mut Random| {
            let good = if random.below(2) == 0 { &RECORD[..] } else { &RUN[..] };
            let mut columns: Vec<String> = good.iter().map(|text| (*text).to_owned()).collect();
            for _ in 0..random.below(3) {
                let column = random.below(columns.len());
                columns[column] = value(random);
            }
            columns
        };
        play(10_000, make, |columns| {
            let sql = AssertSqlSafe(format!("SELECT {}, NULL", columns.join(", ")));
            let mut connection = connection.borrow_mut();
            let row = sqlx::query(sql).persistent(false).fetch_one(&mut *connection);
            let row = runtime.block_on(row).unwrap();
            let read = if columns.len() == RUN.len() {
                run(&row, 0).map(|_| ())
            } else {
                record(&row, 0).map(|record| record.iter().for_each(is_answered))
            };
            assert!(read.as_ref().err().is_none_or(|damage| is_one_clear_line(damage)), "{read:?}");
            read.is_ok()
        });
    }

    #[test]
    fn rows_are_split_into_few_statements_and_none_is_left_out() {
        let rows: Vec<u32> = (0..1_000).collect();
        let sizes: Vec<usize> = chunks(&PUT_JOBS, &rows).map(|(_, part)| part.len()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 1_000);
        assert!(sizes.len() < 25, "{sizes:?}");
        let whole: Vec<u32> = chunks(&PUT_JOBS, &rows).flat_map(|(_, part)| part.iter().copied()).collect();
        assert_eq!(whole, rows);
    }

    #[test]
    fn a_message_is_cut_by_characters() {
        assert_eq!(cut(&"ä".repeat(3_000)), "ä".repeat(1_000));
    }
}
