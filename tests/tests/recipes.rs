//! Runs each recipe of the guide as a user would: what it prints, what HTTP answers, how SIGTERM ends it. And checks the manifests.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anarchon_schedule::{Cron, Schedule, Spec};
use anarchon_tests::{
    examples::{Process, Running, example},
    pages::{read, root},
    wait::{PATIENCE, until_so},
};
use chrono::{DateTime, Utc};
use rustix::process::Signal;
use tempfile::{NamedTempFile, TempDir};

// Web services.

#[test]
fn axum_is_ready_while_it_takes_runs_and_ends_its_jobs_before_http() {
    is_ready_while_it_takes_runs_and_ends_its_jobs_before_http("axum");
}

#[test]
fn actix_is_ready_while_it_takes_runs_and_ends_its_jobs_before_http() {
    is_ready_while_it_takes_runs_and_ends_its_jobs_before_http("actix");
}

fn is_ready_while_it_takes_runs_and_ends_its_jobs_before_http(name: &str) {
    let (_folder, service) = start(name, |command| command.env("ADDRESS", "127.0.0.1:0"));
    let address = service.value("listening on ");
    service.read_until(|line| line == "ready");
    let [live, ready] = probes();
    assert_eq!([&live, &ready].map(|path| status(&address, path)), [200, 200]);
    let run = service.value("report begins: ");
    service.signal(Signal::TERM);
    service.read_until(|line| line == "draining");
    // HTTP answers in the drain.
    assert_eq!([&live, &ready].map(|path| status(&address, path)), [200, 503]);
    let (code, rest) = service.end();
    assert_eq!(code, Some(0), "{rest}");
    let done = format!("report is done: {run}");
    assert_eq!(rest.lines().collect::<Vec<_>>(), [done.as_str(), "the jobs have ended", "HTTP has ended"]);
}

/// The paths that the manifests ask, which have to be those of the service.
fn probes() -> [String; 2] {
    let deployment = read("examples/kubernetes/deployment.yaml");
    ["livenessProbe:", "readinessProbe:"].map(|probe| {
        let (_, behind) = deployment.split_once(probe).unwrap();
        let (_, path) = behind.split_once("path: ").unwrap();
        path.lines().next().unwrap().to_owned()
    })
}

#[test]
fn axum_answers_requests_that_still_come_when_no_run_goes_on() {
    answers_requests_that_still_come_when_no_run_goes_on("axum");
}

#[test]
fn actix_answers_requests_that_still_come_when_no_run_goes_on() {
    answers_requests_that_still_come_when_no_run_goes_on("actix");
}

fn answers_requests_that_still_come_when_no_run_goes_on(name: &str) {
    let (_folder, service) = start(name, |command| command.env("ADDRESS", "127.0.0.1:0"));
    let address = service.value("listening on ");
    service.read_until(|line| line.starts_with("report is done: "));
    service.signal(Signal::TERM);
    service.read_until(|line| line == "draining");
    // As long as whoever routes requests may not have heard: the jobs have ended long before.
    for _ in 0..5 {
        assert_eq!(status(&address, "/ready"), 503);
        std::thread::sleep(Duration::from_millis(200));
    }
    // Who does not want to wait tells it again.
    service.signal(Signal::INT);
    assert_eq!(service.end().0, Some(130));
}

#[test]
fn axum_is_alive_and_not_ready_as_long_as_its_store_is_away_and_ends_all_the_same() {
    is_alive_and_not_ready_as_long_as_its_store_is_away_and_ends_all_the_same("axum");
}

#[test]
fn actix_is_alive_and_not_ready_as_long_as_its_store_is_away_and_ends_all_the_same() {
    is_alive_and_not_ready_as_long_as_its_store_is_away_and_ends_all_the_same("actix");
}

fn is_alive_and_not_ready_as_long_as_its_store_is_away_and_ends_all_the_same(name: &str) {
    let (_folder, service) = start(name, |command| {
        // Nobody listens there.
        command.env("ADDRESS", "127.0.0.1:0").env("ANARCHON_STORE", "redis://127.0.0.1:1")
    });
    let address = service.value("listening on ");
    assert_eq!(["/live", "/ready"].map(|path| status(&address, path)), [200, 503]);
    service.signal(Signal::TERM);
    let (code, rest) = service.end();
    assert_eq!((code, rest.as_str()), (Some(0), ""));
}

fn status(address: &str, path: &str) -> u16 {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let code = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    code.and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

// Programs that go on until they are told to end.

#[test]
fn the_worker_fetches_and_compresses_and_ends_in_order() {
    goes_on_and_ends_in_order("worker", &["fetched for ", "compressed for "]);
}

#[test]
fn the_jobs_of_the_configuration_run_and_it_ends_in_order() {
    goes_on_and_ends_in_order("from_config", &["heartbeat: alive"]);
}

/// Its shortest schedule is a minute, as in a crontab.
#[test]
fn the_lines_of_the_crontab_run_and_it_ends_in_order() {
    goes_on_and_ends_in_order("from_crontab", &["a minute has passed: recipe-crontab/heartbeat/"]);
}

#[test]
fn a_command_of_the_crontab_and_what_it_has_started_end_with_their_run() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("crontab"), "* * * * * sleep 1000 & echo child $!; wait\n").unwrap();
    let recipe = Running::start(command("from_crontab", folder.path()).arg("crontab"));
    let child = recipe.value("child ");
    // One that has ended may be waited for by nobody.
    let is_there =
        || fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(is_there());
    recipe.signal(Signal::TERM);
    let (code, rest) = recipe.end();
    assert_eq!(code, Some(0), "{rest}");
    until_so("the child has ended", || !is_there());
}

#[test]
fn the_jobs_from_tokio_cron_scheduler_run_and_it_ends_in_order() {
    goes_on_and_ends_in_order("from_tokio_cron", &["sync for ", "poll for "]);
}

#[test]
fn the_jobs_from_nest_run_and_it_ends_in_order() {
    goes_on_and_ends_in_order("from_nest", &["sync: hello", "poll: "]);
}

fn goes_on_and_ends_in_order(name: &str, wanted: &[&str]) {
    let (_folder, recipe) = start(name, |command| command);
    let mut missing = wanted.to_vec();
    recipe.read_until(|line| {
        missing.retain(|start| !line.starts_with(start));
        missing.is_empty()
    });
    recipe.signal(Signal::TERM);
    let (code, rest) = recipe.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.ends_with("ended in order\n"), "{rest}");
}

#[test]
fn a_bad_configuration_is_told_all_together_and_nothing_runs() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("jobs.json");
    let entries = [
        r#"{"name": "fast", "when": {"every": "1ms"}, "task": "purge"}"#,
        r#"{"name": "morning", "when": {"cron": {"expression": "0 8 * * 1-5", "tz": "Europe/Athen"}}, "task": "purge"}"#,
        r#"{"name": "hours", "when": {"cron": {"expression": "0 24 * * *"}}, "task": "purge"}"#,
        r#"{"name": "twice", "when": {"every": "1h"}, "task": "purge", "lease": "1s"}"#,
        r#"{"name": "twice", "when": {"at": "tomorrow"}, "task": "purge"}"#,
    ];
    fs::write(&file, format!("[{}]", entries.join(","))).unwrap();
    let (code, said, told) = run(command("from_config", folder.path()).arg(&file));
    assert_eq!((code, said.as_str()), (Some(1), ""), "{told}");
    let wrong = [
        "\"fast\"",
        "\"Europe/Athens\"",
        "\"hours\"",
        "lease 1s",
        "two jobs are named \"twice\"",
        "\"tomorrow\"",
    ];
    for part in wrong {
        assert!(told.contains(part), "{part:?} is not in: {told}");
    }
}

#[test]
fn a_bad_crontab_is_told_all_together_and_nothing_runs() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("crontab");
    let told_of = |crontab: &str| {
        fs::write(&file, crontab).unwrap();
        let (code, said, told) = run(command("from_crontab", folder.path()).arg(&file));
        assert_eq!((code, said.as_str()), (Some(1), ""), "{told}");
        told
    };
    for (crontab, parts) in [
        (
            "SHELL=/bin/bash\n\n* * * * *\n",
            ["line 1: \"SHELL=/bin/bash\" sets a variable", "line 3: \"* * * * *\" has no command"],
        ),
        // The name is that of a line which was taken out.
        (
            "60 * * * * true\n# name: nightly\n#@daily true\n@reboot false\n",
            ["job \"true\": minute \"60\"", "job \"false\": \"@reboot\""],
        ),
    ] {
        // In quotes, with each quote and end of line escaped.
        let told = told_of(crontab).replace("\\\"", "\"");
        for part in parts {
            assert!(told.contains(part), "{part:?} is not in: {told}");
        }
    }
}

// Programs that end by themselves.

#[test]
fn a_long_job_goes_on_where_it_stopped_and_a_late_writer_is_refused() {
    let said = said_to_the_end("long_job");
    let lines: Vec<&str> = said.lines().collect();
    let stops = "first: attempt 1 stops before part ";
    let stopped = lines.iter().position(|line| line.starts_with(stops)).expect(&said);
    let (before, after) = lines.split_at(stopped);
    assert!(before.iter().all(|line| line.starts_with("first: attempt 1 has done part ")), "{said}");
    let parts = |start: &str| -> Vec<u32> {
        let parts = lines.iter().filter_map(|line| line.strip_prefix(start));
        parts.map(|part| part.parse().unwrap()).collect()
    };
    let first = parts("first: attempt 1 has done part ");
    let second = parts("second: attempt 2 has done part ");
    assert!(first.len() >= 2, "{said}");
    assert_eq!([first, second].concat(), [1, 2, 3, 4, 5, 6], "{said}");
    let last = ["a late write of attempt 1 is refused", "a late write of attempt 2 is refused"];
    assert!(after.ends_with(&last), "{said}");
}

#[test]
fn mail_goes_out_once_though_its_job_runs_twice() {
    let said = said_to_the_end("mail_once");
    let lines: Vec<&str> = said.lines().collect();
    let [first, sent, second, known, "ended"] = lines[..] else { panic!("{said}") };
    assert_eq!(sent, "  provider: mail to ada@example.org");
    assert_eq!(known, "  provider: this key is known, nothing to send");
    let key = first.strip_prefix("attempt 1: ").expect(&said);
    assert_eq!(second.strip_prefix("attempt 2: "), Some(key));
    assert_eq!(key, "key recipe-mail/digest/manual-1/ada@example.org");
}

#[test]
fn two_services_on_one_store_do_not_touch_each_other() {
    let said = said_to_the_end("two_services");
    let (both, rest) = said.split_once("shop has paused its own:\n").expect(&said);
    let (paused, resumed) = rest.split_once("shop goes on:\n").expect(&said);
    let runs = |part: &str, service: &str| part.matches(&format!("  {service}/report/")).count();
    assert!(runs(both, "billing") >= 1 && runs(both, "shop") >= 1, "{said}");
    assert_eq!(runs(paused, "billing"), 3, "{said}");
    // One of before the pause may be told late; the last time of billing was in the pause.
    let last = paused.lines().rfind(|line| line.starts_with("  billing/")).expect(&said);
    assert!(!said.contains(&last.replacen("billing", "shop", 1)), "{said}");
    assert!(runs(resumed, "shop") >= 1 && resumed.ends_with("\nended\n"), "{said}");
}

fn said_to_the_end(name: &str) -> String {
    let folder = TempDir::new().unwrap();
    let mut command = command(name, folder.path());
    // They have a store of their own, which leaves nothing behind.
    let (code, said, told) = run(command.env("TMPDIR", folder.path()));
    assert_eq!(code, Some(0), "{said}{told}");
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{name} leaves {left:?}");
    said
}

// What the tables of the migrations say.

#[test]
fn expressions_that_are_brought_along_mean_what_they_meant() {
    let quartz = |expression: &str| Cron::new(expression).dialect("quartz");
    for (there, here) in [
        (quartz("0 30 9 * * 2-6"), Cron::new("30 9 * * 1-5")),
        (quartz("0 30 9 * * Mon-Fri"), Cron::new("0 30 9 * * Mon-Fri")),
        (quartz("1/3 * * * * *"), Cron::new("1/3 * * * * *")),
        (Cron::new("0 30 9 * * 1-5"), Cron::new("30 9 * * 1-5")),
        (Cron::new("*/30 * * * * *"), Cron::new("0,30 * * * * *")),
    ] {
        assert_eq!(occurrences(there.clone()), occurrences(here.clone()), "{there:?} and {here:?}");
    }
    // A Friday that is a 13th, and the 13th or Friday.
    let both = occurrences(quartz("0 0 9 13 * Fri"));
    assert_eq!(both[..2], ["2026-02-13T09:00:00Z", "2026-03-13T09:00:00Z"].map(instant));
    let either = occurrences(Cron::new("0 0 9 13 * Fri"));
    let days = ["2026-01-02T09:00:00Z", "2026-01-09T09:00:00Z", "2026-01-13T09:00:00Z"];
    assert_eq!(either[..3], days.map(instant));
}

fn occurrences(cron: Cron) -> Vec<DateTime<Utc>> {
    let schedule: Schedule = Spec::from(cron).check().unwrap();
    let next = |after: &DateTime<Utc>| schedule.next_after(*after);
    std::iter::successors(next(&instant("2026-01-01T00:00:00Z")), next).take(20).collect()
}

fn instant(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

// Kubernetes.

#[test]
fn the_manifests_fit_the_schemas_of_kubernetes() {
    let files = manifests();
    assert_eq!(files.len(), 4, "{files:?}");
    let (code, told, wrong) = run(Command::new(root().join("scripts/manifests")).args(&files));
    assert_eq!(code, Some(0), "{told}{wrong}");
    // A kind that the checker does not know is only a warning: each file has to have passed.
    for file in &files {
        let passed = format!("{} passed for resource ", file.canonicalize().unwrap().display());
        assert_eq!(told.matches(&passed).count(), 1, "{passed}: {told}");
    }
}

#[test]
fn the_files_that_the_page_names_are_there() {
    let page = read("anarchon/src/guide/recipes.md");
    let names: Vec<&str> = page.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs")).collect();
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        let file = if name.contains('/') {
            root().join(name)
        } else {
            root().join("examples/examples/recipes").join(name)
        };
        assert!(file.is_file(), "recipes.md names {name}");
    }
}

#[test]
fn a_manifest_that_does_not_fit_the_schemas_is_refused() {
    let folder = TempDir::new().unwrap();
    let right = fs::read_to_string(root().join("examples/kubernetes/deployment.yaml")).unwrap();
    for (from, to) in [
        ("livenessProbe:", "livelinessProbe:"),
        ("terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 60s"),
        ("  selector:\n    matchLabels:\n      app: payroll\n", ""),
        ("kind: Deployment", "kind: Deploymnt"),
    ] {
        let wrong = right.replacen(from, to, 1);
        assert_ne!(wrong, right, "{from:?} is not there");
        let file = folder.path().join("wrong.yaml");
        fs::write(&file, wrong).unwrap();
        let (code, told, _) = run(Command::new(root().join("scripts/manifests")).arg(&file));
        assert_eq!(code, Some(1), "of {to:?}: {told}");
    }
}

#[test]
fn the_pods_have_longer_than_the_drain_and_the_url_comes_from_the_secret() {
    let text = |file: &str| fs::read_to_string(root().join("examples/kubernetes").join(file)).unwrap();
    let value = |text: &str, key: &str| {
        let found = text.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{key}: ")));
        found.unwrap_or_else(|| panic!("there is no {key}")).to_owned()
    };
    let deployment = text("deployment.yaml");
    let grace: u32 = value(&deployment, "terminationGracePeriodSeconds").parse().unwrap();
    // The default drain, 2 s to the drop, 5 s for a handler that blocks, 5 s for outcomes, 2 s to withdraw, 1 s to close, 5 s for HTTP.
    assert!(grace > 25 + 2 + 5 + 5 + 2 + 1 + 5, "{grace}");
    assert_eq!(value(&deployment, "replicas"), "3");
    assert_eq!(value(&deployment, "maxUnavailable"), "0");
    // One name for all of it: a selector that fits nothing is no mistake to the schemas.
    let all: String = manifests().iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let named = |key: &str| -> Vec<String> {
        let lines = all.lines().map(|line| line.trim_start().trim_start_matches("- "));
        lines.filter_map(|line| line.strip_prefix(key)).map(str::to_owned).collect()
    };
    assert!(named("app: ").iter().all(|name| name == "payroll"), "{:?}", named("app: "));
    // The Deployment's own, its selector's, its pods' and that of the spread; the budget's two; the Secret's; the Service's two.
    assert_eq!(named("app: ").len(), 4 + 2 + 1 + 2);
    assert_eq!([named("port: "), named("targetPort: ")].concat(), ["http", "http", "80", "http"]);
    assert!(named("name: ").contains(&"http".to_owned()) && named("name: ").contains(&"ADDRESS".to_owned()));
    assert!(named("name: ").contains(&"ANARCHON_STORE".to_owned()));
    assert_eq!(named("value: "), [format!("0.0.0.0:{}", value(&deployment, "containerPort"))]);
    let page = read("anarchon/src/guide/recipes.md");
    assert!(
        page.contains(&format!("`terminationGracePeriodSeconds: {grace}`")),
        "recipes.md has another one"
    );
    let secret = text("secret.yaml");
    let reference = format!("name: {}\n                  key: url", value(&secret, "name"));
    assert!(deployment.contains(&reference) && secret.contains("\n  url: "), "{reference:?}");
    assert_eq!(value(&text("disruption.yaml"), "minAvailable"), "2");
}

fn manifests() -> Vec<PathBuf> {
    let folder = fs::read_dir(root().join("examples/kubernetes")).unwrap();
    let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Runs it to its end: its exit code, and what it said on standard output and on standard error.
fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let [out, err] = [(); 2].map(|()| NamedTempFile::new().unwrap());
    command.stdout(out.reopen().unwrap()).stderr(err.reopen().unwrap());
    let code = Process::start(command).end();
    let said = |file: &NamedTempFile| fs::read_to_string(file.path()).unwrap();
    (code, said(&out), said(&err))
}

/// A recipe in a folder of its own, which has its store.
fn command(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(example(name));
    command.current_dir(folder).env("ANARCHON_STORE", "sqlite:anarchon.db").env_remove("ANARCHON_NAMESPACE");
    command
}

/// Starts a recipe that goes on until it is told to end.
fn start(name: &str, more: impl FnOnce(&mut Command) -> &mut Command) -> (TempDir, Running) {
    let folder = TempDir::new().unwrap();
    let running = Running::start(more(&mut command(name, folder.path())));
    (folder, running)
}
