//! A Cluster of three primaries, each with a third of the slots, with a replica each or none.

use std::ops::RangeInclusive;

use anarchon::protocol::{JobName, Namespace};

use super::{
    Server,
    port::Port,
    redis::{GROUPS, Kind, command, has_followed, is_primary},
};
use crate::wait::until_so;

/// The nodes. They are not connected to clients of any other test.
#[derive(Debug)]
pub struct Cluster {
    /// Those that begin as primaries, in the order of their slots.
    pub nodes: Vec<Server>,
    /// Their replicas in the same order, or nothing.
    pub replicas: Vec<Server>,
    kind: Kind,
    _bus: Vec<Port>,
}

const PRIMARIES: usize = 3;
const RANGES: [RangeInclusive<u16>; PRIMARIES] = [0..=5460, 5461..=10_922, 10_923..=16_383];
/// After how many ms a node counts as gone.
const NODE_TIMEOUT: &str = "1000";

impl Cluster {
    /// Starts three nodes and waits until each knows that all slots are served.
    ///
    /// # Panics
    /// When they do not find together.
    #[must_use]
    pub fn start(kind: Kind) -> Self {
        Self::of(kind, PRIMARIES)
    }

    /// Six of them: each primary has a replica, which takes its place when it is gone.
    ///
    /// # Panics
    /// When they do not find together.
    #[must_use]
    pub fn with_replicas(kind: Kind) -> Self {
        let mut cluster = Self::of(kind, 2 * PRIMARIES);
        cluster.replicas = cluster.nodes.split_off(PRIMARIES);
        for (primary, replica) in cluster.nodes.iter().zip(&cluster.replicas) {
            let id = id(primary);
            until_so("the replica has met its primary", || {
                command(replica.port(), &format!("CLUSTER REPLICATE {id}")).unwrap_or_default() == "+OK\r\n"
            });
        }
        cluster.wait_until_whole();
        cluster
    }

    fn of(kind: Kind, count: usize) -> Self {
        let bus: Vec<Port> = (0..count).map(|_| Port::free()).collect();
        let node = |bus: &Port| {
            let bus = bus.number().to_string();
            let always = ["--appendonly", "yes", "--appendfsync", "always"];
            let member =
                ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", NODE_TIMEOUT];
            kind.with(always.into_iter().chain(member))
        };
        let nodes: Vec<Server> = bus.iter().map(node).collect();
        for (node, range) in nodes.iter().zip(RANGES) {
            ask(node, &format!("CLUSTER ADDSLOTSRANGE {} {}", range.start(), range.end()));
        }
        for (node, epoch) in nodes.iter().zip(1..) {
            // As `redis-cli --cluster create` does: else nodes settle theirs among each other later, and a slot that
            // moves meanwhile may be taken back by the node that gave it away.
            ask(node, &format!("CLUSTER SET-CONFIG-EPOCH {epoch}"));
        }
        for (node, bus) in nodes.iter().zip(&bus).skip(1) {
            ask(&nodes[0], &format!("CLUSTER MEET 127.0.0.1 {} {}", node.port(), bus.number()));
        }
        let cluster = Self { nodes, replicas: Vec::new(), kind, _bus: bus };
        cluster.wait_until_whole();
        cluster
    }

    /// Waits until each node knows that all slots are served, and each replica follows its primary.
    pub fn wait_until_whole(&self) {
        for node in self.all() {
            until_so("all slots are served", || {
                let info = command(node.port(), "CLUSTER INFO").unwrap_or_default();
                info.contains("cluster_state:ok")
                    && info.contains("cluster_slots_ok:16384")
                    && info.contains(&format!("cluster_known_nodes:{}\r", self.all().count()))
                    && info.contains("cluster_size:3")
            });
            until_so("a replica follows", || is_primary(node.port()) || has_followed(node.port()));
        }
        let replicas = || self.all().filter(|node| !is_primary(node.port())).count();
        until_so("each replica is one", || replicas() == self.replicas.len());
    }

    /// Every node.
    pub fn all(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().chain(&self.replicas)
    }

    /// The slots that one of the three begins with.
    #[must_use]
    pub fn slots(node: usize) -> RangeInclusive<u16> {
        RANGES[node].clone()
    }

    /// What users write.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("{}+cluster://{}", self.kind.scheme(), hosts.join(","))
    }
}

fn ask(node: &Server, line: &str) {
    let answer = command(node.port(), line).expect("a node answers");
    assert_eq!(answer, "+OK\r\n", "to {line}");
}

/// The slot of a key.
///
/// # Panics
/// When the node does not answer.
#[must_use]
pub fn slot(node: &Server, key: &str) -> u16 {
    let answer = command(node.port(), &format!("CLUSTER KEYSLOT {key}")).expect("a node answers");
    answer.trim().trim_start_matches(':').parse().expect("a number")
}

/// The key of a job's record: one of 8, by the server's own hash of the name.
///
/// # Panics
/// When the node does not answer.
#[must_use]
pub fn record_key(node: &Server, namespace: &Namespace, job: &JobName) -> String {
    let group = usize::from(slot(node, job.as_str())) % GROUPS.len();
    format!("anarchon:{{{namespace}/{}}}", GROUPS[group])
}

/// What the nodes call it.
///
/// # Panics
/// When it does not answer.
#[must_use]
pub fn id(node: &Server) -> String {
    let answer = command(node.port(), "CLUSTER MYID").expect("a node answers");
    answer.lines().nth(1).expect("its id").to_owned()
}
