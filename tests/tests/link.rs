//! Registrations reach the program from several modules and crates, whatever the linker is told to remove.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const EXPECTED: &str = "\
jobs deeper.nested often once renamed reports.daily reports.monthly.invoices reports.monthly.totals sync
package app
left silent::Silent
";

#[test]
fn a_debug_build_keeps_the_jobs_of_every_crate_that_a_line_names() {
    assert_eq!(output_of_the_app(&["--profile", "dev"]), EXPECTED);
}

#[test]
fn a_release_build_with_fat_lto_keeps_the_jobs_of_every_crate_that_a_line_names() {
    assert_eq!(output_of_the_app(&["--profile", "release"]), EXPECTED);
}

fn output_of_the_app(profile: &[&str]) -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("link").join(profile[1]);
    copy(workspace, &workspace.join("tests/fixtures/link"), &scratch);
    fs::copy(workspace.join("Cargo.lock"), scratch.join("Cargo.lock")).unwrap();
    let output = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["run", "--offline", "--quiet", "--package", "app"])
        .args(profile)
        .current_dir(&scratch)
        .env("CARGO_TARGET_DIR", scratch.join("target"))
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Unchanged files are left alone, so that cargo builds only what changed.
fn copy(workspace: &Path, from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copied = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(workspace, &path, &copied);
            continue;
        }
        let text = absolute(workspace, &path);
        if fs::read_to_string(&copied).ok().as_deref() != Some(&text) {
            fs::write(&copied, text).unwrap();
        }
    }
}

/// The manifests name anarchon by a path that holds in the repository only.
fn absolute(workspace: &Path, file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let anarchon: PathBuf = workspace.join("anarchon");
    let quoted = format!("{anarchon:?}");
    text.replace("\"../../../../anarchon\"", &quoted).replace("\"../../../anarchon\"", &quoted)
}
