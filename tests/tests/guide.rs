//! The guide shows what is there: its links lead somewhere, its commands run, and what it has an operator ask a server is answered.
//!
//! What it shows in Rust is compiled as doc tests of anarchon; the rights in `security.md` are applied by the tests of each store. The
//! client programs of NATS are in no package of Debian, so that what is asked by them is only to be read.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anarchon::{
    protocol::{Announcement, Namespace},
    store::Store,
};
use anarchon_tests::{
    calls::{finish, instance, job, register, schedule, win},
    examples::{Process, example},
    pages::{blocks, blocks_of, guide, read, root},
    servers::{
        nats, postgres,
        rabbitmq::{self, Broker},
        redis,
        store::backend,
    },
    wait::until_so,
};
use rustix::process::Signal;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use tempfile::TempDir;

#[test]
fn links_lead_somewhere_in_the_repository_and_in_rustdoc() {
    let labels = definitions(&read(guide().join("links.md")));
    let pictures = definitions(&read(guide().join("pictures.md")));
    for page in pages() {
        let text = read(&page);
        let shown = without_blocks(&text);
        let here = definitions(&text);
        let defined = without_blocks(&text)
            .lines()
            .filter(|line| line.starts_with('[') && line.contains("]: "))
            .count();
        assert_eq!(defined, here.len(), "{}: a label is defined twice", page.display());
        for (label, target) in &here {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let led = page.parent().unwrap().join(file);
            assert!(
                target.starts_with("https://") || led.is_file(),
                "{}: [{label}] leads to {target}, which is not there",
                page.display()
            );
            if !anchor.is_empty() && file.ends_with(".md") {
                assert!(anchors(&read(&led)).contains(anchor), "{}: there is no {target}", page.display());
            }
            if target.starts_with("https://") {
                continue;
            }
            let of_rustdoc = labels.get(label).or(pictures.get(label));
            let of_rustdoc = of_rustdoc.unwrap_or_else(|| {
                panic!("{}: rustdoc does not know [{label}]: it belongs into links.md", page.display())
            });
            // An item has the name of its label there, and stands in the file that it leads to here.
            if let Some(item) = label.strip_prefix('`').and_then(|label| label.strip_suffix('`')) {
                let named = of_rustdoc.ends_with(&format!("::{item}"))
                    || of_rustdoc.ends_with(&format!("@crate::{item}"));
                assert!(named, "links.md: [{label}] leads to {of_rustdoc}");
                let name = item.rsplit("::").next().unwrap();
                let stands = read(&led);
                let stands = ["fn", "struct", "enum", "trait", "mod", "type"].iter().any(|kind| {
                    stands.contains(&format!("pub {kind} {name}"))
                        || stands.contains(&format!("pub async {kind} {name}"))
                }) || led.ends_with("mod.rs");
                assert!(stands, "{}: [{label}] is not in {target}", page.display());
            }
            // Of a page, that is the same page there.
            if let Some(module) = of_rustdoc.strip_prefix("crate::guide::") {
                let same = guide().join(module.replace("::", "/") + ".md");
                assert_eq!(
                    led.canonicalize().unwrap(),
                    same.canonicalize().unwrap(),
                    "{}: [{label}]",
                    page.display()
                );
            }
        }
        for label in used(&shown) {
            assert!(here.contains_key(label), "{}: [{label}] is defined nowhere", page.display());
        }
        for target in shown.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            match target.strip_prefix('#') {
                Some(anchor) => {
                    assert!(
                        anchors(&text).contains(anchor),
                        "{}: there is no part #{anchor}",
                        page.display()
                    );
                }
                // Of rustdoc alone, which checks it.
                None if target.starts_with("crate::") || target.starts_with("https://") => {}
                None => panic!(
                    "{}: ({target}) works in one of rustdoc and the repository only; use a label",
                    page.display()
                ),
            }
        }
    }
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let contents = read(guide().join("mod.rs"));
    let has = |right: &str| contents.lines().any(|line| line.trim_start() == right);
    let readmes = ["README.md", "README.el.md"].map(read);
    for page in pages() {
        let file = page.strip_prefix(guide()).unwrap().display().to_string();
        assert!(has(&format!("#[doc = include_str!(\"{file}\")]")), "mod.rs does not include {file}");
        let name = file.trim_end_matches(".md");
        let has_row = contents.contains(&format!("//! | [`{name}`] | ")) || name.contains('/');
        assert!(has_row, "the table of contents has no {name}");
        for readme in &readmes {
            assert!(
                readme.contains(&format!("(anarchon/src/guide/{file})")),
                "a README does not lead to {file}"
            );
        }
    }
    let first = |page: &Path| read(page).lines().next().unwrap().to_owned();
    for page in pages() {
        let first = first(&page);
        assert!(first.ends_with('.') && !first.starts_with('#'), "{}: begins with {first:?}", page.display());
    }
}

/// Each text is one that a source or a test of the macros or of the schedules has: its words, as what stands in quotes is the user's.
#[test]
fn the_build_errors_are_those_that_the_macros_give() {
    let code: String = ["anarchon-macros", "anarchon-schedule", "tests/ui"]
        .into_iter()
        .map(|folder| said_in(&root().join(folder)))
        .collect();
    let page = read(guide().join("jobs.md"));
    let (_, errors) = page.split_once("\n# Build errors\n").unwrap();
    let rows = errors.lines().filter(|line| line.starts_with("| `"));
    let texts: Vec<&str> = rows.map(|row| row[2..].split(" | ").next().unwrap()).collect();
    assert!(texts.len() > 100, "{} errors", texts.len());
    for text in texts {
        for words in fixed_words(text.trim_matches(['`', ' '])) {
            assert!(code.contains(&words), "jobs.md: no error says {words:?}, in {text}");
        }
    }
}

/// Each line of the log stands in the code, at its level and with its fields.
#[test]
fn the_lines_of_the_log_are_those_that_the_code_writes() {
    let [code, schedules] =
        ["anarchon/src", "anarchon-schedule/src"].map(|folder| said_in(&root().join(folder)));
    let page = read(guide().join("operating.md"));
    let mut lines = 0;
    for (heading, level) in [("## Errors\n", "error!("), ("## Warnings\n", "warn!("), ("## Info\n", "info!(")]
    {
        let (_, part) = page.split_once(heading).unwrap();
        let events: Vec<&str> =
            code.split(level).skip(1).map(|rest| rest.split(");").next().unwrap()).collect();
        let table = part.lines().skip_while(|line| !line.starts_with("| line |")).skip(2);
        for row in table.take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.split(" | ").collect();
            // Which side is put in, as what is written `…`.
            let line = cells[0][2..].replace("ahead of (behind)", "…");
            let words: Vec<&str> = line.split('…').map(str::trim).filter(|words| words.len() > 5).collect();
            // What the schedules warn of is handed on.
            if line.starts_with("zone …") {
                assert!(
                    words.iter().all(|words| schedules.contains(words.trim_start_matches("; "))),
                    "{words:?}"
                );
                continue;
            }
            let found: Vec<_> =
                events.iter().filter(|event| words.iter().all(|words| event.contains(words))).collect();
            assert!(!found.is_empty(), "operating.md: no {level} says {words:?}");
            for field in cells[1].trim_end_matches(" |").split(", ").filter(|field| !field.is_empty()) {
                assert!(
                    found.iter().any(|event| event.contains(field)),
                    "operating.md: {line:?} has no field {field}"
                );
            }
            lines += 1;
        }
    }
    assert!(lines > 35, "{lines} lines");
}

/// All that stands in the Rust files of a folder, with texts of several lines as one.
fn said_in(folder: &Path) -> String {
    let mut said = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            said += &said_in(&path);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = read(&path).replace("\\\"", "\"");
            said += text.split("\\\n").map(str::trim_start).collect::<String>().as_str();
        }
    }
    said
}

/// The words of a message that are the same whatever the user wrote.
fn fixed_words(message: &str) -> Vec<String> {
    let mut fixed = vec![String::new()];
    let mut quote = None;
    for c in message.chars() {
        match quote {
            Some(mark) if c == mark => quote = None,
            Some(_) => {}
            None if ['"', '`', '…', ';', ':', ',', '+'].contains(&c) || c.is_ascii_digit() => {
                quote = ['"', '`'].contains(&c).then_some(c);
                fixed.push(String::new());
            }
            None => fixed.last_mut().unwrap().push(c),
        }
    }
    let trimmed = fixed.into_iter().map(|words| words.trim().trim_end_matches(" in").to_owned());
    trimmed.filter(|words| words.len() >= 10).collect()
}

/// Each command as it stands, in a folder of its own.
#[test]
fn commands_run() {
    let mut ran = 0;
    for page in pages().into_iter().chain([root().join("README.md")]) {
        for block in blocks_of(&read(&page), "sh") {
            // What the tests of the stores apply, from the same page.
            let is_grant = |line: &str| {
                page.ends_with("security.md") && GRANTS.iter().any(|with| line.starts_with(with))
            };
            for line in block.lines().filter(|line| !is_grant(line)) {
                run(line, &page);
                ran += 1;
            }
        }
    }
    assert!(ran >= 20, "{ran} commands");
}

const GRANTS: [&str; 2] = ["rabbitmqctl ", "install -d "];

/// Those of the examples that end by themselves; the others go on until they are told to end.
const END_BY_THEMSELVES: [&str; 6] =
    ["builder", "long_job", "mail_once", "next", "three_instances", "two_services"];

/// Those of examples are run with what stands behind them, and told to end once they have started. What runs all tests runs this one.
fn run(line: &str, page: &Path) {
    let told = format!("{}: {line}", page.display());
    if let Some(rest) = line.strip_prefix("cargo test -p anarchon-tests --test ") {
        let name = rest.split(' ').next().unwrap();
        assert!(root().join(format!("tests/tests/{name}.rs")).is_file(), "{told}: there is no such test");
        return;
    }
    if let Some(name) = line.strip_prefix("scripts/").and_then(|rest| rest.split(' ').next()) {
        assert!(root().join("scripts").join(name).is_file(), "{told}: there is no such script");
        return;
    }
    let (input, command) =
        line.split_once(" | ").map_or((None, line), |(input, command)| (Some(input), command));
    let mut words = words(command).into_iter();
    let mut environment = BTreeMap::new();
    let mut word = words.next();
    while let Some((name, value)) = word.as_deref().and_then(|word| word.split_once('=')) {
        environment.insert(name.to_owned(), value.to_owned());
        word = words.next();
    }
    assert_eq!(
        (word.as_deref(), words.next().as_deref()),
        (Some("cargo"), Some("run")),
        "{told}: nobody runs this"
    );
    let (mut name, mut features) = (None, String::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--example" => name = words.next(),
            "-p" => assert_eq!(words.next().as_deref(), Some("anarchon-examples"), "{told}"),
            "--features" => features = words.next().unwrap_or_default(),
            "--quiet" => {}
            "--" => break,
            _ => panic!("{told}: nobody knows {word}"),
        }
    }
    let name = name.unwrap_or_else(|| panic!("{told}: which example?"));
    assert_eq!(features, required_features(&name), "{told}: its features");
    let folder = TempDir::new().unwrap();
    let said = folder.path().join("said");
    let out = File::create(&said).unwrap();
    let mut child = Command::new(example(&name));
    let child = child
        .args(words)
        .env_remove("ANARCHON_STORE")
        .env_remove("ANARCHON_NAMESPACE")
        .env("ADDRESS", "127.0.0.1:0")
        .envs(environment)
        .env("TMPDIR", folder.path())
        .current_dir(folder.path())
        .stdout(out.try_clone().unwrap())
        .stderr(out);
    let mut child = match input {
        Some(input) => {
            let input = Command::new("sh").args(["-c", input]).output().unwrap();
            let file = folder.path().join("input");
            fs::write(&file, input.stdout).unwrap();
            Process::reading(child, File::open(file).unwrap())
        }
        None => Process::start(child),
    };
    if !END_BY_THEMSELVES.contains(&name.as_str()) {
        until_so(&format!("{told}: has started"), || {
            assert!(!child.has_ended(), "{told}: ended by itself, and said:\n{}", read(&said));
            read(&said).contains("scheduler started")
        });
        child.signal(Signal::TERM);
    }
    let code = child.end();
    let said = read(&said);
    assert_eq!(code, Some(0), "{told} said:\n{said}");
    // The mail's first attempt is one that fails.
    let has_error = said.contains("ERROR") && name != "mail_once";
    assert!(!said.is_empty() && !said.contains("panicked") && !has_error, "{told} said:\n{said}");
}

/// What stands for an example in the manifest of the examples, as cargo takes it.
fn required_features(name: &str) -> String {
    let manifest = read("examples/Cargo.toml");
    let mut parts = manifest.split("[[example]]");
    let part = parts.find(|part| part.contains(&format!("\nname = \"{name}\"\n"))).unwrap_or_default();
    let list =
        part.split_once("required-features = [").map_or("", |(_, rest)| rest.split(']').next().unwrap());
    list.replace(['"', ' '], "")
}

#[tokio::test]
async fn what_an_operator_asks_sqlite_is_answered() {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("anarchon.db").display());
    let store = backend(&url);
    store.open(&Namespace::new("payroll").unwrap()).await.unwrap();
    a_run(&*store).await;
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let (mut rows, mut copies) = (0, 0);
    for line in
        blocks_of(&read(guide().join("stores/sqlite.md")), "sqlite3").iter().flat_map(|block| block.lines())
    {
        let asked = words(line);
        let (what, before) = asked.split_last().unwrap();
        assert!(
            ["sqlite3 anarchon.db", "sqlite3 -readonly anarchon.db"].contains(&before.join(" ").as_str()),
            "{line}"
        );
        // The shell's own command for a copy; in SQL it is a statement.
        let (query, is_copy) = match what.strip_prefix(".backup ") {
            Some(to) => (
                format!(
                    "VACUUM INTO {}",
                    to.replace("/backup", &folder.path().join("copy").display().to_string())
                ),
                true,
            ),
            None => (what.clone(), false),
        };
        copies += usize::from(is_copy);
        fs::create_dir_all(folder.path().join("copy")).unwrap();
        rows += sqlx::raw_sql(AssertSqlSafe(query)).fetch_all(&mut connection).await.unwrap().len();
    }
    store.close().await;
    // The job, its run and the instance.
    assert_eq!((rows, copies), (3, 1));
}

#[tokio::test]
async fn what_an_operator_asks_postgresql_is_answered_and_all_can_be_removed() {
    let release = postgres::Release::System;
    let server = release.start();
    let url = postgres::url(server.port());
    with_a_run(&*backend(&url)).await;
    dump(release, &url);
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let queries = blocks_of(&read(guide().join("stores/postgres.md")), "sql");
    assert!(queries.len() >= 3);
    let mut rows = 0;
    for query in queries {
        rows += sqlx::raw_sql(AssertSqlSafe(query)).fetch_all(&mut connection).await.unwrap().len();
    }
    assert!(rows >= 2, "{rows} rows");
    let left = "SELECT 1 FROM pg_namespace WHERE nspname = 'anarchon'";
    assert!(sqlx::raw_sql(left).fetch_all(&mut connection).await.unwrap().is_empty(), "something is left");
}

/// With and without the schema, as the page says.
fn dump(release: postgres::Release, url: &str) {
    let page = read(guide().join("stores/postgres.md"));
    let lines: Vec<Vec<String>> =
        blocks_of(&page, "pg_dump").iter().flat_map(|block| block.lines()).map(words).collect();
    let has_table = |line: &Vec<String>| {
        let [program, options @ .., _] = &line[..] else { panic!("{line:?}") };
        let beside = release.programs().join(program);
        let program = if beside.is_file() { beside } else { program.into() };
        let output = Command::new(&program).args(options).arg(url).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).contains("CREATE TABLE anarchon.job ")
    };
    assert_eq!(lines.iter().map(has_table).collect::<Vec<_>>(), [false, true]);
}

/// The server takes them, and keeps them.
#[test]
fn settings_of_redis_are_understood() {
    let page = read(guide().join("stores/redis.md"));
    let blocks = blocks_of(&page, "redis-conf");
    let lines: Vec<(&str, &str)> =
        blocks.iter().flat_map(|block| block.lines()).map(|line| line.split_once(' ').unwrap()).collect();
    assert!(lines.len() >= 4);
    for kind in [redis::Kind::Redis, redis::Kind::Valkey] {
        // Here there is no such address.
        let settings: Vec<_> = lines.iter().filter(|(name, _)| *name != "bind").collect();
        let server =
            kind.with(settings.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]));
        for (name, value) in settings {
            let answer = redis::command(server.port(), &format!("CONFIG GET {name}")).unwrap();
            assert!(answer.contains(&format!("\r\n{value}\r\n")), "{name}: {answer}");
        }
    }
}

#[tokio::test]
async fn what_an_operator_asks_redis_is_answered_and_all_can_be_removed() {
    let server = redis::Kind::Redis.start();
    with_a_run(&*backend(&redis::Kind::Redis.url(server.port()))).await;
    let ask = |line: &str| redis::command(server.port(), line).unwrap();
    let mut found = 0;
    for line in
        blocks_of(&read(guide().join("stores/redis.md")), "redis").iter().flat_map(|block| block.lines())
    {
        let answer = ask(line);
        assert!(!answer.starts_with('-'), "{line}: {answer}");
        found += usize::from(line.starts_with("HGET ") && answer != "$-1\r\n");
        // The record is in one of the hashes, and that is not said to be the first.
        assert!(
            !line.contains(":members") || answer.contains("\r\na\r\n") || line.starts_with("DEL "),
            "{line}: {answer}"
        );
    }
    assert_eq!(found, 1, "the record is in one of the hashes");
    assert_eq!(ask("DBSIZE"), ":0\r\n", "something is left: {}", ask("KEYS *"));
}

#[test]
fn settings_of_nats_are_understood() {
    for release in [nats::Release::System, nats::Release::Newer] {
        for block in blocks_of(&read(guide().join("stores/nats.md")), "nats") {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("server.conf");
            fs::write(&file, &block).unwrap();
            let output = Command::new(release.program()).arg("-t").arg("-c").arg(&file).output().unwrap();
            assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[tokio::test]
async fn what_an_operator_asks_rabbitmq_is_answered() {
    let broker = Broker::start();
    with_a_run(&*backend(&rabbitmq::url(broker.server.port()))).await;
    let mut answers = String::new();
    for line in blocks_of(&read(guide().join("stores/rabbitmq.md")), "rabbitmqctl")
        .iter()
        .flat_map(|block| block.lines())
    {
        let words = words(line);
        assert_eq!(words[0], "rabbitmqctl");
        answers += &broker.ctl(&words[1..].iter().map(String::as_str).collect::<Vec<_>>());
    }
    assert!(answers.contains("close_day"), "{answers}");
}

/// A job of the guide that has run.
async fn with_a_run(store: &dyn Store) {
    store.open(&Namespace::new("payroll").unwrap()).await.unwrap();
    a_run(store).await;
    store.close().await;
}

/// A run of it, by an instance that has announced itself where the store has announcements.
async fn a_run(store: &dyn Store) {
    register(store, "close_day").await;
    let announcement = Announcement::Present {
        instance: instance("a"),
        schedules: vec![(job("close_day"), schedule())],
        zones: "2025b".to_owned(),
        contested: Vec::new(),
    };
    // RabbitMQ has no announcements.
    let _ = store.beat(&announcement).await;
    let token = win(store, "close_day", 1).await;
    store.finish(&[finish("close_day", token)]).await.remove(0).unwrap();
}

/// The pages, those about stores too.
fn pages() -> Vec<PathBuf> {
    let all = [guide(), guide().join("stores")].into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = all.map(|entry| entry.unwrap().path());
    let is_page = |file: &PathBuf| {
        file.extension().is_some_and(|kind| kind == "md")
            && !file.ends_with("links.md")
            && !file.ends_with("pictures.md")
    };
    let pages: Vec<PathBuf> = files.filter(is_page).collect();
    assert!(pages.len() >= 20, "{} pages", pages.len());
    pages
}

/// What is not in this list is seen by nobody.
#[test]
fn each_block_is_of_a_kind_that_is_tested_or_only_to_be_read() {
    let tested =
        ["rust,no_run", "sh", "sql", "sqlite3", "pg_dump", "redis", "redis-conf", "nats", "rabbitmqctl"];
    for page in pages() {
        let text = read(&page);
        for (kind, block) in blocks(&text) {
            let is_read = ["text", "toml"].contains(&kind) && !block.contains("cargo run --example");
            assert!(
                is_read || tested.contains(&kind),
                "{}: nobody looks at\n```{kind}\n{block}",
                page.display()
            );
        }
    }
}

/// The labels of links and where they lead.
fn definitions(text: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
        Some((label.to_owned(), target.to_owned()))
    };
    without_blocks(text).lines().filter_map(line).collect()
}

/// The labels that the text uses: `[text][label]`, and items in code, which are their own label.
fn used(text: &str) -> BTreeSet<&str> {
    let explicit = text.split("][").skip(1).filter_map(|rest| rest.split(']').next());
    let items = text.split("[`").skip(1).filter_map(|rest| {
        let (item, behind) = rest.split_once("`]")?;
        (!behind.starts_with(['(', '[', ':'])).then_some(item)
    });
    let items: Vec<&str> = items.collect();
    // With its marks, as it is defined.
    let marked = items.into_iter().map(|item| {
        let start = text.find(&format!("`{item}`]")).unwrap();
        &text[start..start + item.len() + 2]
    });
    explicit.chain(marked).collect()
}

/// The anchors of the headings, as rustdoc and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let text = without_blocks(text);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        kept.chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    headings.map(slug).collect()
}

/// The text outside of blocks of code.
fn without_blocks(text: &str) -> String {
    let mut inside = false;
    let outside = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        !inside && !is_fence
    };
    text.lines().filter(outside).fold(String::new(), |text, line| text + line + "\n")
}

/// As a shell reads them, with double quotes.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    let mut words = vec![String::new()];
    for (number, part) in parts {
        if number % 2 == 1 {
            words.last_mut().unwrap().push_str(part);
            continue;
        }
        let mut pieces = part.split(' ');
        words.last_mut().unwrap().push_str(pieces.next().unwrap());
        words.extend(pieces.map(str::to_owned));
    }
    words.retain(|word| !word.is_empty());
    words
}
