//! The guide shows what is there: its links lead somewhere, its commands run, and what it has an operator ask a server is answered.
//!
//! What it shows in Rust is compiled as doc tests of anarchon; the rights in `security.md` are applied by the tests of each store.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anarchon::{protocol::Namespace, store::Store};
use anarchon_tests::{
    calls::{finish, register, win},
    examples::{Process, example},
    servers::{
        nats, postgres,
        rabbitmq::{self, Broker},
        redis,
        store::backend,
    },
    wait::until_so,
};
use rustix::process::Signal;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

#[test]
fn links_lead_somewhere_in_the_repository_and_in_rustdoc() {
    let labels = definitions(&read(&guide().join("links.md")));
    let pictures = definitions(&read(&guide().join("pictures.md")));
    for page in pages() {
        let text = read(&page);
        let shown = without_blocks(&text);
        let here = definitions(&text);
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
            let known = labels.contains_key(label) || pictures.contains_key(label);
            assert!(
                known || target.starts_with("https://"),
                "{}: rustdoc does not know [{label}]: it belongs into links.md",
                page.display()
            );
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
    let contents = read(&guide().join("mod.rs"));
    for page in pages() {
        let file = page.strip_prefix(guide()).unwrap().display().to_string();
        assert!(contents.contains(&format!("include_str!(\"{file}\")")), "mod.rs does not include {file}");
    }
    let first = |page: &Path| read(page).lines().next().unwrap().to_owned();
    for page in pages() {
        let first = first(&page);
        assert!(first.ends_with('.') && !first.starts_with('#'), "{}: begins with {first:?}", page.display());
    }
}

/// Each command as it stands, in a folder of its own that has the repository in it.
#[test]
fn commands_run() {
    let mut ran = 0;
    for page in pages().into_iter().chain([root().join("README.md")]) {
        if page.ends_with("security.md") {
            continue;
        }
        for block in blocks(&read(&page), "sh") {
            for line in block.lines().filter(|line| !line.is_empty()) {
                run(line, &page);
                ran += 1;
            }
        }
    }
    assert!(ran >= 5, "{ran} commands");
}

/// Those of examples are run with what stands behind them, and told to end once they have said something. What runs all tests
/// runs this one.
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
    let mut words = words(line).into_iter();
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
    let mut name = None;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--example" => name = words.next(),
            "-p" => assert_eq!(words.next().as_deref(), Some("anarchon-examples"), "{told}"),
            // The tests build all of them.
            "--features" => drop(words.next()),
            "--quiet" => {}
            "--" => break,
            _ => panic!("{told}: nobody knows {word}"),
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let said = folder.path().join("said");
    let out = fs::File::create(&said).unwrap();
    let mut child = Process::start(
        Command::new(example(&name.unwrap_or_else(|| panic!("{told}: which example?"))))
            .args(words)
            .env_remove("ANARCHON_STORE")
            .env_remove("ANARCHON_NAMESPACE")
            .envs(environment)
            .current_dir(folder.path())
            .env("TMPDIR", folder.path())
            .stdout(out.try_clone().unwrap())
            .stderr(out),
    );
    until_so(&format!("{told}: says something or ends"), || {
        child.has_ended() || fs::metadata(&said).unwrap().len() > 0
    });
    // One that goes on ends at the signal; one that ends by itself may be in the middle of it, and hears one that comes within 0.5 s
    // of another only once.
    until_so(&format!("{told}: ends"), || {
        child.signal(Signal::TERM);
        std::thread::sleep(Duration::from_millis(700));
        child.has_ended()
    });
    let said = read(&said);
    assert!(!said.contains("panicked") && !said.contains("rror:"), "{told} said:\n{said}");
}

#[tokio::test]
async fn what_an_operator_asks_postgresql_is_answered_and_all_can_be_removed() {
    let server = postgres::Release::System.start();
    let url = postgres::url(server.port());
    with_a_run(&*backend(&url)).await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let queries = blocks(&read(&guide().join("stores/postgres.md")), "sql");
    assert!(queries.len() >= 3);
    let mut rows = 0;
    for query in queries {
        rows += sqlx::raw_sql(AssertSqlSafe(query)).fetch_all(&mut connection).await.unwrap().len();
    }
    assert!(rows >= 2, "{rows} rows");
    let left = "SELECT 1 FROM pg_namespace WHERE nspname = 'anarchon'";
    assert!(sqlx::raw_sql(left).fetch_all(&mut connection).await.unwrap().is_empty(), "something is left");
}

#[tokio::test]
async fn what_an_operator_asks_redis_is_answered_and_all_can_be_removed() {
    let server = redis::Kind::Redis.start();
    with_a_run(&*backend(&redis::Kind::Redis.url(server.port()))).await;
    let ask = |line: &str| redis::command(server.port(), line).unwrap();
    let mut found = 0;
    for line in
        blocks(&read(&guide().join("stores/redis.md")), "redis").iter().flat_map(|block| block.lines())
    {
        let answer = ask(line);
        assert!(!answer.starts_with('-'), "{line}: {answer}");
        found += usize::from(line.starts_with("HGET ") && answer != "$-1\r\n");
    }
    assert_eq!(found, 1, "the record is in one of the hashes");
    assert_eq!(ask("DBSIZE"), ":0\r\n", "something is left: {}", ask("KEYS *"));
}

#[test]
fn settings_of_nats_are_understood() {
    for release in [nats::Release::System, nats::Release::Newer] {
        for block in blocks(&read(&guide().join("stores/nats.md")), "nats") {
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
    for line in blocks(&read(&guide().join("stores/rabbitmq.md")), "rabbitmqctl")
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
    register(store, "close_day").await;
    let token = win(store, "close_day", 1).await;
    store.finish(&[finish("close_day", token)]).await.remove(0).unwrap();
    store.close().await;
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

/// The blocks of code of this kind.
fn blocks(text: &str, kind: &str) -> Vec<String> {
    let fence = format!("```{kind}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
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

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn guide() -> PathBuf {
    root().join("anarchon/src/guide")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
