//! Tables in Markdown: printed line by line, and put into the page of the guide for who asks for that.

use std::{
    collections::BTreeSet,
    fmt::{self, Display, Write as _},
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

/// The page.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../anarchon/src/guide/cost.md");

/// A table with this name.
pub struct Table {
    name: &'static str,
    command: String,
    columns: usize,
    text: String,
    versions: BTreeSet<String>,
    /// How many lines could not be had.
    failed: usize,
}

impl Table {
    /// As this command makes it.
    pub fn new(name: &'static str, command: String) -> Self {
        Self { name, command, columns: 0, text: String::new(), versions: BTreeSet::new(), failed: 0 }
    }

    /// The first line. So many columns of words come first; all others but those named with a star are numbers.
    pub fn head(&mut self, columns: &[&str], words: usize) {
        self.columns = columns.len();
        let rule = columns
            .iter()
            .enumerate()
            .map(|(i, name)| if i < words || name.starts_with('*') { "---" } else { "---:" });
        let rule = rule.collect::<Vec<_>>().join(" | ");
        let names: Vec<&str> = columns.iter().map(|name| name.trim_start_matches('*')).collect();
        self.line(names.join(" | "));
        self.line(rule);
    }

    /// One more line, as what stands between its first and its last bar.
    pub fn line(&mut self, cells: impl Display) {
        println!("| {cells} |");
        let _ = writeln!(self.text, "| {cells} |");
    }

    /// One more line, of what this plays. If that comes to a bad end, as where an instance or a server ends in an error, which says so on
    /// stderr by itself, the line has these first cells and says that: a fault does not take the other lines with it.
    pub fn play<T>(&mut self, first: &str, play: impl FnOnce(&mut Self) -> (String, T)) -> Option<T> {
        if let Ok((cells, more)) = catch_unwind(AssertUnwindSafe(|| play(self))) {
            self.line(cells);
            return Some(more);
        }
        eprintln!("bench: no line for {first}");
        self.failed += 1;
        let rest = self.columns.saturating_sub(first.split(" | ").count() + 1);
        self.line(format_args!("{first} | failed{}", " | –".repeat(rest)));
        None
    }

    /// Whether each line came to a good end.
    pub fn is_whole(&self) -> bool {
        self.failed == 0
    }

    /// Remembers what it was made with.
    pub fn made_with(&mut self, version: &str) {
        self.versions.insert(version.to_owned());
    }

    /// Puts it into the page, in the place of the one that is there.
    pub fn write(&self) -> io::Result<()> {
        let page = fs::read_to_string(PAGE)?;
        let mark = format!("<!-- table: {} -->\n", self.name);
        let missing = || io::Error::other(format!("{} has no {mark}", Path::new(PAGE).display()));
        let (before, rest) = page.split_once(&mark).ok_or_else(missing)?;
        let (_, after) = rest.split_once(END).ok_or_else(missing)?;
        let made = self.made();
        fs::write(PAGE, format!("{before}{mark}{made}\n\n{}{END}{after}", self.text))
    }

    fn made(&self) -> String {
        let mut all = vec![Machine.to_string()];
        all.extend(self.versions.iter().filter(|version| *version != "memory").cloned());
        format!("{}, `{}`. {}", chrono::Utc::now().format("%-d %B %Y"), self.command, all.join(", "))
    }
}

const END: &str = "<!-- end -->";

/// This one, as far as it matters.
struct Machine;

impl Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        let (cpu, memory, kernel) =
            (read("/proc/cpuinfo"), read("/proc/meminfo"), read("/proc/sys/kernel/osrelease"));
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kilobytes = memory.split_whitespace().nth(1).and_then(|number| number.parse::<f64>().ok());
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        write!(
            f,
            "{cores} cores ({}), {:.0} GB, Linux {}",
            model.map_or("unknown", |(_, model)| model.trim()),
            kilobytes.unwrap_or(0.0) / 1e6,
            kernel.split(['-', '+']).next().unwrap_or_default().trim(),
        )
    }
}

/// What there is not is a dash.
pub fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "–".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_fails_says_so_and_leaves_the_others() {
        let mut table = Table::new("test", "scripts/bench test".to_owned());
        table.head(&["store", "jobs", "once", "late"], 1);
        assert_eq!(table.play("redis | 1", |_| ("redis | 1 | 2 | 3".to_owned(), 4)), Some(4));
        assert!(table.is_whole());
        let failed: Option<()> = table.play("nats | 1", |_| panic!("an instance ended with 1"));
        assert_eq!((failed, table.is_whole()), (None, false));
        table.line("valkey | 1 | 2 | 3");
        let lines: Vec<&str> = table.text.lines().skip(2).collect();
        assert_eq!(lines, ["| redis | 1 | 2 | 3 |", "| nats | 1 | failed | – |", "| valkey | 1 | 2 | 3 |"]);
    }
}
