//! What the guide shows of schedules is what they answer, and the pictures that rustdoc shows are those of the repository.
//!
//! `ANARCHON_WRITE=1 cargo test -p anarchon-tests --test guide_tables` writes both into the pages.

use std::{env, fs};

use anarchon_schedule::{At, Cron, Every, Spec, Tz};
use anarchon_tests::pages::{read, root};
use chrono::{DateTime, TimeDelta, Utc};

const SCHEDULES: &str = "anarchon/src/guide/schedules.md";
const HOW_IT_WORKS: &str = "anarchon/src/guide/how_it_works.md";
const PICTURES: &str = "anarchon/src/guide/pictures";
const PICTURES_OF_RUSTDOC: &str = "anarchon/src/guide/pictures.md";
/// Is shown by the README alone.
const PICTURE_OF_THE_README: &str = "three.svg";

const BEGIN: &str = "<!-- table: clock changes -->\n";
const END: &str = "<!-- end -->\n";

/// A picture is one line of what rustdoc includes.
const LARGEST: usize = 6 * 1024;

#[test]
fn the_tables_of_clock_changes_are_what_the_schedules_answer() {
    let told = read(SCHEDULES);
    let (before, rest) = told.split_once(BEGIN).expect("the page has the mark of the tables");
    let (_, after) = rest.split_once(END).expect("the page has the mark of their end");
    let tables = DAYS.iter().map(Day::table).collect::<Vec<_>>().join("\n");
    let right = format!("{before}{BEGIN}{tables}{END}{after}");
    is_or_becomes(SCHEDULES, &told, &right);
}

#[test]
fn the_pictures_of_rustdoc_are_those_of_the_repository() {
    let line = |(name, text): &(String, String)| {
        format!("[pictures/{name}]: data:image/svg+xml,{}\n", percent_encoded(text))
    };
    let pictures = pictures();
    let of_the_page = pictures.iter().filter(|(name, _)| name != PICTURE_OF_THE_README);
    let right: String = of_the_page.map(line).collect();
    is_or_becomes(PICTURES_OF_RUSTDOC, &read(PICTURES_OF_RUSTDOC), &right);
}

#[test]
fn every_picture_is_small_says_what_it_shows_and_is_shown() {
    let (page, readme) = (read(HOW_IT_WORKS), read("README.md"));
    for (name, text) in pictures() {
        assert!(text.len() < LARGEST, "{name} has {} bytes", text.len());
        for part in ["<title", "<desc", "prefers-color-scheme"] {
            assert!(text.contains(part), "{name} lacks {part}");
        }
        for part in ["<script", "href", "url(http", "@import"] {
            assert!(!text.contains(part), "{name} has {part}");
        }
        if name == PICTURE_OF_THE_README {
            assert!(readme.contains(&format!("]({PICTURES}/{name})")), "the README lacks {name}");
            continue;
        }
        for part in [format!("][pictures/{name}]"), format!("\n[pictures/{name}]: pictures/{name}\n")] {
            assert!(page.contains(&part), "the page lacks {part:?}");
        }
    }
}

/// A day, or some days in a row, and the schedules that are asked for them.
struct Day {
    title: &'static str,
    zone: Tz,
    /// The first instant and the last one that are asked for.
    from: &'static str,
    until: &'static str,
    schedules: &'static [&'static str],
}

const DAYS: [Day; 6] = [
    Day {
        title: "**An hour is missing.** Europe/Athens, Sunday 29 March 2026: at 03:00 the clocks go to 04:00. From 02:00 to 05:00:",
        zone: Tz::Europe__Athens,
        from: "2026-03-29T00:00:00Z",
        until: "2026-03-29T02:00:00Z",
        schedules: &[
            "30 2 * * *",
            "30 3 * * *",
            "0,30 3 * * *",
            "0 3,4 * * *",
            "30 */3 * * *",
            "0 * * * *",
            "*/15 * * * *",
            "every 1h",
            "every 1d",
            "at 2026-03-29T03:30",
            "at 2026-03-29T04:00:00+03:00",
        ],
    },
    Day {
        title: "**An hour comes twice.** Europe/Athens, Sunday 25 October 2026: at 04:00 the clocks go back to 03:00. From 02:30 to 04:30:",
        zone: Tz::Europe__Athens,
        from: "2026-10-24T23:30:00Z",
        until: "2026-10-25T02:30:00Z",
        schedules: &[
            "30 2 * * *",
            "30 3 * * *",
            "0,30 3 * * *",
            "0 3,4 * * *",
            "30 */3 * * *",
            "0 * * * *",
            "*/15 * * * *",
            "every 1h",
            "every 1d",
            "at 2026-10-25T03:30",
            "at 2026-10-25T03:30:00+02:00",
        ],
    },
    Day {
        title: "**There is no 29 February.** Europe/Athens, 27 February to 1 March 2027:",
        zone: Tz::Europe__Athens,
        from: "2027-02-26T22:00:00Z",
        until: "2027-03-01T21:59:00Z",
        schedules: &[
            "0 9 29 2 *",
            "0 9 L 2 *",
            "0 9 L-1 * *",
            "0 9 29W 2 *",
            "0 9 29 * *",
            "0 9 * * *",
            "every 1d",
            "at 2027-02-29T09:00",
        ],
    },
    Day {
        title: "**There is a 29 February.** Europe/Athens, 28 February to 1 March 2028:",
        zone: Tz::Europe__Athens,
        from: "2028-02-27T22:00:00Z",
        until: "2028-03-01T21:59:00Z",
        schedules: &[
            "0 9 29 2 *",
            "0 9 L 2 *",
            "0 9 L-1 * *",
            "0 9 29W 2 *",
            "0 9 29 * *",
            "0 9 * * *",
            "every 1d",
            "at 2028-02-29T09:00",
        ],
    },
    Day {
        title: "**A day is missing.** Pacific/Apia moved across the date line: Thursday 29 December 2011 was followed by Saturday 31 December. Both days:",
        zone: Tz::Pacific__Apia,
        from: "2011-12-29T10:00:00Z",
        until: "2011-12-31T09:59:00Z",
        schedules: &[
            "0 0 * * *",
            "0 9 * * *",
            "0 9 30 12 *",
            "0 9 * * FRI",
            "0 */6 * * *",
            "every 1d",
            "at 2011-12-30T09:00",
        ],
    },
    Day {
        title: "**Midnight is missing.** Africa/Cairo, Friday 24 April 2026: at 00:00 the clocks go to 01:00. From 23:00 to 02:00:",
        zone: Tz::Africa__Cairo,
        from: "2026-04-23T21:00:00Z",
        until: "2026-04-23T23:00:00Z",
        schedules: &[
            "@daily",
            "30 0 * * *",
            "0 0,1 * * *",
            "0 1 * * *",
            "0 * * * *",
            "every 1h",
            "at 2026-04-24T00:00",
        ],
    },
];

impl Day {
    fn table(&self) -> String {
        let lines: String = self.schedules.iter().map(|schedule| self.line(schedule)).collect();
        format!("{}\n\n| schedule | local time | UTC |\n| --- | --- | --- |\n{lines}", self.title)
    }

    fn line(&self, schedule: &str) -> String {
        let (local, utc) = match self.spec(schedule).check() {
            Ok(schedule) => {
                // What comes next is never at the instant itself.
                let before = instant(self.from) - TimeDelta::milliseconds(1);
                let instants: Vec<_> =
                    std::iter::successors(schedule.next_after(before), |last| schedule.next_after(*last))
                        .take_while(|at| *at <= instant(self.until))
                        .collect();
                if instants.is_empty() {
                    ("does not run".to_owned(), String::new())
                } else {
                    (listed(&instants, self.zone, " %:z"), listed(&instants, Tz::UTC, ""))
                }
            }
            Err(errors) => {
                let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
                (format!("is refused: {}", errors.join("; ")), String::new())
            }
        };
        format!("| `{schedule}` | {local} | {utc} |\n")
    }

    /// By the zone rules that are compiled in, so that the page does not depend on the machine.
    fn spec(&self, schedule: &str) -> Spec {
        if let Some(interval) = schedule.strip_prefix("every ") {
            Every::new(interval).into()
        } else if let Some(at) = schedule.strip_prefix("at ") {
            At::new(at).tz(self.zone).into()
        } else {
            Cron::new(schedule).tz(self.zone).into()
        }
    }
}

fn instant(text: &str) -> DateTime<Utc> {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// `2026-03-29 02:30, 02:45 +02:00; 2026-03-29 04:00 +03:00`: times of one date and offset together.
fn listed(instants: &[DateTime<Utc>], zone: Tz, offset: &str) -> String {
    let mut groups: Vec<(String, String, Vec<String>)> = Vec::new();
    for at in instants {
        let local = at.with_timezone(&zone);
        let shown = |format: &str| local.format(format).to_string();
        let (date, offset, clock) = (shown("%Y-%m-%d"), shown(offset), shown("%H:%M"));
        match groups.last_mut() {
            Some((same_date, same_offset, clocks)) if *same_date == date && *same_offset == offset => {
                clocks.push(clock);
            }
            _ => groups.push((date, offset, vec![clock])),
        }
    }
    let groups: Vec<_> =
        groups.iter().map(|(date, offset, clocks)| format!("{date} {}{offset}", clocks.join(", "))).collect();
    groups.join("; ")
}

/// The name of each picture and its text, by name.
fn pictures() -> Vec<(String, String)> {
    let folder = fs::read_dir(root().join(PICTURES)).expect("there is a folder with pictures");
    let mut names: Vec<_> = folder
        .map(|entry| entry.expect("the folder can be read").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".svg"))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "there is no picture in {PICTURES}");
    names.into_iter().map(|name| (name.clone(), read(format!("{PICTURES}/{name}")))).collect()
}

/// Everything that could end a link of Markdown, or mean something in a URL.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => encoded.push(byte.into()),
            b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b'=' | b',' | b';' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Compares a file with what it should be, or makes it so where `ANARCHON_WRITE` is set.
fn is_or_becomes(page: &str, told: &str, right: &str) {
    if told == right {
        return;
    }
    let first = right.lines().find(|line| !told.contains(line)).unwrap_or_default();
    assert!(
        env::var_os("ANARCHON_WRITE").is_some(),
        "{page} is out of date; ANARCHON_WRITE=1 cargo test -p anarchon-tests --test guide_tables writes it. \
         The first line that it lacks:\n{first}"
    );
    fs::write(root().join(page), right).unwrap_or_else(|error| panic!("{page}: {error}"));
}
