//! Runs each example as a user would, and reads what it prints.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use anarchon_tests::{
    examples::{self, Running},
    servers::{
        nats,
        postgres::{Release, url},
        rabbitmq::{Broker, url as broker_url},
        redis::Kind,
    },
};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn quickstart_tells_each_run_and_ends_well_on_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = example("quickstart");
    let child = Running::start(command.current_dir(folder.path()).env_remove("ANARCHON_STORE"));
    let mut hellos = Vec::new();
    let said = child.read_until(|line| {
        hellos.extend(line.contains(": hello for ").then(|| line.to_owned()));
        hellos.len() == 2
    });
    assert_eq!(hellos.len(), 2, "{said}");
    assert_ne!(hellos[0], hellos[1], "each planned time runs once");
    assert!(folder.path().join("anarchon.db").is_file(), "the default store is a file here");
    child.signal(Signal::INT);
    let (code, rest) = child.end();
    assert_eq!(code, Some(0), "{said}{rest}");
}

#[test]
fn redis_tells_each_run_on_one_of_its_instances() {
    let server = Kind::Redis.start();
    tells_each_run_on_one_of_two(|| Running::start(example("redis").arg(Kind::Redis.url(server.port()))));
}

#[test]
fn nats_tells_each_run_on_one_of_its_instances() {
    let server = nats::Release::System.start();
    tells_each_run_on_one_of_two(|| Running::start(example("nats").arg(nats::url(server.port()))));
}

#[test]
fn rabbitmq_tells_each_run_on_one_of_its_instances() {
    let broker = Broker::start();
    let url = broker_url(broker.server.port());
    tells_each_run_on_one_of_two(|| Running::start(example("rabbitmq").arg(&url)));
}

fn tells_each_run_on_one_of_two(start: impl Fn() -> Running) {
    let (one, other) = (start(), start());
    let said = one.read_until(|line| line.contains(": report for "));
    for instance in [one, other] {
        instance.signal(Signal::INT);
        let (code, rest) = instance.end();
        assert_eq!(code, Some(0), "{said}{rest}");
    }
}

#[test]
fn three_instances_shows_a_takeover_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let output = run(example("three_instances").env("TMPDIR", folder.path()), b"");
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(began.elapsed() < Duration::from_secs(60), "it took {:?}", began.elapsed());

    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    let reports: Vec<_> = rows.iter().filter(|row| row.get(1) == Some(&"report")).collect();
    let words: Vec<_> = reports.iter().map(|row| row[3..row.len() - 1].join(" ")).collect();
    assert_eq!(words, ["started", "kill -9", "started", "done"], "{said}");
    assert!(reports.iter().all(|row| row[0] == reports[0][0]), "one planned time: {said}");
    assert_eq!(reports.iter().map(|row| row[2]).collect::<Vec<_>>(), ["1", "1", "2", "2"], "{said}");
    let tokens: Vec<u64> = reports.iter().map(|row| row[row.len() - 1].parse().unwrap()).collect();
    assert!(tokens[2] > tokens[0], "the token grows: {said}");
    assert!(said.contains("none ran twice"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the folder is empty again");
}

#[test]
fn three_instances_ends_its_children_on_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let child = Running::start(example("three_instances").env("TMPDIR", folder.path()));
    child.read_until(|line| line.contains(" ran "));
    let children = children_of(child.id());
    assert_eq!(children.len(), 3, "{children:?}");
    child.signal(Signal::INT);
    assert_eq!(child.end().0, Some(130));
    assert!(children.iter().all(|id| !Path::new(&format!("/proc/{id}")).exists()), "{children:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the folder is empty again");
}

#[test]
fn builder_shows_pause_trigger_and_resume() {
    let output = run(&mut example("builder"), b"");
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let parts: Vec<_> = said.split("an operator pauses sync, and runs digest now:\n").collect();
    let [before, after] = parts[..] else { panic!("{said}") };
    let (paused, resumed) = after.split_once("sync is resumed:\n").expect(&said);
    assert!(before.matches("  builder/sync/").count() >= 2, "{said}");
    assert!(paused.contains("  builder/digest/manual-1 (attempt 1)\n"), "{said}");
    assert!(resumed.contains("  builder/sync/"), "{said}");
    assert!(resumed.contains("no job \"digets\""), "{said}");
    assert!(said.ends_with("shut down\n"), "{said}");
}

#[test]
fn postgres_shares_the_reports_among_its_instances() {
    let server = Release::System.start();
    let start = || Running::start(example("postgres").env("DATABASE_URL", url(server.port())));
    let wrote = |line: &str| line.split_once(": wrote reports/report/").map(|(_, id)| id.to_owned());
    let mut said = Vec::new();
    let mut read = |child: &Running, wanted: usize| {
        let mut seen = 0;
        child.read_until(|line| {
            said.extend(wrote(line));
            seen += usize::from(wrote(line).is_some());
            seen == wanted
        })
    };
    let first = start();
    read(&first, 1);
    let second = start();
    let (rest_of_first, rest_of_second) = (read(&first, 2), read(&second, 2));
    assert!(!rest_of_first.is_empty() && !rest_of_second.is_empty());
    for child in [first, second] {
        child.signal(Signal::INT);
        let (code, rest) = child.end();
        assert_eq!(code, Some(0), "{rest}");
        said.extend(rest.lines().filter_map(wrote));
    }
    let all = said.len();
    assert!(all >= 5, "{said:?}");
    said.sort();
    said.dedup();
    assert_eq!(said.len(), all, "one was written twice");
}

#[test]
fn next_explains_a_schedule_and_marks_clock_changes() {
    let line = ["0 8 * * 1-5", "--tz", "Europe/Athens", "--after", "2026-03-27T00:00:00Z", "--count", "3"];
    let said = "\
at 08:00, Monday to Friday, Europe/Athens

2026-03-27T06:00:00Z      Fri 2026-03-27 08:00:00 +02:00
    -- clocks go forward 1 h between these
2026-03-30T05:00:00Z      Mon 2026-03-30 08:00:00 +03:00
2026-03-31T05:00:00Z      Tue 2026-03-31 08:00:00 +03:00
";
    assert_eq!(next(&line), (Some(0), said.to_owned()));
    let reordered = ["--count=3", "--after=2026-03-27T00:00:00Z", "0 8 * * 1-5", "--tz=Europe/Athens"];
    assert_eq!(next(&reordered), (Some(0), said.to_owned()));
}

#[test]
fn next_knows_the_three_kinds_and_the_quartz_dialect() {
    let after = ["--after", "2026-10-23T00:00:00Z"];
    for (arguments, part) in [
        (
            vec!["0 2 * * 0", "--tz", "Europe/Athens", "--count", "2"],
            "    -- clocks go back 1 h between these\n",
        ),
        (vec!["every 1h offset 5m", "--count", "1"], "2026-10-23T00:05:00Z "),
        (vec!["at 2027-01-01T00:00 2026-12-01T00:00Z", "--tz", "Europe/Athens"], "2026-12-31T22:00:00Z "),
        (vec!["at 2026-01-01T00:00Z"], "(no occurrence)"),
        (vec!["0 0 12 ? * 2", "--dialect", "quartz", "--count", "1"], "2026-10-26T12:00:00Z "),
        (vec!["--help"], "usage: next "),
    ] {
        let (code, said) = next(&[&arguments[..], &after[..]].concat());
        assert!(code == Some(0) && said.contains(part), "of {arguments:?}: {code:?} {said}");
    }
}

#[test]
fn next_answers_a_wrong_command_line_with_code_2_and_the_mend() {
    for (arguments, mend) in [
        (vec!["60 8 * * *"], "write 0 to 59"),
        (vec!["@daily", "--tz", "Europe/Athen"], "did you mean \"Europe/Athens\""),
        (vec!["@daily", "--after", "yesterday"], "write one such as"),
        (vec!["@daily", "--count", "-1"], "write a number from 0"),
        (vec!["@daily", "--count"], "lacks its value"),
        (vec!["@daily", "--count", "1", "--count", "2"], "given twice"),
        (vec!["@daily", "--zone", "UTC"], "unknown option"),
        (vec!["0", "8", "*", "*", "*"], "put the schedule in quotes"),
        (vec!["-", "--tz", "UTC"], "each line has its own"),
        (vec!["every"], "write \"every 10s\""),
        (vec!["every 5m", "--dialect", "quartz"], "leave it out"),
        (vec![], "schedule is missing"),
    ] {
        let output = run(example("next").args(&arguments), b"");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(2) && said.starts_with("error: ") && said.contains(mend),
            "of {arguments:?}: {said}"
        );
    }
}

#[test]
fn next_meets_every_line_of_the_test_data() {
    for file in ["cron-oracle.jsonl", "cron-cases.jsonl"] {
        let path = data_folder().join(file);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.len() >= 38, "{file} has {} lines", lines.len());
        let mut wrong = Vec::new();
        for (line, answer) in lines.iter().zip(answers(&lines.iter().map(asked).collect::<String>())) {
            let refused = line["invalid"] == true || line["never"] == true;
            let right =
                if refused { answer.starts_with("error: ") } else { answer == instants(line).join(" ") };
            if !right {
                wrong.push(format!("{line}\n    {answer}"));
            }
        }
        assert!(wrong.is_empty(), "{} wrong of {file}:\n{}", wrong.len(), wrong.join("\n"));
    }
}

/// The answers are one chain: each is also what follows the one before it.
#[test]
fn next_meets_the_test_data_step_by_step() {
    let text = std::fs::read_to_string(data_folder().join("cron-oracle.jsonl")).unwrap();
    let (mut asked, mut expected) = (String::new(), Vec::new());
    for line in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let mut after = line["after"].as_str().unwrap().to_owned();
        for instant in instants(&line) {
            asked += &format!("{}\t{}\t{after}\t1\n", text_of(&line, "expr"), text_of(&line, "tz"));
            after.clone_from(&instant);
            expected.push(instant);
        }
    }
    assert!(expected.len() > 10_000, "{} steps", expected.len());
    let began = Instant::now();
    let answers = answers(&asked);
    assert!(began.elapsed() < Duration::from_secs(30), "{} lines took {:?}", answers.len(), began.elapsed());
    assert_eq!(answers, expected);
}

#[test]
fn next_exits_with_1_when_a_line_failed_and_answers_the_others_all_the_same() {
    let good = "@daily\tUTC\t2026-01-01T00:00:00Z\t1\n";
    let answer = "2026-01-02T00:00:00Z\n";
    for (input, code) in [(String::new(), 0), (good.repeat(2), 0), (format!("{good}nonsense\n{good}"), 1)] {
        let output = run(example("next").arg("-"), input.as_bytes());
        assert_eq!(output.status.code(), Some(code), "of {input:?}");
        assert_eq!(stdout(&output).matches(answer).count(), input.matches(good).count(), "of {input:?}");
    }
}

/// What the help says of the lines is what is read: four fields, in the order that it names.
#[test]
fn next_documents_its_lines_and_its_exit_codes() {
    let (_, help) = next(&["--help"]);
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    for text in [&help, &readme] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("SCHEDULE<TAB>ZONE<TAB>INSTANT<TAB>N"), "{text}");
        assert!(text.contains("1 when a line was answered with an error"), "{text}");
    }
}

#[test]
fn next_answers_hostile_lines_each_with_one_line() {
    let error = |line: &[u8]| (line.to_vec(), "error: ");
    let long = [&b"1,".repeat(100_000)[..], b"x * * * *\tUTC\t2026-01-01T00:00:00Z\t1"].concat();
    let lines = [
        error(b""),
        error(b"\t"),
        error(b"\t\t\t"),
        error(b"* * * * *"),
        error(b"* * * * *\tUTC\t2026-01-01T00:00:00Z"),
        error(b"* * * * *\tUTC\t2026-01-01T00:00:00Z\t1\tmore"),
        error(b"* * * * *\t\t2026-01-01T00:00:00Z\t1"),
        error(b"* * * * *\t../../etc/passwd\t2026-01-01T00:00:00Z\t1"),
        error(b"* * * * *\tUTC\t2026-02-30T00:00:00Z\t1"),
        error(b"* * * * *\tUTC\t+999999-01-01T00:00:00Z\t1"),
        error(b"* * * * *\tUTC\t2026-01-01T00:00:00Z\t-1"),
        error(b"* * * * *\tUTC\t2026-01-01T00:00:00Z\t18446744073709551616"),
        error(b"* * * * *\tUTC\t2026-01-01T00:00:00Z\t10001"),
        error(b"\xff\xfe * * * *\tUTC\t2026-01-01T00:00:00Z\t1"),
        error(b"* * * * \0\x0b\x0c\x1b[31m\tUTC\t2026-01-01T00:00:00Z\t1"),
        error("٣ * * * *\tUTC\t2026-01-01T00:00:00Z\t1".as_bytes()),
        error(b"every 99999999999999999999w\tUTC\t2026-01-01T00:00:00Z\t1"),
        error(b"at\tUTC\t2026-01-01T00:00:00Z\t1"),
        error(&long),
        (b"* * * * *\tUTC\t9999-12-31T23:58:30Z\t5\r".to_vec(), "9999-12-31T23:59:00Z"),
        (b"@daily\tUTC\t2026-01-01T00:00:00+02:00\t1".to_vec(), "2026-01-01T00:00:00Z"),
        (b"every 12h\tUTC\t2026-01-01T00:00:00Z\t2".to_vec(), "2026-01-01T12:00:00Z 2026-01-02T00:00:00Z"),
        (b"@daily\tUTC\t2026-01-01T00:00:00Z\t0".to_vec(), ""),
        // Without a line end.
        (b"at 2020-01-01T00:00\tUTC\t2026-01-01T00:00:00Z\t1".to_vec(), ""),
    ];
    let input = lines.iter().map(|(line, _)| &line[..]).collect::<Vec<_>>().join(&b'\n');
    let output = run(example("next").arg("-"), &input);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let said = stdout(&output);
    let answers: Vec<_> = said.split_terminator('\n').collect();
    assert_eq!(answers.len(), lines.len());
    for ((line, expected), answer) in lines.iter().zip(answers) {
        let line = String::from_utf8_lossy(&line[..line.len().min(100)]);
        let right = if *expected == "error: " { answer.starts_with(expected) } else { answer == *expected };
        assert!(right && !answer.contains(char::is_control), "of {line:?}: {answer:?}");
    }
}

#[test]
fn next_survives_random_bytes() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    // Mostly what an expression is made of, so that some lines get far.
    let letters: &[u8] = b"0123456789*/,-LW#? \tUTC@:ZTz\xff\xc3\0";
    let input: Vec<u8> = (0..300_000)
        .map(|_| if random.u8(..) < 6 { b'\n' } else { letters[random.usize(..letters.len())] })
        .collect();
    let lines = input.split(|byte| *byte == b'\n').count() - usize::from(input.ends_with(b"\n"));
    let output = run(example("next").arg("-"), &input);
    assert_eq!(output.status.code(), Some(1), "seed {seed}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(stdout(&output).lines().count(), lines, "seed {seed}");
}

fn next(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(example("next").args(arguments), b"");
    (output.status.code(), stdout(&output))
}

fn answers(asked: &str) -> Vec<String> {
    let output = run(example("next").arg("-"), asked.as_bytes());
    let answers: Vec<_> = stdout(&output).lines().map(str::to_owned).collect();
    let failed = answers.iter().any(|answer| answer.starts_with("error: "));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(i32::from(failed)), "{stderr}");
    assert_eq!(answers.len(), asked.lines().count(), "one answer a line");
    answers
}

fn asked(line: &Value) -> String {
    let count = instants(line).len().max(1);
    format!("{}\t{}\t{}\t{count}\n", text_of(line, "expr"), text_of(line, "tz"), text_of(line, "after"))
}

fn instants(line: &Value) -> Vec<String> {
    let next = line["next"].as_array().unwrap_or_else(|| panic!("no next in {line}"));
    next.iter().map(|instant| instant.as_str().unwrap().to_owned()).collect()
}

fn text_of<'a>(line: &'a Value, name: &str) -> &'a str {
    line[name].as_str().unwrap_or_else(|| panic!("no {name} in {line}"))
}

/// What `ANARCHON_TEST_DATA` names, else `shared/data` beside the workspace or further up.
fn data_folder() -> PathBuf {
    if let Some(named) = std::env::var_os("ANARCHON_TEST_DATA") {
        return named.into();
    }
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("shared/data"));
    above.find(|dir| dir.is_dir()).expect("shared/data is missing; set ANARCHON_TEST_DATA to its place")
}

fn example(name: &str) -> Command {
    Command::new(examples::example(name))
}

fn run(command: &mut Command, input: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // While it is read, or both sides would wait for each other at full pipes.
        scope.spawn(move || {
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().unwrap()
    })
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn children_of(id: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let by_thread = children.unwrap_or_default();
    by_thread.split_whitespace().map(|id| id.parse().unwrap()).collect()
}
