//! The text of a call: `begin.sql` with the parameters, then the statements of the operation.
//!
//! Nothing that a caller hands in can become part of a statement: a column of parameters is the literal of an array in an
//! `E'…'` literal, in which both kinds of marks are escaped. The name of the schema is quoted as an identifier.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use super::{HISTORY, schema::Schema};
use crate::protocol::Namespace;

/// The operations, with the schema's name put in.
#[derive(Debug)]
pub(super) struct Operations {
    pub(super) register: Operation,
    pub(super) claim: Operation,
    pub(super) renew: Operation,
    pub(super) finish: Operation,
    pub(super) control: Operation,
    pub(super) inspect: Operation,
    pub(super) beat: Operation,
}

/// What follows the parameters.
#[derive(Debug)]
pub(super) struct Operation {
    parameters: Parameters,
    statements: Vec<String>,
    prepared: Option<Prepared>,
}

/// The columns of the parameters and their types.
type Parameters = &'static [(&'static str, &'static str)];

/// The statements of an operation, as a session keeps them: parsed and planned once.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) name: String,
    /// A message of its own: with each statement the session keeps the whole message that it came in. No plan is made yet.
    pub(super) prepare: String,
}

const REGISTER: Parameters =
    &[("job", "text"), ("holder", "text"), ("schedule", "uuid"), ("old", "uuid"), ("since", "bigint")];
const CLAIM: Parameters = &[
    ("job", "text"),
    ("kind", "text"),
    ("at", "bigint"),
    ("token", "bigint"),
    ("observed", "bigint"),
    ("seq", "bigint"),
    ("lease", "bigint"),
    ("window_up", "bigint"),
    ("window_down", "bigint"),
    ("max_attempts", "bigint"),
    ("schedule", "uuid"),
    ("holder", "text"),
    ("nonce", "uuid"),
    ("expires", "bigint"),
];
const RENEW: Parameters = &[("job", "text"), ("token", "bigint"), ("lease", "bigint")];
const FINISH: Parameters =
    &[("job", "text"), ("token", "bigint"), ("outcome", "text"), ("after", "bigint"), ("message", "text")];
const CONTROL: Parameters = &[("job", "text"), ("action", "text"), ("token", "bigint")];
const INSPECT: Parameters = &[("place", "int"), ("job", "text"), ("history", "int")];
const BEAT: Parameters = &[
    ("instance", "text"),
    ("leaves", "boolean"),
    ("age", "bigint"),
    ("forgotten", "bigint"),
    ("zones", "text"),
    ("schedules", "text"),
    ("contested", "json"),
];

impl Operations {
    pub(super) fn new(schema: &Schema) -> Self {
        let once = |parameters, statements: &[&str]| Operation::new(schema, parameters, statements);
        let deciding = |decide| {
            let whole = [include_str!("clock.sql"), decide, include_str!("answer.sql")].concat();
            whole
                .replace("$found", include_str!("found.sql"))
                .replace("$as_read", include_str!("as_read.sql"))
        };
        Self {
            register: once(REGISTER, &[&deciding(include_str!("register.sql"))]),
            claim: once(CLAIM, &[&deciding(include_str!("claim.sql"))]).prepared(),
            renew: once(RENEW, &[&deciding(include_str!("renew.sql"))]).prepared(),
            finish: once(FINISH, &[&deciding(include_str!("finish.sql"))]).prepared(),
            control: once(CONTROL, &[&deciding(include_str!("control.sql")), include_str!("hint.sql")]),
            inspect: once(INSPECT, &[include_str!("inspect.sql")]).prepared(),
            beat: once(BEAT, &[include_str!("beat.sql")]),
        }
    }
}

impl Operation {
    fn new(schema: &Schema, parameters: Parameters, statements: &[&str]) -> Self {
        let finished = |statement: &&str| {
            let statement =
                statement.replace("$items", &items(parameters)).replace("$keep", &HISTORY.to_string());
            // The schema last: its name may hold anything.
            schema.put_into(&statement)
        };
        let statements = statements.iter().map(finished).collect();
        Self { parameters, statements, prepared: None }
    }

    /// For the calls that are made all the time: to parse and plan such a statement costs more than to execute it.
    fn prepared(mut self) -> Self {
        let mut hasher = DefaultHasher::new();
        self.statements.hash(&mut hasher);
        // Of the text, as a pooler may give the session to others.
        let name = format!("anarchon_{:016x}", hasher.finish());
        // To parse it takes locks on the tables, for which it waits as long as a call.
        let mut prepare = begin("", "");
        for (place, statement) in self.statements.iter().enumerate() {
            prepare.push_str(&format!("PREPARE {name}_{place} AS {statement};\n"));
        }
        self.prepared = Some(Prepared { name, prepare });
        self
    }

    /// A call with these items, each an object of its parameters.
    pub(super) fn message(
        &self,
        namespace: &Namespace,
        items: &[Value],
        characters: Characters,
    ) -> Message<'_> {
        let set = |(name, _): &(&str, &str)| {
            let column = array(items.iter().map(|item| &item[*name]));
            format!(",\n    set_config('anarchon.{name}', {}, true)", literal(&column, characters))
        };
        let parameters: String = self.parameters.iter().map(set).collect();
        Message { begin: begin(namespace.as_str(), &parameters), operation: self }
    }
}

fn begin(namespace: &str, parameters: &str) -> String {
    // A name has neither `$` nor quotes.
    include_str!("begin.sql")
        .replace("$namespace", &format!("'{namespace}'"))
        .replace("$parameters", parameters)
}

/// A call, ready to be sent.
#[derive(Debug)]
pub(super) struct Message<'a> {
    begin: String,
    operation: &'a Operation,
}

impl<'a> Message<'a> {
    /// What a session may keep of it.
    pub(super) fn prepared(&self) -> Option<&'a Prepared> {
        self.operation.prepared.as_ref()
    }

    /// For a session that keeps nothing.
    pub(super) fn whole(&self) -> String {
        format!("{}{}", self.begin, self.operation.statements.join(";\n"))
    }

    /// For a session that keeps the statements.
    pub(super) fn of_prepared(&self, prepared: &Prepared) -> String {
        let mut text = self.begin.clone();
        for place in 0..self.operation.statements.len() {
            text.push_str(&format!("EXECUTE {}_{place};\n", prepared.name));
        }
        text
    }
}

/// Which characters the database can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Characters {
    All,
    Ascii,
}

/// Where a statement finds the items.
fn items(parameters: Parameters) -> String {
    let names: Vec<&str> = parameters.iter().map(|(name, _)| *name).collect();
    let column = |(name, kind): &(&str, &str)| format!("current_setting('anarchon.{name}')::{kind}[]");
    let columns: Vec<String> = parameters.iter().map(column).collect();
    format!("unnest({}) AS i ({})", columns.join(", "), names.join(", "))
}

fn array<'a>(values: impl Iterator<Item = &'a Value>) -> String {
    let mut text = String::from("{");
    for value in values {
        match value {
            Value::Null => text.push_str("NULL"),
            Value::Bool(_) | Value::Number(_) => text.push_str(&value.to_string()),
            Value::String(value) => quote(value, &mut text),
            Value::Array(_) | Value::Object(_) => quote(&value.to_string(), &mut text),
        }
        text.push(',');
    }
    if text.len() > 1 {
        text.pop();
    }
    text.push('}');
    text
}

fn quote(value: &str, text: &mut String) {
    text.push('"');
    for c in value.chars() {
        if matches!(c, '"' | '\\') {
            text.push('\\');
        }
        text.push(c);
    }
    text.push('"');
}

/// Right with and without `standard_conforming_strings`.
fn literal(text: &str, characters: Characters) -> String {
    let mut literal = String::with_capacity(text.len() + 3);
    literal.push_str("E'");
    for c in text.chars() {
        match (c, characters) {
            ('\'' | '\\', _) => literal.extend([c, c]),
            (_, Characters::All) => literal.push(c),
            (_, Characters::Ascii) => literal.push(if c.is_ascii() { c } else { '?' }),
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_leave_its_quotes() {
        let hostile = "a\"}', true); DROP TABLE x; --\\";
        let column = array([&Value::from(hostile), &Value::Null, &Value::from(-1)].into_iter());
        assert_eq!(column, r#"{"a\"}', true); DROP TABLE x; --\\",NULL,-1}"#);
        assert_eq!(
            literal(&column, Characters::All),
            r#"E'{"a\\"}'', true); DROP TABLE x; --\\\\",NULL,-1}'"#
        );
        assert_eq!(literal("ü", Characters::Ascii), "E'?'");
    }

    #[test]
    fn a_text_is_never_taken_for_no_text_nor_for_two() {
        let texts = ["NULL", "", "{}", ",", "\\"].map(Value::from);
        assert_eq!(array(texts.iter()), r#"{"NULL","","{}",",","\\"}"#);
        assert_eq!(array([].into_iter()), "{}");
    }

    #[test]
    fn a_session_keeps_statements_and_no_parameters() {
        let operations = Operations::new(&Schema::default());
        let namespace = Namespace::new("tests").unwrap();
        let item = serde_json::json!({"job": "secret"});
        let message = operations.claim.message(&namespace, &[item], Characters::All);
        let prepared = message.prepared().unwrap();
        let has = |text: &str, word: &str| text.contains(word);
        assert!(has(&prepared.prepare, "PREPARE") && has(&prepared.prepare, "lock_timeout"));
        assert!(!has(&prepared.prepare, "secret") && !has(&prepared.prepare, "tests"));
        let kept = message.of_prepared(prepared);
        assert!(has(&kept, "secret") && !has(&kept, "UPDATE"));
        assert_eq!(kept.matches("EXECUTE").count(), 1);
        assert!(has(&message.whole(), "secret") && has(&message.whole(), "UPDATE"));
        for operation in [&operations.renew, &operations.finish, &operations.inspect] {
            assert!(operation.prepared.is_some());
        }
    }
}
