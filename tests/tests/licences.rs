//! What comes in through dependencies is what `deny.toml` lets in, also where cargo-deny is not installed.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let deny = read("deny.toml");
    let allowed = texts(section(&deny, "\nallow = [", "]"));
    assert!(allowed.contains(&"MIT"), "{allowed:?}");
    let packages = packages();
    assert!(packages.len() > 50, "{} packages", packages.len());
    let wrong: Vec<_> = packages
        .iter()
        .map(|package| {
            (package["name"].as_str().unwrap(), package["license"].as_str().unwrap_or("no licence"))
        })
        .filter(|(_, licence)| !allows(licence, &allowed))
        .collect();
    assert!(wrong.is_empty(), "not allowed by deny.toml: {wrong:?}");
}

#[test]
fn no_banned_crate_and_no_foreign_source_is_locked() {
    let deny = read("deny.toml");
    let banned = texts(section(&deny, "\ndeny = [", "]"));
    assert!(banned.contains(&"openssl"), "{banned:?}");
    let registries = texts(section(&deny, "\nallow-registry = [", "]"));
    assert_eq!(registries.len(), 1, "{registries:?}");
    for kind in ["unknown-git", "unknown-registry"] {
        assert_eq!(quoted_value(&deny, kind), Some("deny"), "{kind}");
    }
    let lock = read("Cargo.lock");
    for entry in locked(&lock) {
        let value = |key: &str| quoted_value(entry, key);
        let name = value("name").unwrap();
        assert!(!banned.contains(&name), "{name} is banned by deny.toml");
        match value("source") {
            Some(source) => {
                let allowed = source.strip_prefix("registry+").is_some_and(|from| registries.contains(&from));
                assert!(allowed, "{name} is from {source}");
            }
            None => assert!(name.starts_with("anarchon"), "{name} has no source"),
        }
    }
}

#[test]
fn there_is_one_version_of_each_crate_but_for_the_exceptions() {
    let deny = read("deny.toml");
    assert_eq!(quoted_value(&deny, "multiple-versions"), Some("deny"));
    let skip = section(&deny, "\nskip = [", "\n]");
    let exceptions: Vec<_> =
        skip.lines().filter_map(|line| line.split_once("crate = \"")?.1.split('"').next()).collect();
    assert!(exceptions.len() > 5, "{exceptions:?}");
    let mut seen = BTreeSet::new();
    for package in packages() {
        let (name, version) = (package["name"].as_str().unwrap(), package["version"].as_str().unwrap());
        let is_exempt = exceptions
            .iter()
            .any(|exception| format!("{name}@{version}.").starts_with(&format!("{exception}.")));
        assert!(
            is_exempt || seen.insert(name.to_owned()),
            "{name} {version} is there in another version too"
        );
    }
}

#[test]
fn no_dependency_takes_any_version() {
    assert_eq!(quoted_value(&read("deny.toml"), "wildcards"), Some("deny"));
    for package in packages() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let (name, of) = (&dependency["name"], &package["name"]);
            assert_ne!(dependency["req"], "*", "dependency {name} of {of}");
        }
    }
}

/// The packages of the lock file.
fn locked(lock: &str) -> Vec<&str> {
    let entries: Vec<_> = lock.split("[[package]]\n").skip(1).collect();
    assert!(entries.len() > 50, "{} entries", entries.len());
    entries
}

#[test]
fn a_licence_is_read_as_spdx_reads_it() {
    let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"];
    for (licence, right) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("Apache-2.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
        ("GPL-3.0 AND MIT OR Apache-2.0", true),
        ("GPL-3.0 AND (MIT OR Apache-2.0)", false),
        ("Apache-2.0 WITH LLVM-exception", false),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("no licence", false),
        ("", false),
    ] {
        assert_eq!(allows(licence, &allowed), right, "{licence:?}");
    }
}

/// Whether an SPDX expression can be met with the allowed licences. `AND` binds tighter than `OR`.
fn allows(licence: &str, allowed: &[&str]) -> bool {
    let spaced = licence.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let (met, rest) = any(&words, allowed);
    met && rest.is_empty()
}

fn any<'a>(words: &'a [&'a str], allowed: &[&str]) -> (bool, &'a [&'a str]) {
    let (mut met, mut rest) = all(words, allowed);
    while let ["OR", more @ ..] = rest {
        let (also, after) = all(more, allowed);
        (met, rest) = (met || also, after);
    }
    (met, rest)
}

fn all<'a>(words: &'a [&'a str], allowed: &[&str]) -> (bool, &'a [&'a str]) {
    let (mut met, mut rest) = one(words, allowed);
    while let ["AND", more @ ..] = rest {
        let (also, after) = one(more, allowed);
        (met, rest) = (met && also, after);
    }
    (met, rest)
}

fn one<'a>(words: &'a [&'a str], allowed: &[&str]) -> (bool, &'a [&'a str]) {
    match words {
        ["(", inner @ ..] => match any(inner, allowed) {
            (met, [")", rest @ ..]) => (met, rest),
            (_, rest) => (false, rest),
        },
        // An exception would have to be allowed by name; none is.
        [_, "WITH", _, rest @ ..] => (false, rest),
        [name, rest @ ..] => (allowed.contains(name), rest),
        [] => (false, &[]),
    }
}

/// All packages that are built here. Those of other platforms may not have been fetched.
fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let version =
        Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into())).arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--all-features", "--locked", "--filter-platform", host])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn section<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    text.split_once(start).and_then(|(_, rest)| rest.split(end).next()).unwrap()
}

fn quoted_value<'a>(entry: &'a str, key: &str) -> Option<&'a str> {
    entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
}

/// What stands between quotes.
fn texts(section: &str) -> Vec<&str> {
    section.split('"').skip(1).step_by(2).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
