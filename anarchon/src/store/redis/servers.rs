//! Which server decides on which job, and batches of calls to them.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::{join_all, select_ok};
use redis::{Pipeline, ServerError, Value, cmd};

use super::{
    address::{Address, Host, Kind},
    fault,
    link::Link,
    reply::{self, Replies, Reply},
    script::{Call, Script},
};
use crate::store::StoreError;

/// How often the calls of a batch that were refused before any effect are sent again.
const ROUNDS: usize = 5;
/// How long one node of a Cluster may be silent. Without it a node that hangs costs the whole batch; what it has not
/// answered is unknown, and is asked again.
const NODE: Duration = Duration::from_millis(700);
/// How many calls a node of a Cluster is sent in one piece, each of up to a hundred items. A large batch comes in several, so that a busy
/// node is told from one that hangs.
const PIECE: usize = 20;
const SLOTS: u16 = 16_384;

/// All servers of an address.
#[derive(Debug)]
pub(super) enum Servers {
    One(Arc<Link>),
    Cluster(Cluster),
}

/// How a script is sent at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// By the name that servers know it by which have seen it: its text is longer than the calls.
    ByHash,
    /// Which shows whether the user may.
    InFull,
}

/// Replicas that have to have what a batch wrote.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) replicas: u32,
    pub(super) timeout: Duration,
}

impl Servers {
    pub(super) fn new(address: &Arc<Address>) -> Self {
        let link = match (&address.kind, address.hosts.first()) {
            (Kind::Sentinel(name), _) => Link::by_sentinels(Arc::clone(address), name.clone()),
            (Kind::One, Some(host)) => Link::to_host(Arc::clone(address), host.clone()),
            (Kind::Cluster, _) | (Kind::One, None) => return Self::Cluster(Cluster::new(address)),
        };
        Self::One(Arc::new(link))
    }

    /// Those that take writes.
    pub(super) async fn primaries(&self) -> Result<Vec<Arc<Link>>, StoreError> {
        match self {
            Self::One(link) => Ok(vec![Arc::clone(link)]),
            Self::Cluster(cluster) => {
                cluster.forget_map();
                let map = cluster.map().await?;
                let mut primaries: Vec<Arc<Link>> = Vec::new();
                for range in &map.0 {
                    if !primaries.iter().any(|known| Arc::ptr_eq(known, &range.link)) {
                        primaries.push(Arc::clone(&range.link));
                    }
                }
                Ok(primaries)
            }
        }
    }

    /// Lets go of all connections.
    pub(super) fn close(&self) {
        match self {
            Self::One(link) => link.close(),
            Self::Cluster(cluster) => {
                cluster
                    .nodes
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .values()
                    .for_each(|link| link.close());
            }
        }
    }

    /// Calls a script several times, in one pipeline a server, and tells what became of the items of each call.
    pub(super) async fn run(
        &self,
        script: &Script,
        sent: Sent,
        calls: &[Call],
        wait: Option<Wait>,
    ) -> Vec<Items> {
        let mut answers: Vec<Option<Result<Items, StoreError>>> = calls.iter().map(|_| None).collect();
        let mut open: Vec<(usize, Option<Redirect>)> = (0..calls.len()).map(|i| (i, None)).collect();
        let mut refusal = StoreError::unavailable("the store gave no answer");
        for round in 0..ROUNDS {
            let groups = match self.group(calls, &open, wait.is_some()).await {
                Ok(groups) => groups,
                Err(error) => {
                    refusal = error;
                    break;
                }
            };
            open.clear();
            let several = matches!(self, Self::Cluster(_));
            // A server that does not know the script, as after a restart, is sent it.
            let full = round > 0 || sent == Sent::InFull;
            let asked = groups.iter().map(|group| group.send(script, calls, wait, several, full));
            for (group, result) in groups.iter().zip(join_all(asked).await) {
                match result {
                    Err(error) => {
                        self.doubt();
                        for i in &group.calls {
                            answers[*i] = Some(Err(error.clone()));
                        }
                    }
                    Ok(outcomes) => {
                        for (i, outcome) in group.calls.iter().zip(outcomes) {
                            match self.judge(outcome, &group.link) {
                                Judged::Answer(answer) => answers[*i] = Some(answer),
                                Judged::Again(to, why) => {
                                    open.push((*i, to));
                                    refusal = why;
                                }
                            }
                        }
                    }
                }
            }
            if open.is_empty() {
                break;
            }
        }
        let of_call = |(call, answer): (&Call, Option<Result<Items, StoreError>>)| {
            let answer = answer.unwrap_or_else(|| Err(refusal.clone()));
            answer.unwrap_or_else(|error| (0..call.items).map(|_| Err(error.clone())).collect())
        };
        calls.iter().zip(answers).map(of_call).collect()
    }

    /// By server, in the order of the calls.
    async fn group(
        &self,
        calls: &[Call],
        open: &[(usize, Option<Redirect>)],
        waits: bool,
    ) -> Result<Vec<Group>, StoreError> {
        // Each piece would end with a WAIT of its own, and those add up.
        let most = if waits || matches!(self, Self::One(_)) { usize::MAX } else { PIECE };
        let mut groups: Vec<Group> = Vec::new();
        for (i, redirected) in open {
            let (link, is_asked) = match (redirected, self) {
                (Some(to), _) => (Arc::clone(&to.link), to.is_asked),
                (None, Self::One(link)) => (Arc::clone(link), false),
                (None, Self::Cluster(cluster)) => (cluster.link(&calls[*i].key).await?, false),
            };
            match groups.iter_mut().find(|group| {
                Arc::ptr_eq(&group.link, &link) && group.is_asked == is_asked && group.calls.len() < most
            }) {
                Some(group) => group.calls.push(*i),
                None => groups.push(Group { link, is_asked, calls: vec![*i] }),
            }
        }
        Ok(groups)
    }

    fn judge(&self, outcome: Outcome, link: &Arc<Link>) -> Judged {
        let error = match outcome {
            Outcome::Replies(replies, replicas) => {
                let read = |item: Result<_, String>| {
                    item.map_err(|damage| reply::foreign(&link.to_string(), &damage))
                };
                return Judged::Answer(Ok(replies.into_items(replicas).map(read).collect()));
            }
            Outcome::Foreign(damage) => {
                return Judged::Answer(Err(reply::foreign(&link.to_string(), &damage)));
            }
            Outcome::Error(error) => error,
        };
        match (error.code(), self) {
            // After a restart, or SCRIPT FLUSH.
            ("NOSCRIPT", _) => {
                Judged::Again(None, StoreError::unavailable("the server forgets its scripts again and again"))
            }
            ("MOVED", Self::Cluster(cluster)) => {
                // Who refuses knows best where the slot is now: the map that another node gives may be older.
                cluster.forget_map();
                Judged::Again(cluster.redirect(&error, false), refused_by_move(link))
            }
            ("ASK", Self::Cluster(cluster)) => match cluster.redirect(&error, true) {
                Some(to) => Judged::Again(Some(to), refused_by_move(link)),
                None => Judged::Answer(Err(self.refused(link, &error))),
            },
            ("MOVED" | "ASK", Self::One(_)) => Judged::Answer(Err(StoreError::misconfigured(format_args!(
                "{link} is a node of a Cluster; write redis+cluster:// in the place of redis://"
            )))),
            _ => Judged::Answer(Err(self.refused(link, &error))),
        }
    }

    fn refused(&self, link: &Arc<Link>, error: &ServerError) -> StoreError {
        let is = |code| fault::is(error, code);
        if ["READONLY", "CLUSTERDOWN", "MASTERDOWN"].into_iter().any(is) {
            self.doubt();
        }
        if is("READONLY") {
            // What is at the other end is not what we want.
            link.close();
        }
        fault::refused(&link.to_string(), error)
    }

    /// The server may have been replaced by another one.
    fn doubt(&self) {
        match self {
            Self::One(_) => {}
            Self::Cluster(cluster) => cluster.forget_map(),
        }
    }
}

fn refused_by_move(link: &Link) -> StoreError {
    StoreError::unavailable(format_args!("{link} has given the key to another node, and that one back"))
}

/// What became of the items of a call.
type Items = Vec<Result<Reply, StoreError>>;

/// What to do about the outcome of one call.
enum Judged {
    Answer(Result<Items, StoreError>),
    /// It had no effect: send it again, to another server than the one of the map where one was named.
    Again(Option<Redirect>, StoreError),
}

/// The node that another one named.
struct Redirect {
    link: Arc<Link>,
    /// It is about to take over the slot, and serves it only when told to.
    is_asked: bool,
}

enum Outcome {
    /// With how many replicas have what the call wrote, where that was asked for.
    Replies(Replies, Option<u64>),
    Foreign(String),
    Error(ServerError),
}

/// Calls for one server.
struct Group {
    link: Arc<Link>,
    /// The server is about to take over the slot, and serves it only when told to.
    is_asked: bool,
    calls: Vec<usize>,
}

impl Group {
    async fn send(
        &self,
        script: &Script,
        calls: &[Call],
        wait: Option<Wait>,
        several: bool,
        full: bool,
    ) -> Result<Vec<Outcome>, StoreError> {
        let mut commands = Pipeline::with_capacity(2 * self.calls.len() + 1);
        for i in &self.calls {
            if self.is_asked {
                commands.add_command(cmd("ASKING"));
            }
            commands.add_command(script.command(&calls[*i], full));
        }
        if let Some(wait) = wait {
            // It counts for what was written on its own connection.
            let mut command = cmd("WAIT");
            command
                .arg(wait.replicas)
                .arg(u64::try_from(wait.timeout.as_millis()).unwrap_or(u64::MAX).max(1));
            commands.add_command(command);
        }
        let silence = several.then(|| NODE + wait.map_or(Duration::ZERO, |wait| wait.timeout));
        let mut values = self.link.exchange(&commands, silence).await?;
        let replicas = match wait.and_then(|_| values.pop()) {
            Some(Value::Int(replicas)) => u64::try_from(replicas).ok(),
            Some(_) | None => None,
        };
        if self.is_asked {
            let mut place = 0;
            values.retain(|_| {
                place += 1;
                place % 2 == 0
            });
        }
        let outcome = |(i, value): (&usize, Value)| match value {
            Value::ServerError(error) => Outcome::Error(error),
            value => match Replies::read(value, calls[*i].items) {
                Ok(replies) => Outcome::Replies(replies, replicas),
                Err(damage) => Outcome::Foreign(damage),
            },
        };
        Ok(self.calls.iter().zip(values).map(outcome).collect())
    }
}

/// The nodes of a Cluster that take writes, each with a connection of its own.
pub(super) struct Cluster {
    address: Arc<Address>,
    nodes: Mutex<HashMap<String, Arc<Link>>>,
    /// Nothing while it has to be asked for.
    map: Mutex<Option<Arc<SlotMap>>>,
}

#[derive(Debug)]
struct SlotMap(Vec<SlotRange>);

#[derive(Debug)]
struct SlotRange {
    first: u16,
    last: u16,
    link: Arc<Link>,
}

impl Cluster {
    fn new(address: &Arc<Address>) -> Self {
        let cluster = Self { address: Arc::clone(address), nodes: Mutex::default(), map: Mutex::default() };
        for host in &address.hosts {
            cluster.to(host);
        }
        cluster
    }

    async fn link(&self, key: &str) -> Result<Arc<Link>, StoreError> {
        let map = self.map().await?;
        let slot = slot(key);
        let range = map.0.iter().find(|range| (range.first..=range.last).contains(&slot));
        range.map(|range| Arc::clone(&range.link)).ok_or_else(|| {
            self.forget_map();
            StoreError::unavailable(format_args!(
                "no node of {} serves slot {slot} at the moment; look at CLUSTER INFO",
                self.address
            ))
        })
    }

    /// The way to a node.
    fn to(&self, host: &Host) -> Arc<Link> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let link = || Arc::new(Link::to_host(Arc::clone(&self.address), host.clone()));
        Arc::clone(nodes.entry(host.to_string()).or_insert_with(link))
    }

    /// The node that a refusal names.
    fn redirect(&self, refusal: &ServerError, is_asked: bool) -> Option<Redirect> {
        let host = redirection(refusal.details()?)?;
        Some(Redirect { link: self.to(&host), is_asked })
    }

    fn forget_map(&self) {
        *self.map.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The map of the moment, asked for from all nodes at once: the first to answer is alive.
    async fn map(&self) -> Result<Arc<SlotMap>, StoreError> {
        if let Some(map) = &*self.map.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(Arc::clone(map));
        }
        let known: Vec<(String, Arc<Link>)> = {
            let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.iter().map(|(name, link)| (name.clone(), Arc::clone(link))).collect()
        };
        let asked = known.iter().map(|(name, link)| Box::pin(self.ask_for_map(name, link)));
        let (map, _) = select_ok(asked).await?;
        let map = Arc::new(map);
        *self.map.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&map));
        self.keep_only(&map);
        Ok(map)
    }

    async fn ask_for_map(&self, name: &str, link: &Arc<Link>) -> Result<SlotMap, StoreError> {
        let mut question = cmd("CLUSTER");
        question.arg("SLOTS");
        let hangs = |_| StoreError::unavailable(format_args!("{link} gave no reply within {NODE:?}"));
        let answer = tokio::time::timeout(NODE, link.ask(&question)).await.map_err(hangs)??;
        if let Value::ServerError(error) = &answer {
            return Err(fault::refused(&link.to_string(), error));
        }
        let ranges =
            self.read_map(name, &answer).ok_or_else(|| reply::foreign(&link.to_string(), "CLUSTER SLOTS"))?;
        let served: u32 = ranges.iter().map(|range| u32::from(range.last - range.first) + 1).sum();
        if served == 0 {
            // A node that was reset, or has not met the others yet.
            return Err(StoreError::unavailable(format_args!(
                "{link} knows of no slots; look at CLUSTER INFO"
            )));
        }
        Ok(SlotMap(ranges))
    }

    fn read_map(&self, asked: &str, answer: &Value) -> Option<Vec<SlotRange>> {
        let Value::Array(ranges) = answer else { return None };
        let read = |range: &Value| {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &parts[..] else {
                return None;
            };
            let (name, port) = (host_name(primary.first()?, asked)?, primary.get(1)?);
            let Value::Int(port) = port else { return None };
            let host = Host { name, port: u16::try_from(*port).ok()? };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            (first <= last && last < SLOTS).then(|| SlotRange { first, last, link: self.to(&host) })
        };
        ranges.iter().map(read).collect()
    }

    /// Connections to nodes that serve nothing any more are closed; the hosts of the address stay as places to ask.
    fn keep_only(&self, map: &SlotMap) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|name, link| {
            map.0.iter().any(|range| Arc::ptr_eq(&range.link, link))
                || self.address.hosts.iter().any(|host| host.to_string() == *name)
        });
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A node that does not know its own name leaves it out: it is the one that was asked.
fn host_name(value: &Value, asked: &str) -> Option<String> {
    let text = match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok()?,
        Value::SimpleString(text) => text.clone(),
        Value::Nil => String::new(),
        _ => return None,
    };
    if !text.is_empty() && text != "?" {
        return Some(text);
    }
    let (name, _) = asked.rsplit_once(':')?;
    Some(name.trim_matches(['[', ']']).to_owned())
}

/// `3999 127.0.0.1:6381`, or `3999 :6381`.
fn redirection(details: &str) -> Option<Host> {
    let (_, place) = details.trim().split_once(' ')?;
    let (name, port) = place.rsplit_once(':')?;
    if name.is_empty() {
        // A node that does not know the other's name. The map tells.
        return None;
    }
    Some(Host { name: name.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? })
}

/// The slot of a key: CRC16 of what stands in its first braces, as the Cluster specification has it.
pub(super) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or(key, |(tag, _)| tag);
    let mut crc: u16 = 0;
    for byte in tag.bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        }
    }
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the Cluster specification: the name may be left out.
    #[test]
    fn a_redirection_without_a_name_is_left_to_the_map() {
        let named = |details| redirection(details).map(|host| (host.name, host.port));
        assert_eq!(named("3999 127.0.0.1:6381"), Some(("127.0.0.1".to_owned(), 6381)));
        assert_eq!(named("3999 node.example:6381"), Some(("node.example".to_owned(), 6381)));
        assert_eq!(named("3999 :6381"), None);
    }

    /// From the Cluster specification, and from `CLUSTER KEYSLOT` of a server.
    #[test]
    fn a_key_is_in_the_slot_that_servers_compute() {
        for (key, expected) in
            [("123456789", 12_739), ("foo", 12_182), ("{user1000}.following", 3443), ("a{foo}b{bar}", 12_182)]
        {
            assert_eq!(slot(key), expected, "of {key}");
        }
        assert_eq!(slot("anarchon:{ns}:members"), slot("anarchon:{ns}:schedules"));
    }

    /// So that of eight nodes each has one, whatever the namespace is called.
    #[test]
    fn the_groups_of_a_namespace_are_in_eight_different_eighths_of_the_slots() {
        for name in ["tests", "payroll", "a", "x-1.y"] {
            let namespace = crate::protocol::Namespace::new(name).unwrap();
            let eighth = |group: &char| slot(&super::super::records(&namespace, *group)) / (SLOTS / 8);
            let eighths: std::collections::BTreeSet<u16> = super::super::GROUPS.iter().map(eighth).collect();
            assert_eq!(eighths.len(), 8, "{name}: {eighths:?}");
        }
    }
}
