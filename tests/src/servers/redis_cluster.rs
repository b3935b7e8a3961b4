//! A Cluster of three nodes, each with a third of the slots and no replica.

use super::{
    Server,
    port::Port,
    redis::{Kind, command},
};
use crate::wait::until_so;

/// The three nodes. They are not connected to clients of any other test.
#[derive(Debug)]
pub struct Cluster {
    /// In the order of their slots.
    pub nodes: Vec<Server>,
    kind: Kind,
    _bus: Vec<Port>,
}

/// After how many ms a node counts as gone.
const NODE_TIMEOUT: &str = "1000";

impl Cluster {
    /// Starts the nodes and waits until each knows that all slots are served.
    ///
    /// # Panics
    /// When they do not find together.
    #[must_use]
    pub fn start(kind: Kind) -> Self {
        let bus: Vec<Port> = (0..3).map(|_| Port::free()).collect();
        let node = |bus: &Port| {
            let bus = bus.number().to_string();
            let always = ["--appendonly", "yes", "--appendfsync", "always"];
            let member =
                ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", NODE_TIMEOUT];
            kind.with(always.into_iter().chain(member))
        };
        let nodes: Vec<Server> = bus.iter().map(node).collect();
        let ranges = ["0 5460", "5461 10922", "10923 16383"];
        for (node, range) in nodes.iter().zip(ranges) {
            ask(node, &format!("CLUSTER ADDSLOTSRANGE {range}"));
        }
        for (node, bus) in nodes.iter().zip(&bus).skip(1) {
            ask(&nodes[0], &format!("CLUSTER MEET 127.0.0.1 {} {}", node.port(), bus.number()));
        }
        let cluster = Self { nodes, kind, _bus: bus };
        cluster.wait_until_whole();
        cluster
    }

    /// Waits until each node knows that all slots are served.
    pub fn wait_until_whole(&self) {
        for node in &self.nodes {
            until_so("all slots are served", || {
                let info = command(node.port(), "CLUSTER INFO").unwrap_or_default();
                info.contains("cluster_state:ok")
                    && info.contains("cluster_slots_ok:16384")
                    && info.contains("cluster_size:3")
            });
        }
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
