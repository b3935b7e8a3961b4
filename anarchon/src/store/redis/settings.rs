//! What a server says of its settings, and what can be promised with them.

use std::{collections::HashMap, sync::Arc};

use redis::{Value, cmd};

use super::link::Link;
use crate::store::{Batch, Durability, Guarantees, StoreError};

/// The oldest version that has what the scripts use.
const OLDEST: (u32, u32) = (6, 2);

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Options {
    pub(super) allows_eviction: bool,
    pub(super) replicas: u32,
}

/// What one server says. A managed one may say little.
#[derive(Debug, Default)]
struct Told {
    info: HashMap<String, String>,
    config: HashMap<&'static str, String>,
}

/// Reads the settings of all servers that take writes: what one of them cannot promise is not promised.
pub(super) async fn read(
    links: &[Arc<Link>],
    options: Options,
    is_cluster: bool,
    by_sentinels: bool,
) -> Result<Guarantees, StoreError> {
    let mut all: Option<Guarantees> = None;
    for link in links {
        let told = ask(link).await?;
        told.check(link, options, is_cluster)?;
        let mut guarantees = told.guarantees(options);
        guarantees.loses_on_failover |= by_sentinels && options.replicas == 0;
        all = Some(match all {
            None => guarantees,
            Some(before) => Guarantees {
                durability: weaker(before.durability, guarantees.durability),
                loses_on_failover: before.loses_on_failover || guarantees.loses_on_failover,
                ..before
            },
        });
    }
    all.ok_or_else(|| StoreError::unavailable("no server takes writes at the moment; look at CLUSTER INFO"))
}

async fn ask(link: &Link) -> Result<Told, StoreError> {
    let mut told = Told::default();
    let answer = link.ask(&cmd("INFO")).await?;
    if let Value::ServerError(error) = &answer
        && error.code() == "LOADING"
    {
        return Err(super::fault::refused(&link.to_string(), error));
    }
    if let Ok(text) = redis::from_redis_value::<String>(answer) {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        told.info = pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
    }
    for name in CONFIG {
        let mut question = cmd("CONFIG");
        question.arg("GET").arg(name);
        // Managed servers forbid it.
        if let Ok(found) = redis::from_redis_value::<HashMap<String, String>>(link.ask(&question).await?)
            && let Some(value) = found.into_values().next()
        {
            told.config.insert(name, value);
        }
    }
    Ok(told)
}

const CONFIG: [&str; 3] = ["appendfsync", "maxmemory-policy", "save"];

impl Told {
    fn info(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    fn config(&self, name: &str) -> Option<&str> {
        self.config.get(name).map(String::as_str)
    }

    fn check(&self, link: &Link, options: Options, is_cluster: bool) -> Result<(), StoreError> {
        let wrong = |why: String| Err(StoreError::misconfigured(format_args!("{link} {why}")));
        if let Some(version) = self.info("redis_version")
            && number(version) < OLDEST
        {
            return wrong(format!("is of version {version}; use 6.2 or later"));
        }
        match (self.info("redis_mode"), is_cluster) {
            (Some("cluster"), false) => {
                return wrong(
                    "is a node of a Cluster; write redis+cluster:// in place of redis://".to_owned(),
                );
            }
            (Some("standalone"), true) => {
                return wrong(
                    "is no node of a Cluster; write redis:// in place of redis+cluster://".to_owned(),
                );
            }
            (Some("sentinel"), _) => {
                return wrong(
                    "is a sentinel; write redis+sentinel:// and the name of the primary: …/mymaster"
                        .to_owned(),
                );
            }
            (Some(_) | None, _) => {}
        }
        if self.info("role") == Some("slave") {
            return Err(StoreError::unavailable(format_args!(
                "{link} is a replica and takes no writes; name the primary, or its sentinels with redis+sentinel://"
            )));
        }
        match self.policy() {
            Some(policy) if !keeps_all(policy) && !options.allows_eviction => wrong(format!(
                "has maxmemory-policy {policy}, which deletes claims and leases when memory runs out, so that jobs run twice; set \
                 it to noeviction or to one of volatile-*, or insist with allow_eviction()"
            )),
            None if !options.allows_eviction => {
                tracing::warn!(
                    store = %link,
                    "the server does not tell its maxmemory-policy; make sure that it is noeviction or one of volatile-*"
                );
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    fn policy(&self) -> Option<&str> {
        self.info("maxmemory_policy").or_else(|| self.config("maxmemory-policy"))
    }

    fn guarantees(&self, options: Options) -> Guarantees {
        let mut guarantees = Guarantees::new(self.name());
        guarantees.batch = Batch::Pipelined;
        guarantees.durability = self.durability();
        // Unknown counts as having some.
        let replicas = self.info("connected_slaves").and_then(|count| count.parse().ok()).unwrap_or(u32::MAX);
        guarantees.loses_on_failover = replicas > 0 && options.replicas < replicas;
        guarantees
    }

    fn name(&self) -> String {
        match (self.info("valkey_version"), self.info("redis_version")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, Some(version)) => format!("Redis {version}"),
            (None, None) => "Redis of unknown version".to_owned(),
        }
    }

    fn durability(&self) -> Durability {
        if let Some(policy) = self.policy().filter(|policy| !keeps_all(policy)) {
            return Durability::Unsafe(format!(
                "maxmemory-policy {policy} deletes records when memory runs out"
            ));
        }
        match (self.info("aof_enabled"), self.config("appendfsync")) {
            (Some("1"), Some("always")) => Durability::Fsync,
            (Some("1"), Some("everysec")) => Durability::Periodic,
            (Some("1"), Some(_)) => Durability::Unsafe(
                "appendfsync no: the system flushes when it likes; set appendfsync to always or everysec".to_owned(),
            ),
            (Some("1"), None) => Durability::Unsafe(
                "the append-only file is on, but the server does not tell how often it is flushed: CONFIG GET is forbidden".to_owned(),
            ),
            (Some(_), _) => match self.config("save") {
                Some("") => Durability::Unsafe(
                    "nothing is kept on disk; set appendonly to yes, or a restart forgets all records".to_owned(),
                ),
                Some(save) => Durability::Unsafe(format!(
                    "only snapshots are kept on disk (save {save}); set appendonly to yes, or a restart forgets what was written since"
                )),
                None => Durability::Unsafe(
                    "there is no append-only file, and the server does not tell of snapshots: CONFIG GET is forbidden".to_owned(),
                ),
            },
            (None, _) => Durability::Unsafe("the server does not tell whether it keeps anything on disk".to_owned()),
        }
    }
}

/// Our keys never expire, so that a policy for keys that do leaves them alone.
fn keeps_all(policy: &str) -> bool {
    policy == "noeviction" || policy.starts_with("volatile-")
}

fn weaker(one: Durability, other: Durability) -> Durability {
    let rank = |durability: &Durability| match durability {
        Durability::Unsafe(_) => 0,
        Durability::Periodic => 1,
        Durability::Replicated => 2,
        Durability::Fsync => 3,
    };
    if rank(&other) < rank(&one) { other } else { one }
}

fn number(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(info: &[(&str, &str)], config: &[(&'static str, &str)]) -> Told {
        let info = info.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Told { info, config: config.iter().map(|(name, value)| (*name, (*value).to_owned())).collect() }
    }

    #[test]
    fn what_survives_a_restart_is_told_by_the_settings() {
        let unsafe_with = |durability: &Durability, word: &str| matches!(durability, Durability::Unsafe(why) if why.contains(word));
        let on = ("aof_enabled", "1");
        let off = ("aof_enabled", "0");
        assert_eq!(told(&[on], &[("appendfsync", "always")]).durability(), Durability::Fsync);
        assert_eq!(told(&[on], &[("appendfsync", "everysec")]).durability(), Durability::Periodic);
        for (told, word) in [
            (told(&[on], &[("appendfsync", "no")]), "appendfsync no"),
            (told(&[on], &[]), "CONFIG GET is forbidden"),
            (told(&[off], &[("save", "")]), "nothing is kept"),
            (told(&[off], &[("save", "3600 1")]), "save 3600 1"),
            (told(&[off], &[]), "does not tell of snapshots"),
            (told(&[], &[]), "does not tell whether"),
            (told(&[on, ("maxmemory_policy", "allkeys-lru")], &[("appendfsync", "always")]), "allkeys-lru"),
        ] {
            assert!(unsafe_with(&told.durability(), word), "{told:?}: {:?}", told.durability());
        }
    }

    #[test]
    fn a_failover_loses_unless_every_replica_is_waited_for() {
        let with = |replicas: &str, waited| {
            let options = Options { replicas: waited, ..Options::default() };
            told(&[("connected_slaves", replicas)], &[]).guarantees(options).loses_on_failover
        };
        assert!(!with("0", 0));
        assert!(with("1", 0) && with("2", 1));
        assert!(!with("1", 1) && !with("2", 2));
        assert!(told(&[], &[]).guarantees(Options::default()).loses_on_failover, "unknown");
    }

    #[test]
    fn a_policy_that_deletes_only_what_expires_is_fine() {
        for (policy, fine) in
            [("noeviction", true), ("volatile-lru", true), ("volatile-ttl", true), ("allkeys-lru", false)]
        {
            assert_eq!(keeps_all(policy), fine, "{policy}");
        }
    }
}
