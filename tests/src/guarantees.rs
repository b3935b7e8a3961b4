//! The table of what each store promises, by what it says of itself to the conformance suite.

use std::{fs, path::Path, time::Duration};

use anarchon::store::{ClockSource, Durability, Guarantees, HeldRecord, LeaseScope};

/// Where the table stands, from the root of the repository. Both READMEs show the same lines.
pub const PAGES: [&str; 3] = ["anarchon/src/store/guarantees.md", "README.md", "README.el.md"];

const BEGIN: &str = "<!-- guarantees: written by the conformance run -->\n";
const END: &str = "<!-- end of guarantees -->\n";

const HEAD: [&str; 8] = [
    "store, as checked",
    "clock",
    "a lease belongs to",
    "a crash of the store keeps",
    "a fail-over can lose writes",
    "who reads and changes a record during a run",
    "instances announce themselves",
    "hints at changes",
];

/// The lines of the table, of stores with the set-up that was checked.
#[must_use]
pub fn table(stores: &[(&str, Guarantees)], checks: usize) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&HEAD.map(str::to_owned));
    text.push_str(&line(&HEAD.map(|_| "---".to_owned())));
    for (setup, store) in stores {
        text.push_str(&line(&cells(setup, store)));
    }
    format!(
        "{text}\nEach row has passed {checks} checks, which also assert what a store says that it cannot do.\n"
    )
}

fn cells(setup: &str, store: &Guarantees) -> [String; 8] {
    let lease = match &store.lease {
        LeaseScope::PerClaim if store.shortest_lease.is_zero() => "each run".to_owned(),
        LeaseScope::PerClaim => format!("each run, {} or more", seconds(store.shortest_lease)),
        LeaseScope::PerConnection(range) => {
            let (first, last) = (seconds(*range.start()), seconds(*range.end()));
            format!("each instance, {first} to {last} by default")
        }
        other => panic!("a column for {other:?}"),
    };
    let crash = match &store.durability {
        Durability::Fsync => "what it acknowledged".to_owned(),
        Durability::Periodic => "all but the newest writes".to_owned(),
        Durability::Replicated => "what a majority has".to_owned(),
        Durability::Unsafe(reason) => format!("nothing for sure: {reason}"),
        other => panic!("a column for {other:?}"),
    };
    let clock = match store.clock {
        ClockSource::Store => "of the store",
        ClockSource::Estimated => "of the store, as each instance estimates it",
        ClockSource::Local => "of each instance",
        other => panic!("a column for {other:?}"),
    };
    let held = match store.held {
        HeldRecord::Anybody => "everybody",
        HeldRecord::HolderOnly => "its own instance",
        other => panic!("a column for {other:?}"),
    };
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    [
        format!("{}{}{setup}", in_short(&store.store), if setup.is_empty() { "" } else { ", " }),
        clock.to_owned(),
        lease,
        crash,
        yes(store.loses_on_failover),
        held.to_owned(),
        yes(store.beat),
        yes(store.changes),
    ]
}

fn seconds(length: Duration) -> String {
    format!("{} s", length.as_secs())
}

/// With the first two numbers of a version: the third differs from one day to the next.
fn in_short(store: &str) -> String {
    let (store, _build) = store.split_once(" (").unwrap_or((store, ""));
    let short = |word: &str| match word.split('.').collect::<Vec<_>>()[..] {
        [first, second, _, ..] if first.parse::<u32>().is_ok() => {
            format!("{first}.{second}{}", if word.ends_with(',') { "," } else { "" })
        }
        _ => word.to_owned(),
    };
    store.split(' ').map(short).collect::<Vec<_>>().join(" ")
}

/// Whether a page says what the run found, on whichever versions are here.
///
/// # Errors
/// What to do when it does not.
pub fn check(root: &Path, table: &str) -> Result<(), String> {
    for page in PAGES {
        let path = root.join(page);
        let text = fs::read_to_string(&path).map_err(|error| format!("{page}: {error}"))?;
        let (before, told, after) =
            parts(&text).ok_or_else(|| format!("{page} lacks the marks of the table"))?;
        if std::env::var_os("ANARCHON_WRITE").is_none() {
            if unversioned(told) == unversioned(table) {
                continue;
            }
            return Err(format!(
                "{page} is out of date; ANARCHON_WRITE=1 writes this into it:\n{table}\ninstead of:\n{told}"
            ));
        }
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}"))
            .map_err(|error| format!("{page}: {error}"))?;
    }
    Ok(())
}

fn parts(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (told, after) = rest.split_once(END)?;
    Some((before, told, after))
}

/// Without versions, which depend on the machine.
fn unversioned(table: &str) -> String {
    let is_version = |word: &&str| !word.contains('.') || word.parse::<f64>().is_err();
    let line = |line: &str| match line.split_once(" | ") {
        Some((store, rest)) if line.starts_with("| ") => {
            let names: Vec<_> = store.split([' ', ',']).filter(is_version).collect();
            format!("{} | {rest}", names.join(" "))
        }
        _ => line.to_owned(),
    };
    table.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_machines_is_not_compared_and_all_else_is() {
        let one = table(&[("", Guarantees::new("Redis 7.0.15"))], 5);
        let other = table(&[("", Guarantees::new("Redis 8.2.1"))], 5);
        assert!(one.contains("| Redis 7.0 | of the store | each run |"), "{one}");
        assert_eq!(unversioned(&one), unversioned(&other));
        let mut different = Guarantees::new("Redis 7.0.15");
        different.loses_on_failover = true;
        assert_ne!(unversioned(&one), unversioned(&table(&[("", different)], 5)));
        assert_ne!(unversioned(&one), unversioned(&table(&[("", Guarantees::new("Valkey 7.0.15"))], 5)));
        assert_ne!(unversioned(&one), unversioned(&table(&[("", Guarantees::new("Redis 7.0.15"))], 6)));
        let cluster = table(&[("a Cluster", Guarantees::new("Redis 7.0.15 (built here)"))], 5);
        assert!(cluster.contains("| Redis 7.0, a Cluster | "), "{cluster}");
        assert_ne!(unversioned(&one), unversioned(&cluster));
    }

    #[test]
    fn a_page_is_cut_at_its_marks() {
        let text = format!("a\n{BEGIN}b\n{END}c\n");
        assert_eq!(parts(&text), Some(("a\n", "b\n", "c\n")));
        assert_eq!(parts("a"), None);
    }

    #[test]
    fn a_page_that_says_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let table = table(&[("", Guarantees::new("memory"))], 1);
        let write = |told: &str| {
            for page in PAGES {
                let path = folder.path().join(page);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{BEGIN}{told}{END}")).unwrap();
            }
        };
        write(&table);
        assert_eq!(check(folder.path(), &table), Ok(()));
        write(&table.replace("each run", "nobody"));
        assert!(check(folder.path(), &table).is_err_and(|error| error.contains("out of date")));
    }
}
