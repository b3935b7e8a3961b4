//! A module imports only from a lower floor or from its own: the sources are read against one table.

#![expect(clippy::unwrap_used, reason = "the lint spares test functions, but not what they call")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The floor of each module of `anarchon/src`; the longest path that fits counts.
const FLOORS: [(&str, u8); 24] = [
    // Pure: what a record means.
    ("protocol", 1),
    // Stores and runtime read clocks through its trait.
    ("clock", 1),
    ("policy", 1),
    // Knows the errors of stores.
    ("error", 2),
    ("engine", 2),
    // The trait; each backend is one floor up.
    ("store", 2),
    ("store::connect", 3),
    ("store::host_clock", 3),
    ("store::json", 3),
    ("store::memory", 3),
    ("store::nats", 3),
    ("store::observed", 3),
    ("store::postgres", 3),
    ("store::rabbitmq", 3),
    ("store::redis", 3),
    ("store::sqlite", 3),
    ("store::url", 3),
    ("handler", 3),
    ("context", 3),
    ("job", 3),
    ("runtime", 4),
    ("conformance", 4),
    ("registration", 5),
    ("builder", 5),
];

/// The crate root, the prelude and the guide see everything.
const TOP: u8 = 6;

/// Imports that the floors would allow and that are wrong all the same.
const NEVER: [(&str, &[&str]); 2] =
    [("protocol", &["clock", "policy"]), ("store", &["engine", "policy", "handler", "context", "job"])];

#[test]
fn modules_import_only_from_their_own_floor_or_below() {
    let sources = sources(&root().join("anarchon/src"));
    let seen: usize = sources.iter().map(|(file, text)| imports(text, &module_of(file)).len()).sum();
    assert!(sources.len() >= 20 && seen >= 100, "{seen} imports in {} files", sources.len());
    let wrong = check(&sources);
    assert!(wrong.is_empty(), "imports that go up:\n{}", wrong.join("\n"));
}

#[test]
fn every_module_has_a_floor() {
    for (file, _) in sources(&root().join("anarchon/src")) {
        let module = module_of(&file);
        let known = ["", "prelude", "guide"].contains(&first(&module)) || entry(&module).is_some();
        assert!(known, "{file} is on no floor; give it one in FLOORS");
    }
}

#[test]
fn the_checker_names_an_import_that_goes_up() {
    let lib = ("lib.rs", "mod engine;\npub use builder::{Running, Scheduler};\npub use error::Result;");
    for (file, text, said) in [
        (
            "protocol/claim.rs",
            "use crate::engine::Engine;",
            Some("protocol/claim.rs:1: protocol::claim is on floor 1"),
        ),
        (
            "engine/due.rs",
            "\nuse crate::{\n    clock::Mono,\n    runtime::run::{self, Run},\n};",
            Some("engine/due.rs:4:"),
        ),
        ("engine/due.rs", "fn f() -> crate::job::Job {}", Some("crate::job::Job is on floor 3")),
        ("store/mod.rs", "use super::runtime::Plan;", Some("crate::runtime::Plan is on floor 4")),
        ("store/mod.rs", "use crate::store::memory::MemoryBackend;", Some("floor 3")),
        ("store/sqlite/mod.rs", "use crate::engine::Engine;", Some("store never imports engine")),
        ("protocol/mod.rs", "use crate::policy::Options;", Some("protocol never imports policy")),
        ("job.rs", "use crate::Scheduler;", Some("crate::builder::Scheduler is on floor 5")),
        ("runtime/run.rs", "use crate::builder;", Some("floor 5")),
        ("new.rs", "use crate::protocol::Claim;", Some("new.rs is on no floor")),
        ("engine/due.rs", "/// As `crate::runtime` does.\nuse crate::{clock::Mono, policy};", None),
        ("engine/due.rs", "#[cfg(test)]\nmod tests {\n    use crate::runtime::Plan;\n}", None),
        ("store/sqlite/mod.rs", "fn f() -> crate::Result {}\nuse super::{Store, StoreError};", None),
        ("job.rs", "use crate::{context::Context, handler::Handler};", None),
        ("prelude.rs", "pub use crate::{Scheduler};", None),
    ] {
        let sources = [lib, (file, text)].map(|(file, text)| (file.to_owned(), text.to_owned()));
        let wrong = check(&sources).join("\n");
        match said {
            Some(said) => assert!(wrong.contains(said), "of {text:?} in {file}: {wrong:?}"),
            None => assert_eq!(wrong, "", "of {text:?} in {file}"),
        }
    }
}

#[test]
fn crates_depend_downwards_only() {
    let depends_on = |member: &str| {
        let manifest = fs::read_to_string(root().join(member).join("Cargo.toml")).unwrap();
        own_dependencies(&manifest)
    };
    assert_eq!(depends_on("anarchon-schedule"), [""; 0]);
    assert_eq!(depends_on("anarchon-macros"), ["anarchon-schedule"]);
    assert_eq!(depends_on("anarchon"), ["anarchon-macros", "anarchon-schedule"]);
}

#[test]
fn no_crate_has_unsafe_code_and_none_can_allow_it() {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    // What is forbidden, and not denied alone, no attribute can allow again.
    assert!(section(&workspace, "workspace.lints.rust").contains("unsafe_code = \"forbid\"\n"));
    let members = workspace.lines().find_map(|line| line.strip_prefix("members = [")).unwrap();
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    let manifests =
        fs::read_dir(root()).unwrap().flatten().filter(|at| at.path().join("Cargo.toml").is_file());
    assert_eq!(members.len(), manifests.count(), "a crate is not of the workspace");
    for member in members {
        let manifest = fs::read_to_string(root().join(member).join("Cargo.toml")).unwrap();
        assert_eq!(section(&manifest, "lints").trim(), "workspace = true", "the lints of {member}");
    }
}

/// The lines of one section of a manifest.
fn section<'a>(manifest: &'a str, name: &str) -> &'a str {
    let (_, rest) = manifest.split_once(&format!("\n[{name}]\n")).unwrap_or_else(|| panic!("no [{name}]"));
    rest.split("\n[").next().unwrap_or_default()
}

#[test]
fn the_reader_of_manifests_sees_each_form_of_a_dependency() {
    let manifest = "[package]\nname = \"anarchon-x\"\n[dependencies]\nanarchon.workspace = true\nserde = \"1\"\n\
        [target.'cfg(unix)'.dev-dependencies]\nanarchon-macros = { path = \"..\" }\n[build-dependencies.anarchon-schedule]\n\
        path = \"..\"\n[dependencies]\nrenamed = { package = \"anarchon-tests\", path = \"..\" }\n";
    let expected = ["anarchon", "anarchon-macros", "anarchon-schedule", "anarchon-tests"];
    assert_eq!(own_dependencies(manifest), expected);
}

/// One line for each import that is wrong.
fn check(sources: &[(String, String)]) -> Vec<String> {
    let lib = sources.iter().find(|(file, _)| file == "lib.rs").map_or("", |(_, text)| text);
    let exported = exported(lib);
    let mut wrong = Vec::new();
    for (file, text) in sources.iter().filter(|(file, _)| !is_test(file)) {
        let module = module_of(file);
        let floor = match (first(&module), entry(&module)) {
            ("" | "prelude" | "guide", _) => TOP,
            (_, Some(floor)) => floor,
            (_, None) => {
                wrong.push(format!("{file} is on no floor; give it one in FLOORS"));
                continue;
            }
        };
        for (line, path) in imports(text, &module) {
            // A name that the crate root passes on is where it comes from.
            let from = exported.get(first(&path)).map_or(path.clone(), |from| format!("{from}::{path}"));
            let theirs = entry(&from).unwrap_or(TOP);
            if theirs > floor {
                wrong.push(format!(
                    "{file}:{line}: {module} is on floor {floor}, crate::{from} is on floor {theirs}"
                ));
            }
            let (importer, imported) = (first(&module), first(&from));
            if NEVER.iter().any(|(who, what)| *who == importer && what.contains(&imported)) {
                wrong.push(format!("{file}:{line}: {importer} never imports {imported}"));
            }
        }
    }
    wrong
}

fn entry(path: &str) -> Option<u8> {
    let fits =
        |place: &str| path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    FLOORS
        .iter()
        .filter(|(place, _)| fits(place))
        .max_by_key(|(place, _)| place.len())
        .map(|(_, floor)| *floor)
}

fn first(path: &str) -> &str {
    path.split("::").next().unwrap_or_default()
}

/// `store/sqlite/mod.rs` is `store::sqlite`, `lib.rs` is nothing.
fn module_of(file: &str) -> String {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if path == "lib" { String::new() } else { path.replace('/', "::") }
}

fn is_test(file: &str) -> bool {
    file.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// The names that the crate root passes on, and the modules that they come from.
fn exported(lib: &str) -> BTreeMap<String, String> {
    let code = code(lib);
    let uses = code.match_indices("pub use ").flat_map(|(at, found)| tree(&code[at + found.len()..]));
    uses.filter_map(|path| path.rsplit_once("::").map(|(from, name)| (name.to_owned(), from.to_owned())))
        .filter(|(_, from)| !from.starts_with("anarchon_"))
        .collect()
}

/// What a file names of its own crate, and on which line: `crate::…` anywhere, `super::…` where it imports at top level.
fn imports(text: &str, module: &str) -> Vec<(usize, String)> {
    let code = code(text);
    let mut starts = Vec::new();
    for (at, word) in code.match_indices("crate::") {
        let whole = !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
        starts.extend(whole.then_some((at + word.len(), "")));
    }
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    starts.extend(code.match_indices("\nuse super::").map(|(at, word)| (at + word.len(), parent)));
    let mut found = Vec::new();
    for (at, mut parent) in starts {
        for mut path in tree(&code[at..]) {
            while let Some(rest) = path.strip_prefix("super::") {
                parent = parent.rsplit_once("::").map_or("", |(above, _)| above);
                path = rest.to_owned();
            }
            let name = path.rsplit("::").find(|part| !matches!(*part, "*" | "self")).unwrap_or_default();
            let line = code[..at + code[at..].find(name).unwrap_or(0)].matches('\n').count();
            found.push((line, if parent.is_empty() { path } else { format!("{parent}::{path}") }));
        }
    }
    found
}

/// The text without comments and without the tests at its end, behind one newline.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.fold(String::new(), |code, line| code + "\n" + line)
}

/// The paths of a use tree: `a::{b, c::D}` is `a::b` and `a::c::D`.
fn tree(text: &str) -> Vec<String> {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        return branches(group).into_iter().flat_map(tree).collect();
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '*').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match (name, rest.strip_prefix("::")) {
        ("", _) => Vec::new(),
        (_, Some(rest)) => match tree(rest) {
            // A turbofish ends the path.
            deeper if deeper.is_empty() => vec![name.to_owned()],
            deeper => deeper.into_iter().map(|path| format!("{name}::{path}")).collect(),
        },
        (_, None) => vec![name.to_owned()],
    }
}

/// The parts of a group up to its closing brace, split at its own commas.
fn branches(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_u32, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match (c, depth) {
            ('{', _) => depth += 1,
            ('}', 0) => {
                parts.push(&group[start..at]);
                return parts;
            }
            ('}', _) => depth -= 1,
            (',', 0) => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts
}

/// The crates of this workspace that a manifest depends on, in whatever section, sorted.
fn own_dependencies(manifest: &str) -> Vec<String> {
    let (mut inside, mut found) = (false, Vec::new());
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies");
            found.extend(section.rsplit_once("dependencies.").map(|(_, name)| name.to_owned()));
        } else if inside {
            let key = line.split(['.', '=', ' ']).next().unwrap_or_default();
            let package = line.split_once("package = \"").and_then(|(_, rest)| rest.split('"').next());
            found.push(package.unwrap_or(key).to_owned());
        }
    }
    found.retain(|name| name == "anarchon" || name.starts_with("anarchon-"));
    found.sort();
    found.dedup();
    found
}

fn sources(folder: &Path) -> Vec<(String, String)> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                files.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
