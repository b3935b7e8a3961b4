//! Three `nats-server` that keep streams together.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;

use super::{
    Server,
    nats::{Nats, Release},
    port::Port,
};
use crate::{
    site::{Outage, TestStore},
    wait::until_so,
};

/// The nodes. They are not connected to clients of any other test.
#[derive(Debug)]
pub struct Cluster {
    /// In any order: who leads is a matter of each stream.
    pub nodes: Vec<Server>,
    /// Where each tells how it is.
    monitors: Vec<Port>,
    _routes: Vec<Port>,
}

const NODES: usize = 3;

impl Cluster {
    /// Starts them and waits until streams can be made.
    ///
    /// # Panics
    /// When they do not find together.
    #[must_use]
    pub fn start(release: Release) -> Self {
        let ports = || (0..NODES).map(|_| Port::free()).collect::<Vec<Port>>();
        let (monitors, routes) = (ports(), ports());
        let all: Vec<String> =
            routes.iter().map(|route| format!("nats://127.0.0.1:{}", route.number())).collect();
        let all = all.join(", ");
        let node = |node: usize| {
            Server::start(Nats::new(
                release,
                [
                    format!("server_name: {}", name(node)),
                    format!("http: \"127.0.0.1:{}\"", monitors[node].number()),
                    format!(
                        "cluster {{ name: tests, listen: \"127.0.0.1:{}\", routes: [{all}] }}",
                        routes[node].number()
                    ),
                ],
            ))
        };
        let nodes = (0..NODES).map(node).collect();
        let cluster = Self { nodes, monitors, _routes: routes };
        cluster.wait_until_whole();
        cluster
    }

    /// Waits until the nodes have a leader and each has everything that it should have.
    pub fn wait_until_whole(&self) {
        until_so("the three nodes of NATS are level", || {
            let healthy = |node| self.ask(node, "/healthz").is_some_and(|told| told["status"] == "ok");
            (0..NODES).all(healthy) && (0..NODES).any(|node| self.leads_all(node))
        });
    }

    /// Whether the node leads the cluster, and all others follow.
    fn leads_all(&self, node: usize) -> bool {
        let Some(told) = self.ask(node, "/jsz") else { return false };
        let cluster = &told["meta_cluster"];
        let followers = cluster["replicas"].as_array().map_or(&[][..], Vec::as_slice);
        let level = |follower: &&Value| follower["current"] == true && follower["offline"] != true;
        cluster["leader"] == name(node) && followers.iter().filter(level).count() == NODES - 1
    }

    /// The node that leads a stream, by what it says itself. None in an election.
    #[must_use]
    pub fn leader(&self, stream: &str) -> Option<usize> {
        (0..NODES).find(|node| {
            let told = self.ask(*node, "/jsz?accounts=true&streams=true").unwrap_or_default();
            let accounts = told["account_details"].as_array().cloned().unwrap_or_default();
            let mut streams =
                accounts.iter().filter_map(|account| account["stream_detail"].as_array()).flatten();
            streams.any(|one| one["name"] == stream && one["cluster"]["leader"] == name(*node))
        })
    }

    /// What users write.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("nats://{}", hosts.join(","))
    }

    /// What a node tells of itself, if it does so soon.
    fn ask(&self, node: usize, path: &str) -> Option<Value> {
        let patience = Duration::from_secs(1);
        let address = SocketAddr::from(([127, 0, 0, 1], self.monitors[node].number()));
        let mut connection = TcpStream::connect_timeout(&address, patience).ok()?;
        connection.set_read_timeout(Some(patience)).ok()?;
        connection.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }
}

/// A cluster as the store of a scenario, of which the scenario may also kill single nodes.
#[derive(Debug, Clone)]
pub struct SharedCluster(Arc<Mutex<Cluster>>);

impl SharedCluster {
    /// A new one.
    #[must_use]
    pub fn start(release: Release) -> Self {
        Self(Arc::new(Mutex::new(Cluster::start(release))))
    }

    /// The cluster, for as long as nobody else needs it.
    pub fn lock(&self) -> MutexGuard<'_, Cluster> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TestStore for SharedCluster {
    fn url(&self) -> String {
        self.lock().url()
    }

    /// All nodes.
    fn stop(&mut self, how: Outage) {
        self.lock().nodes.iter_mut().for_each(|node| node.fail(how));
    }

    fn resume(&mut self) {
        let mut cluster = self.lock();
        cluster.nodes.iter_mut().for_each(Server::restart);
        cluster.wait_until_whole();
    }
}

fn name(node: usize) -> String {
    format!("node-{node}")
}
