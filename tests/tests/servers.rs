//! The servers of the tests: private, restartable, and gone with their test however it ends.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
};

use anarchon_tests::{
    servers::{
        Server,
        redis::{Kind, command},
    },
    wait::until_so,
};

const KINDS: [Kind; 2] = [Kind::Redis, Kind::Valkey];

/// Set for a child of this test program that is to be killed.
const VICTIM: &str = "ANARCHON_TEST_VICTIM";

fn ask(server: &Server, line: &str) -> String {
    command(server.port(), line).expect("it answers")
}

fn accepts(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
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
fn a_dropped_server_is_gone_with_its_folder() {
    let server = Kind::Redis.start();
    let (port, folder) = (server.port(), server.place().folder().to_owned());
    server.freeze();
    drop(server);
    assert!(!accepts(port) && !folder.exists());
}

#[test]
fn a_server_ends_with_its_test_however_that_ends() {
    if std::env::var_os(VICTIM).is_some() {
        let server = Kind::Redis.start();
        println!("\nserver {} {}", server.port(), server.place().folder().display());
        loop {
            std::thread::park();
        }
    }
    let name = "a_server_ends_with_its_test_however_that_ends";
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let told = lines.map(Result::unwrap).find(|line| line.starts_with("server ")).unwrap();
    let words: Vec<&str> = told.split(' ').collect();
    let (port, folder) = (words[1].parse().unwrap(), Path::new(words[2]));
    assert!(accepts(port) && folder.exists());
    victim.kill().unwrap();
    victim.wait().unwrap();
    until_so("the server is gone with its folder", || !accepts(port) && !folder.exists());
}

#[test]
fn two_servers_never_share_a_port() {
    let servers: Vec<Server> = (0..4).map(|_| Kind::Redis.start()).collect();
    let mut ports: Vec<u16> = servers.iter().map(Server::port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 4);
}
