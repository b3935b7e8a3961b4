//! The bucket of a namespace: the settings that it is made with, and those of one that is there.

use serde_json::{Value, json};

use super::value::HISTORY;
use crate::store::{Batch, ClockSource, Durability, Guarantees};

/// The least that a value may have to fit in: a record with twenty long messages.
const ROOM: i64 = 128 * 1024;

/// What the server keeps a bucket as.
pub(super) fn stream(bucket: &str) -> String {
    format!("KV_{bucket}")
}

/// What all subjects of a bucket begin with.
pub(super) fn subject(bucket: &str) -> String {
    format!("$KV.{bucket}.")
}

/// All of them.
pub(super) fn subjects(bucket: &str) -> String {
    format!("{}>", subject(bucket))
}

/// The settings of a new bucket: those of any key-value bucket with a history of one, without any limit that could delete.
pub(super) fn settings(bucket: &str, replicas: u8) -> Value {
    json!({
        "name": stream(bucket),
        "description": "scheduled jobs of anarchon",
        "subjects": [subjects(bucket)],
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "max_msgs_per_subject": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "max_age": 0,
        "discard": "new",
        "deny_delete": true,
        "deny_purge": false,
        "allow_rollup_hdrs": true,
        "allow_direct": true,
    })
}

/// What is found of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) replicas: u64,
    /// Whether it is flushed to disk at all before a write is answered.
    is_async: bool,
}

/// Reads the settings of a bucket that is there, and what is wrong with them, with the mend.
pub(super) fn check(bucket: &str, config: &Value) -> Result<Found, String> {
    let number = |name: &str| config.get(name).and_then(Value::as_i64).unwrap_or_default();
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let is_set = |name: &str| {
        config.get(name).is_some_and(|value| match value {
            Value::Null => false,
            Value::Bool(set) => *set,
            Value::Array(list) => !list.is_empty(),
            Value::Number(_) | Value::String(_) | Value::Object(_) => true,
        })
    };
    let stream = stream(bucket);
    let edit = |why: &str, flag: &str| Err(format!("{why}; mend it with: nats stream edit {stream} {flag}"));
    let remake = |why: &str| {
        Err(format!(
            "{why}, which cannot be changed; delete it with: nats stream rm {stream}, and it is made anew"
        ))
    };
    let wanted = subjects(bucket);
    let subjects = config.get("subjects").and_then(Value::as_array);
    if !subjects.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(wanted.as_str()))) {
        return edit("it does not take what is written to the bucket", &format!("--subjects '{wanted}'"));
    }
    if text("storage") != "file" {
        return remake("it is kept in memory, so that a restart forgets all jobs");
    }
    if text("retention") != "limits" {
        return remake("it deletes what was read (its retention is not \"limits\")");
    }
    if is_set("mirror") || is_set("sources") {
        return remake("it is a copy of another stream");
    }
    if is_set("sealed") {
        return remake("it is sealed and takes no writes");
    }
    if number("max_age") > 0 {
        return edit("it deletes jobs by their age (a TTL)", "--max-age 0s");
    }
    if number("max_msgs_per_subject") != 1 {
        return edit("it has another history than 1", "--max-msgs-per-subject 1");
    }
    for (limit, flag) in [("max_bytes", "--max-bytes=-1"), ("max_msgs", "--max-msgs=-1")] {
        if number(limit) > 0 && text("discard") != "new" {
            return edit(&format!("it deletes jobs when {limit} is reached"), flag);
        }
    }
    if is_set("discard_new_per_subject") {
        return remake("it takes no second value for a key (discard_new_per_subject)");
    }
    if (1..ROOM).contains(&number("max_msg_size")) {
        return edit("it takes no values as large as needed", "--max-msg-size=-1");
    }
    if is_set("no_ack") {
        return edit("it does not answer writes", "--ack");
    }
    if is_set("subject_transform") {
        return remake("it changes the keys (subject_transform)");
    }
    let replicas = u64::try_from(number("num_replicas")).unwrap_or_default().max(1);
    Ok(Found { replicas, is_async: text("persist_mode") == "async" })
}

impl Found {
    pub(super) fn guarantees(&self, version: &str) -> Guarantees {
        let mut guarantees = Guarantees::new(format!("NATS {version}"));
        guarantees.clock = ClockSource::Estimated;
        guarantees.batch = Batch::Pipelined;
        guarantees.changes = true;
        guarantees.history = HISTORY;
        guarantees.durability = match (self.replicas, self.is_async) {
            (1, true) => Durability::Unsafe(
                "the server answers before it writes (persist_mode async); remake the bucket with the default".to_owned(),
            ),
            (1, false) => Durability::Periodic,
            _ => Durability::Replicated,
        };
        if self.replicas > 1 {
            guarantees.shortest_lease = REPLICATED;
        }
        guarantees
    }
}

/// While a cluster chooses a new leader, nobody can renew a lease.
const REPLICATED: std::time::Duration = std::time::Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: Value) -> Result<Found, String> {
        let mut config = settings("b", 3);
        config[name] = value;
        check("b", &config)
    }

    #[test]
    fn a_bucket_of_our_own_is_fine_and_so_is_one_of_the_usual_tools() {
        assert_eq!(check("b", &settings("b", 3)).unwrap().replicas, 3);
        // As `nats kv add` makes it, and with what newer servers add.
        for (name, value) in [
            ("max_bytes", json!(1_000_000)),
            ("allow_direct", json!(false)),
            ("metadata", json!({"_nats.ver": "2.15.1"})),
            ("sources", json!([])),
            ("mirror", Value::Null),
            ("compression", json!("s2")),
            ("num_replicas", json!(1)),
            ("allow_msg_ttl", json!(true)),
        ] {
            assert!(with(name, value).is_ok(), "{name}");
        }
    }

    #[test]
    fn settings_that_lose_or_refuse_records_are_told_with_their_mend() {
        for (name, value, mend) in [
            ("storage", json!("memory"), "nats stream rm KV_b"),
            ("retention", json!("workqueue"), "nats stream rm KV_b"),
            ("max_age", json!(60_000_000_000_u64), "--max-age 0s"),
            ("max_msgs_per_subject", json!(5), "--max-msgs-per-subject 1"),
            ("max_msgs_per_subject", json!(-1), "--max-msgs-per-subject 1"),
            ("subjects", json!(["other.>"]), "--subjects '$KV.b.>'"),
            ("sources", json!([{"name": "x"}]), "nats stream rm KV_b"),
            ("mirror", json!({"name": "x"}), "nats stream rm KV_b"),
            ("sealed", json!(true), "nats stream rm KV_b"),
            ("discard_new_per_subject", json!(true), "nats stream rm KV_b"),
            ("max_msg_size", json!(1000), "--max-msg-size=-1"),
            ("no_ack", json!(true), "--ack"),
        ] {
            let told = with(name, value).unwrap_err();
            assert!(told.contains(mend), "{name}: {told}");
        }
        let mut config = settings("b", 1);
        config["discard"] = json!("old");
        assert!(check("b", &config).is_ok(), "there is no limit that could delete");
        for limit in ["max_bytes", "max_msgs"] {
            let mut config = config.clone();
            config[limit] = json!(1000);
            assert!(check("b", &config).unwrap_err().contains(limit));
        }
    }

    #[test]
    fn what_survives_is_up_to_the_replicas() {
        let guarantees = |replicas: u8| check("b", &settings("b", replicas)).unwrap().guarantees("2.9.10");
        assert_eq!(guarantees(1).durability, Durability::Periodic);
        assert_eq!(guarantees(3).durability, Durability::Replicated);
        assert!(guarantees(3).shortest_lease > guarantees(1).shortest_lease);
        let hasty = with("persist_mode", json!("async")).unwrap();
        assert!(matches!(
            Found { replicas: 1, ..hasty }.guarantees("2.14.0").durability,
            Durability::Unsafe(_)
        ));
    }
}
