//! The example programs, as a user has them.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
};

use serde_json::Value;

/// Where the program of an example is, built as `cargo test --workspace --all-features` builds it, so that it is seldom built twice.
///
/// # Panics
/// When there is none of that name, or it does not build.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    static BUILT: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(build);
    built.get(name).unwrap_or_else(|| panic!("there is no example {name}")).clone()
}

fn build() -> BTreeMap<String, PathBuf> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--workspace", "--all-features", "--examples", "--message-format=json"])
        .args((!cfg!(debug_assertions)).then_some("--release"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo, which runs the tests");
    assert!(output.status.success(), "the examples do not build");
    let messages = output.stdout.split(|byte| *byte == b'\n');
    messages
        .filter_map(|message| serde_json::from_slice::<Value>(message).ok())
        .filter(|message| message["target"]["kind"][0] == "example")
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_owned();
            Some((name, message["executable"].as_str()?.into()))
        })
        .collect()
}
