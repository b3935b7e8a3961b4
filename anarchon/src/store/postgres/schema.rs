//! Our tables: where they are, how they come to be, and whether they are as they should be.

use std::{collections::BTreeMap, fmt};

use sqlx::postgres::PgRow;

use super::rows;
use crate::store::columns::Damage;

/// The version of the schema that this code reads and writes.
pub(super) const VERSION: i64 = 1;
const DEFAULT_NAME: &str = "anarchon";
/// PostgreSQL cuts longer names off, so that two of them could be one.
const LONGEST_NAME: usize = 63;

/// The schema that holds the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Schema(String);

impl Default for Schema {
    fn default() -> Self {
        Self(DEFAULT_NAME.to_owned())
    }
}

impl Schema {
    pub(super) fn new(name: &str) -> Result<Self, String> {
        let right =
            (1..=LONGEST_NAME).contains(&name.len()) && !name.contains('\0') && !name.starts_with("pg_");
        if right {
            Ok(Self(name.to_owned()))
        } else {
            Err(format!(
                "schema {name:?} is none that PostgreSQL can have; use 1 to {LONGEST_NAME} bytes that do not begin with pg_"
            ))
        }
    }

    pub(super) fn is_usual(&self) -> bool {
        self.0 == DEFAULT_NAME
    }

    /// What a URL says to name it.
    pub(super) fn in_url(&self) -> String {
        if self.is_usual() { String::new() } else { format!("?schema={}", self.0) }
    }

    /// Puts the quoted name into a statement.
    pub(super) fn put_into(&self, text: &str) -> String {
        text.replace("$schema", &identifier(&self.0))
    }

    pub(super) fn look(&self) -> String {
        include_str!("look.sql").replace("$name", &self.literal())
    }

    pub(super) fn columns(&self) -> String {
        include_str!("columns.sql").replace("$name", &self.literal())
    }

    pub(super) fn version(&self) -> String {
        self.put_into("SELECT version FROM $schema.meta")
    }

    /// What somebody with the right to do so has to run.
    pub(super) fn creation(&self) -> String {
        self.put_into(include_str!("schema.sql"))
    }

    /// Creates what is missing; one process at a time, and nothing twice.
    pub(super) fn migration(&self, exists: bool) -> String {
        let creation = self.creation();
        // CREATE SCHEMA IF NOT EXISTS wants a right on the database also where there is nothing to create.
        let creation = match creation.split_once(';') {
            Some((_, tables)) if exists => tables.to_owned(),
            Some(_) | None => creation,
        };
        // The lock goes by the database, too; two schemas in one wait for each other once.
        format!("{}SELECT pg_advisory_xact_lock({LOCK}) IS NULL;\n{creation}", include_str!("migrate.sql"))
    }

    /// What a role needs to use the tables.
    pub(super) fn grants(&self, role: &str) -> String {
        let role = identifier(role);
        self.put_into(&format!(
            "GRANT USAGE ON SCHEMA $schema TO {role};\n\
             GRANT SELECT ON $schema.meta TO {role};\n\
             GRANT SELECT, INSERT, UPDATE, DELETE ON $schema.job, $schema.run, $schema.instance TO {role};\n"
        ))
    }

    fn literal(&self) -> String {
        // Right with and without standard_conforming_strings.
        format!("E'{}'", self.0.replace('\\', "\\\\").replace('\'', "''"))
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        identifier(&self.0).fmt(f)
    }
}

/// "anarchon" in ASCII.
const LOCK: i64 = 0x616e_6172_6368_6f6e;

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What `columns.sql` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tables {
    /// All there, and this role may use them.
    Usable,
    /// Some are not there.
    Missing,
    /// They are there, but this role lacks a right.
    Forbidden(String),
    /// They are there, but not ours, or of another time.
    Other(String),
}

pub(super) fn judge(columns: &[PgRow]) -> Result<Tables, Damage> {
    let mut found: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let (mut lacking, mut other) = (Vec::new(), None);
    for row in columns {
        let (table, column) = (rows::text(row, 0)?, rows::text(row, 1)?);
        let rights = rows::text(row, 3)?;
        let first = !found.contains_key(&table);
        if first && !rights.is_empty() {
            lacking.push(format!("{rights} on {table}"));
        }
        let kind = rows::text(row, 4)?;
        if !kind.is_empty() {
            other = Some(format!("{table} is {kind}, not a table"));
        }
        found.entry(table).or_default().insert(column, rows::text(row, 2)?);
    }
    if TABLES.iter().any(|(table, _)| !found.contains_key(*table)) {
        return Ok(Tables::Missing);
    }
    if let Some(other) = other {
        return Ok(Tables::Other(other));
    }
    for (table, columns) in TABLES {
        for (column, kind) in columns {
            match found[table].get(*column) {
                Some(is) if is == kind => {}
                Some(is) => {
                    return Ok(Tables::Other(format!(
                        "column {column} of table {table} is {is}, not {kind}"
                    )));
                }
                None => return Ok(Tables::Other(format!("table {table} has no column {column}"))),
            }
        }
    }
    Ok(if lacking.is_empty() { Tables::Usable } else { Tables::Forbidden(lacking.join("; ")) })
}

type Columns = &'static [(&'static str, &'static str)];

const TABLES: [(&str, Columns); 4] = [
    ("meta", &[("version", "integer")]),
    (
        "job",
        &[
            ("ns", "text"),
            ("job", "text"),
            ("decided", "bigint"),
            ("kind", "text"),
            ("occurrence", "bigint"),
            ("status", "text"),
            ("attempt", "bigint"),
            ("crashes", "bigint"),
            ("errors", "bigint"),
            ("started", "bigint"),
            ("until", "bigint"),
            ("token", "bigint"),
            ("holder", "text"),
            ("nonce", "uuid"),
            ("paused", "boolean"),
            ("cancel", "bigint"),
            ("manual_asked", "bigint"),
            ("manual_done", "bigint"),
            ("schedule", "uuid"),
            ("runs", "bigint"),
        ],
    ),
    (
        "run",
        &[
            ("ns", "text"),
            ("job", "text"),
            ("slot", "integer"),
            ("seq", "bigint"),
            ("kind", "text"),
            ("occurrence", "bigint"),
            ("attempt", "bigint"),
            ("token", "bigint"),
            ("holder", "text"),
            ("started", "bigint"),
            ("ended", "bigint"),
            ("outcome", "text"),
            ("message", "text"),
        ],
    ),
    (
        "instance",
        &[("ns", "text"), ("instance", "text"), ("seen", "bigint"), ("zones", "text"), ("schedules", "text")],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        let schema = Schema::new("a\"; DROP TABLE x; --'\\").unwrap();
        assert_eq!(schema.put_into("$schema.job"), "\"a\"\"; DROP TABLE x; --'\\\".job");
        assert_eq!(schema.literal(), "E'a\"; DROP TABLE x; --''\\\\'");
    }

    #[test]
    fn a_name_that_postgres_cannot_have_is_refused() {
        for name in ["", "a\0", "pg_x", &"ä".repeat(32)] {
            assert!(Schema::new(name).is_err(), "{name:?}");
        }
        assert!(Schema::new(&"x".repeat(63)).is_ok());
    }
}
