//! The servers of the tests: private, restartable, and gone with their test however it ends.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anarchon_tests::{
    certificates::{Authority, Identity},
    servers::{
        Server,
        nats::{self, Release},
        nats_cluster::Cluster,
        port::Port,
        rabbitmq::{Broker, RabbitMq},
        redis::{Kind, command},
    },
    wait::{until, until_so},
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use serde_json::Value;

const KINDS: [Kind; 2] = [Kind::Redis, Kind::Valkey];

type Start = fn() -> Server;

/// One of each sort: a single process, several threads, and a family of processes.
const SERVERS: [(&str, Start); 3] = [
    ("redis", || Kind::Redis.start()),
    ("nats", || Release::Newer.start()),
    ("rabbitmq", || Broker::start().server),
];

/// Set for a child of this test program that is to be killed.
const VICTIM: &str = "ANARCHON_TEST_VICTIM";

fn ask(server: &Server, line: &str) -> String {
    command(server.port(), line).expect("it answers")
}

fn accepts(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// The processes of a server and their guard: their environment, arguments or current folder have its folder in them.
fn processes_of(folder: &Path) -> Vec<String> {
    processes(|process| {
        has(process, "environ", folder)
            || has(process, "cmdline", folder)
            || fs::read_link(process.join("cwd")).is_ok_and(|current| current.starts_with(folder))
    })
}

fn processes(wanted: impl Fn(&Path) -> bool) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let name =
        |process: &Path| fs::read_to_string(process.join("comm")).unwrap_or_default().trim().to_owned();
    processes.filter(|process| wanted(process)).map(|process| name(&process)).collect()
}

fn has(process: &Path, file: &str, folder: &Path) -> bool {
    let text = fs::read(process.join(file)).unwrap_or_default();
    String::from_utf8_lossy(&text).contains(folder.to_str().unwrap())
}

#[test]
fn a_restart_keeps_port_and_data_and_an_empty_one_keeps_the_port() {
    for kind in KINDS {
        let mut server = kind.start();
        let port = server.port();
        assert_eq!(ask(&server, "SET a b"), "+OK\r\n");
        server.restart();
        assert_eq!((server.port(), ask(&server, "GET a")), (port, "$1\r\nb\r\n".to_owned()));
        server.kill();
        assert!(!accepts(port));
        server.restart_empty();
        assert_eq!((server.port(), ask(&server, "GET a")), (port, "$-1\r\n".to_owned()));
    }
}

#[test]
fn a_frozen_server_answers_once_it_goes_on() {
    let server = Kind::Redis.start();
    server.freeze();
    assert!(accepts(server.port()), "the kernel accepts for it");
    assert!(command(server.port(), "PING").is_err());
    server.thaw();
    until_so("it answers", || command(server.port(), "PING").is_ok());
}

#[test]
fn a_dropped_server_is_gone_with_its_folder_and_all_of_its_processes() {
    for (name, start) in SERVERS {
        let server = start();
        let (port, folder) = (server.port(), server.place().folder().to_owned());
        assert_ne!(processes_of(&folder), [""; 0], "{name}");
        server.freeze();
        drop(server);
        assert!(!accepts(port) && !folder.exists(), "{name}");
        assert_eq!(processes_of(&folder), [""; 0], "{name}");
    }
}

#[test]
fn a_server_ends_with_its_test_however_that_ends() {
    if let Ok(victim) = std::env::var(VICTIM) {
        let (_, start) = SERVERS.into_iter().find(|(name, _)| *name == victim).unwrap();
        let server = start();
        println!("\nserver {} {}", server.port(), server.place().folder().display());
        loop {
            std::thread::park();
        }
    }
    for (name, _) in SERVERS {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["a_server_ends_with_its_test_however_that_ends", "--exact", "--nocapture"])
            .env(VICTIM, name)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let told = lines.map(Result::unwrap).find(|line| line.starts_with("server ")).unwrap();
        let words: Vec<&str> = told.split(' ').collect();
        let (port, folder) = (words[1].parse().unwrap(), Path::new(words[2]));
        assert!(accepts(port) && folder.exists() && !processes_of(folder).is_empty(), "{name}");
        victim.kill().unwrap();
        victim.wait().unwrap();
        until_so("the server is gone with its folder and processes", || {
            !accepts(port) && !folder.exists() && processes_of(folder).is_empty()
        });
    }
}

#[test]
fn two_servers_never_share_a_port() {
    let servers: Vec<Server> = (0..4).map(|_| Kind::Redis.start()).collect();
    let mut ports: Vec<u16> = servers.iter().map(Server::port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 4);
}

// NATS.

fn api(port: u16, call: &str, body: &str) -> Value {
    let answer = nats::request(port, &format!("$JS.API.{call}"), body).unwrap();
    serde_json::from_str(&answer).unwrap()
}

/// A stream of that many copies, with one message.
fn fill_stream(port: u16, copies: u8) {
    let settings =
        format!(r#"{{"name":"KEPT","subjects":["kept"],"storage":"file","num_replicas":{copies}}}"#);
    let made = api(port, "STREAM.CREATE.KEPT", &settings);
    assert_eq!(made["error"], Value::Null, "{made}");
    let acknowledged = nats::request(port, "kept", "a message").unwrap();
    assert!(acknowledged.contains(r#""seq":1"#), "{acknowledged}");
}

/// How many messages it has; none where there is no such stream.
fn messages(port: u16) -> Option<u64> {
    let told = api(port, "STREAM.INFO.KEPT", "");
    assert!(told["error"] == Value::Null || told["error"]["code"] == 404, "{told}");
    told["state"]["messages"].as_u64()
}

#[test]
fn nats_keeps_what_it_acknowledged_unless_it_is_emptied() {
    for release in Release::ALL {
        let mut server = release.start();
        let port = server.port();
        fill_stream(port, 1);
        server.restart();
        assert_eq!((server.port(), messages(port)), (port, Some(1)), "{release:?}");
        server.freeze();
        assert!(nats::request(port, "$JS.API.INFO", "").is_err(), "{release:?}");
        server.thaw();
        until_so("it answers", || nats::request(port, "$JS.API.INFO", "").is_ok());
        server.restart_empty();
        assert_eq!((server.port(), messages(port)), (port, None), "{release:?}");
    }
}

#[test]
fn the_two_releases_of_nats_differ_in_age() {
    let versions = Release::ALL.map(|release| {
        let greeting = nats::greeting(release.start().port()).unwrap();
        let told: Value = serde_json::from_str(greeting.trim_start_matches("INFO ")).unwrap();
        let version = told["version"].as_str().unwrap().to_owned();
        version.split('.').map(|number| number.parse().unwrap()).collect::<Vec<u32>>()
    });
    assert!(versions[0] >= vec![2, 9], "{versions:?}");
    assert!(versions[1] > versions[0], "{versions:?}");
}

#[test]
fn nats_takes_further_configuration_and_files() {
    for release in Release::ALL {
        let recipe = nats::Nats::new(release, ["include \"more.conf\""]);
        let server = Server::start(recipe.file("more.conf", "authorization { token: \"secret\" }\n"));
        let refusal = nats::request(server.port(), "$JS.API.INFO", "").unwrap_err();
        assert!(refusal.to_string().contains("Authorization Violation"), "{release:?}: {refusal}");
    }
}

#[test]
fn a_cluster_of_nats_goes_on_without_the_leader_of_a_stream() {
    for release in Release::ALL {
        let mut cluster = Cluster::start(release);
        fill_stream(cluster.nodes[0].port(), 3);
        let first = until("the stream has a leader", || cluster.leader("KEPT"));
        cluster.nodes[first].kill();
        let second = until("another one leads", || cluster.leader("KEPT"));
        assert_ne!(second, first, "{release:?}");
        cluster.nodes[first].restart();
        cluster.wait_until_whole();
        let leader = until("the stream has a leader", || cluster.leader("KEPT"));
        cluster.nodes[leader].freeze();
        until_so("another one leads", || cluster.leader("KEPT").is_some_and(|other| other != leader));
        cluster.nodes[leader].thaw();
        cluster.wait_until_whole();
        for node in &cluster.nodes {
            assert_eq!(messages(node.port()), Some(1), "{release:?}");
        }
        assert_eq!(cluster.leader("UNKNOWN"), None);
    }
}

#[test]
fn nats_encrypts_and_asks_for_certificates() {
    for release in Release::ALL {
        let (authority, client) = signed();
        let server = Server::start(nats::Nats::new(release, [""; 0]).tls(&authority, true));
        let ask = |trusted: &Authority, client: Option<&Identity>| {
            let mut connection = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
            // It greets before it encrypts.
            let read = connection.read(&mut [0; 4096]).unwrap();
            assert!(read > 0);
            over_tls(connection, trusted, client, b"CONNECT {}\r\nPING\r\n", "PONG")
        };
        ask(&authority, Some(&client)).unwrap();
        assert!(ask(&authority, None).is_err(), "{release:?}");
        assert!(ask(&Authority::new(), Some(&client)).is_err(), "{release:?}");
    }
}

fn signed() -> (Authority, Identity) {
    let authority = Authority::new();
    let client = authority.issue("a client", &["localhost"]);
    (authority, client)
}

/// Says something over TLS and waits for what is to be answered.
fn over_tls(
    mut connection: TcpStream,
    trusted: &Authority,
    client: Option<&Identity>,
    words: &[u8],
    wanted: &str,
) -> io::Result<()> {
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(trusted.certificate())).unwrap();
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate(&client.certificate)], key).unwrap()
        }
    };
    connection.set_read_timeout(Some(Duration::from_secs(20)))?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut stream = rustls::Stream::new(&mut session, &mut connection);
    stream.write_all(words)?;
    let mut told = Vec::new();
    while !String::from_utf8_lossy(&told).contains(wanted) {
        let mut answer = [0; 4096];
        let read = stream.read(&mut answer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        told.extend(&answer[..read]);
    }
    Ok(())
}

// RabbitMQ.

#[test]
fn rabbitmq_keeps_its_users_unless_it_is_emptied_and_stands_still_with_all_of_its_processes() {
    let ((authority, client), encrypted) = (signed(), Port::free());
    let settings = RabbitMq::new(["consumer_timeout = 7000", "heartbeat = 7"]);
    let mut broker = settings.tls(encrypted.number(), &authority, true).start();
    let ask = |trusted: &Authority, client: Option<&Identity>| {
        let connection = TcpStream::connect(("127.0.0.1", encrypted.number())).unwrap();
        over_tls(connection, trusted, client, b"AMQP\0\0\x09\x01", "PLAIN")
    };
    ask(&authority, Some(&client)).unwrap();
    assert!(ask(&authority, None).is_err());
    assert!(ask(&Authority::new(), Some(&client)).is_err());
    let (port, folder) = (broker.server.port(), broker.server.place().folder().to_owned());
    let setting = |broker: &Broker, name: &str| {
        broker.ctl(&["eval", &format!("application:get_env(rabbit, {name}).")]).trim().to_owned()
    };
    assert_eq!(setting(&broker, "consumer_timeout"), "{ok,7000}");
    assert_eq!(setting(&broker, "heartbeat"), "{ok,7}");
    broker.ctl(&["add_user", "somebody", "a password"]);
    broker.server.restart();
    assert_eq!(broker.server.port(), port);
    assert!(broker.ctl(&["list_users"]).contains("somebody"));

    broker.server.freeze();
    let all = processes_of(&folder);
    for name in ["beam.smp", "epmd", "erl_child_setup"] {
        assert!(all.iter().any(|one| one == name), "{all:?}");
    }
    let stopped = |process: &Path| {
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    };
    // The environment of the guard does not tell the folder.
    let moving = processes(|process| has(process, "environ", &folder) && !stopped(process));
    assert_eq!(moving, [""; 0]);
    broker.server.thaw();
    assert!(broker.ctl(&["list_users"]).contains("somebody"));

    broker.server.kill();
    assert_eq!(processes_of(&folder), [""; 0]);
    broker.server.restart_empty();
    assert_eq!(broker.server.port(), port);
    assert!(!broker.ctl(&["list_users"]).contains("somebody"));
}
