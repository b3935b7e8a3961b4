//! Rows that somebody else may have written, read column by column.

use sqlx::{ColumnIndex, Decode, Row, Type};

use crate::protocol::{Millis, Occurrence};

/// What is wrong with a row that somebody else wrote.
pub(super) type Damage = String;

/// Reads the columns of a row in order, and says which one does not hold what it should.
pub(super) struct Columns<'r, R> {
    row: &'r R,
    next: usize,
}

impl<'r, R: Row> Columns<'r, R>
where
    usize: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    &'r str: Decode<'r, R::Database> + Type<R::Database>,
{
    pub(super) fn of(row: &'r R, first: usize) -> Self {
        Self { row, next: first }
    }

    pub(super) fn take<T: Decode<'r, R::Database> + Type<R::Database>>(&mut self) -> Result<T, Damage> {
        let column = self.next;
        self.next += 1;
        self.row.try_get(column).map_err(|e| e.to_string())
    }

    pub(super) fn number<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T, Damage> {
        let n: i64 = self.take()?;
        T::try_from(n).map_err(|_| format!("{what} is {n}"))
    }

    pub(super) fn word<T>(&mut self, what: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, Damage> {
        let word: &str = self.take()?;
        parse(word).ok_or_else(|| format!("{what} is {:?}", word.chars().take(60).collect::<String>()))
    }

    pub(super) fn occurrence(&mut self) -> Result<Occurrence, Damage> {
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
