//! What comes in through dependencies is what `deny.toml` lets in: licences, bans, sources, by cargo-deny.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    env, fs,
    path::Path,
    process::{Command, Output},
};

use anarchon_tests::servers::target;
use tempfile::TempDir;

/// Runs it with a configuration.
fn deny(configuration: &Path) -> Output {
    // The one of the system first, then the one that `scripts/test` installs.
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([target().join("tools/bin")]);
    Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["deny", "--locked", "--all-features", "--config"])
        .arg(configuration)
        .args(["check", "bans", "licenses", "sources"])
        .current_dir(root())
        .env("PATH", env::join_paths(folders).unwrap())
        .output()
        .unwrap()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

#[test]
fn every_dependency_is_one_that_may_come_in() {
    let output = deny(&root().join("deny.toml"));
    let told = told(&output);
    assert!(output.status.success(), "where it is missing, scripts/test installs cargo-deny:\n{told}");
    assert!(told.contains("bans ok, licenses ok, sources ok"), "{told}");
}

#[test]
fn a_licence_and_a_crate_that_may_not_come_in_are_named() {
    let folder = TempDir::new().unwrap();
    let right = fs::read_to_string(root().join("deny.toml")).unwrap();
    for (from, to, names) in [
        ("    \"Zlib\",\n", "", "Zlib"),
        ("{ crate = \"openssl\" }", "{ crate = \"tokio\" }", "tokio"),
        ("    { crate = \"syn@2\"", "    { crate = \"syn@1\"", "syn"),
    ] {
        let wrong = right.replacen(from, to, 1);
        assert_ne!(wrong, right, "{from:?} is not there");
        let at = folder.path().join("deny.toml");
        fs::write(&at, wrong).unwrap();
        let output = deny(&at);
        let told = told(&output);
        assert!(!output.status.success() && told.contains(names), "{told}");
    }
}
