//! What the user's compiler says about each fixture in `ui/fail`, and that it says nothing about those in `ui/pass`.
//!
//! All fixtures are binaries of one scratch package and are checked in one go. A fixture names what it expects in lines
//! like these, in the order of the file:
//!
//! ```text
//! //~ `"5"`: the message, in our words
//! //~ `sync`
//! //~ `sync` OurTrait
//! ```
//!
//! The first part is the source text that the error points at. The other forms are for errors in the compiler's words,
//! which differ from release to release; the third names a word of ours among them. Errors that are not named, and warnings, fail the test.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

#[test]
fn each_mistake_is_said_once_in_our_words_at_the_place_to_change() {
    let fixtures = fixtures();
    assert!(fixtures.len() > 60, "only {} fixtures were found", fixtures.len());
    let mut found = check(&fixtures);
    let mut report = String::new();
    for (name, path) in &fixtures {
        let expected = expectations(path);
        let found = found.remove(name).unwrap_or_default();
        if !agrees(&expected, &found) {
            let found: Vec<_> = found.iter().map(Message::line).collect();
            let (expected, found) = (expected.join("\n"), found.join("\n"));
            let _ = write!(report, "\n{}\nexpected:\n{expected}\nfound:\n{found}\n", path.display());
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// An error or a warning.
struct Message {
    byte: u64,
    place: String,
    text: String,
}

impl Message {
    fn line(&self) -> String {
        format!("//~ `{}`: {}", self.place, self.text)
    }
}

fn agrees(expected: &[String], found: &[Message]) -> bool {
    expected.len() == found.len()
        && expected.iter().zip(found).all(|(expected, found)| {
            let place = format!("//~ `{}`", found.place);
            *expected == found.line()
                || expected.strip_prefix(&place).is_some_and(|rest| {
                    rest.is_empty() || rest.starts_with(' ') && found.text.contains(rest.trim())
                })
        })
}

/// By the name of their binary.
fn fixtures() -> BTreeMap<String, PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
    let mut fixtures = BTreeMap::new();
    for kind in ["fail", "pass"] {
        for entry in fs::read_dir(folder.join(kind)).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            fixtures.insert(format!("{kind}_{stem}"), path);
        }
    }
    fixtures
}

fn expectations(fixture: &Path) -> Vec<String> {
    let expected: Vec<_> = fs::read_to_string(fixture)
        .unwrap()
        .lines()
        .filter(|line| line.starts_with("//~"))
        .map(str::to_owned)
        .collect();
    let is_fail = fixture.parent().is_some_and(|folder| folder.ends_with("fail"));
    assert_eq!(
        is_fail,
        !expected.is_empty(),
        "a failing fixture, and no other, says what it expects: {fixture:?}"
    );
    expected
}

/// Checks all of them with one cargo call, in a package that has the locked versions of the workspace.
fn check(fixtures: &BTreeMap<String, PathBuf>) -> BTreeMap<String, Vec<Message>> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui");
    fs::create_dir_all(&scratch).unwrap();
    fs::write(scratch.join("Cargo.toml"), manifest(workspace, fixtures)).unwrap();
    fs::copy(workspace.join("Cargo.lock"), scratch.join("Cargo.lock")).unwrap();
    let output = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["check", "--offline", "--bins", "--keep-going", "--quiet", "--message-format=json"])
        .current_dir(&scratch)
        .env("CARGO_TARGET_DIR", scratch.join("target"))
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();

    let mut messages: BTreeMap<String, Vec<Message>> = BTreeMap::new();
    let mut targets = 0;
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let target = line["target"]["name"].as_str().unwrap_or_default();
        targets += usize::from(fixtures.contains_key(target));
        if line["reason"] == "compiler-message" {
            messages.entry(target.to_owned()).or_default().extend(message(&scratch, &line["message"]));
        }
    }
    assert!(targets >= fixtures.len(), "cargo stopped early: {}", String::from_utf8_lossy(&output.stderr));
    messages.values_mut().for_each(|messages| messages.sort_by_key(|message| message.byte));
    messages
}

fn manifest(workspace: &Path, fixtures: &BTreeMap<String, PathBuf>) -> String {
    let anarchon = workspace.join("anarchon");
    let mut manifest = format!(
        "[package]\nname = \"ui\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[features]\nextra = []\n\n[workspace]\n\n\
         [dependencies]\n\
         anarchon = {{ path = {anarchon:?}, default-features = false, features = [\"macros\"] }}\n"
    );
    for (name, path) in fixtures {
        let _ = write!(manifest, "\n[[bin]]\nname = \"{name}\"\npath = {path:?}\n");
    }
    manifest
}

/// Nothing for the compiler's closing lines, which have no place.
fn message(folder: &Path, message: &Value) -> Option<Message> {
    let span = message["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)?;
    let source = fs::read(folder.join(span["file_name"].as_str()?)).unwrap();
    let (start, end) = (span["byte_start"].as_u64()?, span["byte_end"].as_u64()?);
    let place = &source[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()];
    let place = String::from_utf8_lossy(place).split_whitespace().collect::<Vec<_>>().join(" ");
    let level = match message["level"].as_str()? {
        "error" => String::new(),
        other => format!("{other}: "),
    };
    Some(Message { byte: start, place, text: format!("{level}{}", message["message"].as_str()?) })
}
