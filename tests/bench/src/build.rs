//! What it costs to build a crate with a hundred jobs: from nothing, and after an edit.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::page::Table;

const HEAD: [&str; 4] =
    ["scheduler", "crates", "first build of 100 jobs s, debug", "build after an edit of one s, median of 5"];

const JOBS: usize = 100;
const EDITS: usize = 5;

/// Builds one with each.
pub fn play(table: &mut Table) {
    table.head(&HEAD, 1);
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/../../anarchon");
    let anarchon = User { name: "anarchon", dependency: format!("{{ path = {ours:?} }}"), program: ours_of };
    let other = User {
        name: "tokio-cron-scheduler",
        dependency: "\"0.15.1\"".to_owned(),
        program: tokio_cron_scheduler_of,
    };
    for user in [anarchon, other] {
        let line = user.line();
        table.line(line);
    }
}

/// A crate of somebody who uses this library.
struct User {
    name: &'static str,
    dependency: String,
    /// The source with so many jobs; the first of them says this.
    program: fn(&str) -> String,
}

impl User {
    fn line(&self) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        fs::create_dir(folder.join("src")).expect("our own folder");
        let manifest = format!(
            "[workspace]\n[package]\nname = \"user\"\nedition = \"2024\"\n[dependencies]\n{} = {}\n\
             tokio = {{ version = \"1.54\", features = [\"macros\", \"rt-multi-thread\", \"time\"] }}\n",
            self.name, self.dependency
        );
        fs::write(folder.join("Cargo.toml"), manifest).expect("our own folder");
        // The versions that all else here is measured with.
        fs::write(folder.join("Cargo.lock"), include_str!("../Cargo.lock")).expect("our own folder");
        self.write(folder, "as it was");
        // What has to be fetched is no part of it.
        cargo(folder, &["fetch", "--quiet"]);
        let tree = cargo(folder, &["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
        let crates: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
        let first = build(folder);
        let mut later: Vec<Duration> = (0..EDITS)
            .map(|edit| {
                self.write(folder, &format!("edit {edit}"));
                build(folder)
            })
            .collect();
        later.sort_unstable();
        format!(
            "{} | {} | {:.1} | {:.2}",
            self.name,
            // But for the user's own.
            crates.len() - 1,
            first.as_secs_f64(),
            later[EDITS / 2].as_secs_f64()
        )
    }

    fn write(&self, folder: &Path, said: &str) {
        fs::write(folder.join("src/main.rs"), (self.program)(said)).expect("our own folder");
    }
}

fn build(folder: &Path) -> Duration {
    let began = Instant::now();
    cargo(folder, &["build", "--quiet"]);
    began.elapsed()
}

fn cargo(folder: &Path, words: &[&str]) -> String {
    let mut command = Command::new("cargo");
    command.args(words).current_dir(folder).env("CARGO_TARGET_DIR", folder.join("target"));
    // A cache of what was compiled before would be measured instead.
    command.env_remove("RUSTC_WRAPPER").env_remove("CARGO_INCREMENTAL");
    let done = command.output().expect("cargo");
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    let failed = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "cargo {words:?} failed:\n{told}{failed}");
    told
}

/// What the jobs say: all the same, but the first.
fn sayings(first: &str) -> impl Iterator<Item = (usize, &str)> {
    (0..JOBS).map(move |job| (job, if job == 0 { first } else { "nothing new" }))
}

fn ours_of(said: &str) -> String {
    let mut text = String::from("use anarchon::prelude::*;\n\nstruct MyJobs;\n\n#[jobs]\nimpl MyJobs {\n");
    for (job, said) in sayings(said) {
        let _ = writeln!(
            text,
            "    #[every(\"10s\")]\n    async fn job_{job}(&self) {{\n        println!(\"job {job}: {said}\");\n    }}"
        );
    }
    text + "}\n\n#[tokio::main]\nasync fn main() -> anarchon::Result {\n    anarchon::run(MyJobs).await\n}\n"
}

fn tokio_cron_scheduler_of(said: &str) -> String {
    let mut text = String::from(
        "use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};\n\n#[tokio::main]\n\
         async fn main() -> Result<(), JobSchedulerError> {\n    let scheduler = JobScheduler::new().await?;\n",
    );
    for (job, said) in sayings(said) {
        let _ = writeln!(
            text,
            "    let job = Job::new_async(\"1/10 * * * * *\", |_, _| {{\n        Box::pin(async {{ println!(\"job {job}: {said}\") }})\n    \
             }})?;\n    scheduler.add(job).await?;"
        );
    }
    text + "    scheduler.start().await?;\n    std::future::pending().await\n}\n"
}
