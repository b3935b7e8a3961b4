//! The text of a call: `begin.sql` with the parameters, then the statements of the operation.
//!
//! Nothing that a caller hands in can become part of a statement: it is JSON between `$anarchon$` and `$anarchon$`, a
//! literal that ends at no other place and knows no escapes, and each `$` in the JSON is written `\u0024`. A `$` of JSON
//! stands in a string, so its meaning stays the same. The name of the schema is quoted as an identifier.

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
pub(super) struct Operation(String);

impl Operations {
    pub(super) fn new(schema: &Schema) -> Self {
        let hinting = |may_write, items, decide, hint| {
            let parts = [
                &include_str!("lock.sql").replace("$may_write", may_write),
                include_str!("clock.sql"),
                decide,
                include_str!("answer.sql"),
                hint,
            ];
            Operation::new(schema, items, &parts.concat())
        };
        let writing = |may_write, items, decide| hinting(may_write, items, decide, "");
        let holds_token = "j.token = i.token AND j.status = 'running'";
        Self {
            register: writing(
                "j.schedule <> i.schedule AND j.schedule = i.old",
                "place int, job text, holder text, schedule uuid, old uuid, since bigint",
                include_str!("register.sql"),
            ),
            claim: writing(
                include_str!("claim_may_write.sql"),
                "place int, job text, kind text, at bigint, token bigint, observed bigint, seq bigint, lease bigint, \
                 window_up bigint, window_down bigint, max_attempts bigint, schedule uuid, holder text, nonce uuid, \
                 expires bigint",
                include_str!("claim.sql"),
            ),
            renew: writing(
                holds_token,
                "place int, job text, token bigint, lease bigint",
                include_str!("renew.sql"),
            ),
            finish: writing(
                holds_token,
                "place int, job text, token bigint, outcome text, after bigint, message text",
                include_str!("finish.sql"),
            ),
            control: hinting(
                include_str!("control_may_write.sql"),
                "place int, job text, action text, token bigint",
                include_str!("control.sql"),
                include_str!("hint.sql"),
            ),
            inspect: Operation::new(schema, "place int, job text, history int", include_str!("inspect.sql")),
            beat: Operation::new(
                schema,
                "instance text, leaves boolean, age bigint, forgotten bigint, zones text, schedules text, contested json",
                include_str!("beat.sql"),
            ),
        }
    }
}

impl Operation {
    fn new(schema: &Schema, items: &str, text: &str) -> Self {
        // The schema last: its name may hold anything.
        Self(schema.put_into(&text.replace("$items", items).replace("$keep", &HISTORY.to_string())))
    }

    pub(super) fn message(&self, namespace: &Namespace, batch: &Value, characters: Characters) -> String {
        // A name has no `$`.
        let begin = include_str!("begin.sql")
            .replace("$namespace", &format!("$anarchon${namespace}$anarchon$"))
            .replace("$batch", &literal(batch, characters));
        begin + &self.0
    }
}

/// Which characters the database can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Characters {
    All,
    Ascii,
}

fn literal(batch: &Value, characters: Characters) -> String {
    let text = batch.to_string().replace('$', "\\u0024");
    let text = match characters {
        Characters::All => text,
        Characters::Ascii => {
            let kept = |c: char| if c.is_ascii() { c } else { '?' };
            text.chars().map(kept).collect()
        }
    };
    format!("$anarchon${text}$anarchon$")
}
