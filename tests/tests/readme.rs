//! The README shows what is there: its program is the example, its links and commands lead somewhere.

use anarchon_tests::pages::{blocks_of, read, root};

#[test]
fn the_program_is_the_quickstart_example() {
    let shown = blocks_of(&read("README.md"), "rust,no_run").remove(0);
    let example = read("examples/examples/quickstart.rs");
    let code: String = example
        .lines()
        .skip_while(|line| line.starts_with("//!") || line.is_empty())
        .fold(String::new(), |code, line| code + line + "\n");
    assert_eq!(shown, code);
}

/// What a reader copies or follows is the same in both languages: blocks of code, names in the text, links and pictures.
#[test]
fn the_greek_page_shows_the_same() {
    let (english, greek) = (read("README.md"), read("README.el.md"));
    let odd = |text: &str, mark: &str| -> Vec<String> {
        text.split(mark).skip(1).step_by(2).map(str::to_owned).collect()
    };
    assert_eq!(odd(&english, "```"), odd(&greek, "```"));
    let prose = |text: &str| text.split("```").step_by(2).collect::<String>();
    assert_eq!(odd(&prose(&english), "`"), odd(&prose(&greek), "`"));
    let targets = |text: &str| -> Vec<String> {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        // Each page leads to the other.
        targets.filter(|target| !["README.md", "README.el.md"].contains(target)).map(str::to_owned).collect()
    };
    assert_eq!(targets(&english), targets(&greek));
    // The oldest servers.
    let versions = |text: &str| -> Vec<String> {
        text.split("≥ ").skip(1).map(|rest| rest.split(' ').next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(versions(&english), versions(&greek));
}

#[test]
fn links_and_commands_lead_somewhere() {
    for page in ["README.md", "README.el.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"] {
        let text = read(page);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let local = !link.starts_with("https://") && !link.starts_with('#');
            assert!(!local || root().join(link).exists(), "{page} links to {link}, which is not there");
        }
        for rest in text.split("cargo run --example ").skip(1) {
            let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
            let file = format!("examples/examples/{name}.rs");
            assert!(root().join(&file).exists(), "{page} names example {name}, which is not there");
        }
        for rest in text.split("`scripts/").skip(1) {
            let name = rest.split(['`', ' ']).next().unwrap();
            assert!(
                root().join("scripts").join(name).exists(),
                "{page} names scripts/{name}, which is not there"
            );
        }
    }
}

#[test]
fn the_oldest_rust_is_the_one_of_the_manifest() {
    let manifest = read("Cargo.toml");
    let version =
        manifest.split_once("rust-version = \"").and_then(|(_, rest)| rest.split('"').next()).unwrap();
    assert!(read("README.md").contains(&format!("Rust {version} or later")));
    assert!(read("README.el.md").contains(&format!("Rust {version} ή νεότερη")));
}

#[test]
fn the_features_are_those_of_the_manifest() {
    let manifest = read("anarchon/Cargo.toml");
    let features =
        manifest.split_once("[features]\n").and_then(|(_, rest)| rest.split("\n[").next()).unwrap();
    let names = features.lines().filter_map(|line| line.split_once(" = ").map(|(name, _)| name));
    let readme = read("README.md");
    for name in names.filter(|name| !["default", "full"].contains(name)) {
        assert!(readme.contains(&format!("`{name}`")), "the README does not name feature {name}");
    }
}
