//! `bench [TABLE] [OPTIONS] [STORE…]`: measures with real processes on real servers, and prints a table in Markdown. `scripts/bench`
//! builds all of it and calls this.

mod build;
mod child;
mod claims;
mod disturb;
mod idle;
mod occurrences;
mod page;
mod raw;
mod scale;
mod simulation;
mod stores;

use std::process::ExitCode;

use child::Scheduler;
use occurrences::Plan;
use page::Table;

/// What users would pick instead, beside ours where it can be had.
const SCHEDULERS: [Scheduler; 4] = [
    Scheduler { name: "anarchon", program: "anarchon", stores: &stores::NAMES, is_shared: true },
    Scheduler { name: "tokio-cron-scheduler", program: "tokio-cron", stores: &["memory"], is_shared: false },
    Scheduler { name: "apalis-cron", program: "apalis-cron", stores: &["memory"], is_shared: false },
    Scheduler { name: "apalis-redis", program: "apalis-redis", stores: &["redis"], is_shared: true },
];

/// All that there are; the first one if none is named.
const TABLES: [&str; 6] = ["occurrences", "idle", "claims", "disturb", "build", "scale"];

/// What was not asked for is up to the table.
#[derive(Debug)]
struct Asked {
    table: &'static str,
    seconds: Option<usize>,
    jobs: Option<Vec<usize>>,
    instances: Vec<usize>,
    stores: Vec<&'static str>,
    schedulers: Vec<Scheduler>,
    jitters: Vec<bool>,
    writes: bool,
}

fn main() -> ExitCode {
    let asked = match Asked::read(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!(
                "bench: {why}\nbench [{}] [--write] [--seconds S] [--jobs J,…] [--instances N,…] [--jitter off,on] \
                 [--schedulers {}] [{}…]\n--write puts the table into the guide",
                TABLES.join("|"),
                SCHEDULERS.map(|scheduler| scheduler.name).join(","),
                stores::NAMES.join("|")
            );
            return ExitCode::from(2);
        }
    };
    let tables = asked.play();
    if asked.writes
        && let Err(error) = tables.iter().try_for_each(Table::write)
    {
        eprintln!("bench: {error}");
        return ExitCode::FAILURE;
    }
    if tables.iter().all(Table::is_whole) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Asked {
    fn play(&self) -> Vec<Table> {
        let (seconds, jobs) = (self.seconds(), self.jobs());
        if self.table == "scale" {
            let mut tables =
                ["scale-costs", "scale-check", "scale"].map(|name| Table::new(name, self.command()));
            scale::play(&self.stores(&scale::STORES), SCHEDULERS[0], seconds, &mut tables);
            return tables.into();
        }
        let mut table = Table::new(self.table, self.command());
        match self.table {
            "idle" => {
                idle::play(&self.stores(&stores::NAMES), &self.schedulers, &jobs, seconds, &mut table);
            }
            "claims" => claims::play(&self.stores(&stores::SHARED), seconds, &mut table),
            "disturb" => disturb::play(&self.stores(&stores::SHARED), &self.schedulers, seconds, &mut table),
            "build" => build::play(&mut table),
            _ => Plan {
                stores: &self.stores(&stores::NAMES),
                schedulers: &self.schedulers,
                jitters: &self.jitters,
                jobs: &jobs,
                instances: &self.instances,
                seconds,
            }
            .play(&mut table),
        }
        vec![table]
    }

    fn seconds(&self) -> usize {
        let usual = match self.table {
            "idle" => 60,
            "claims" | "scale" => 3,
            "disturb" => 30,
            _ => 20,
        };
        self.seconds.unwrap_or(usual)
    }

    fn jobs(&self) -> Vec<usize> {
        let usual: &[usize] =
            if self.table == "idle" { &[1, 1_000, 100_000] } else { &[1, 100, 1_000, 10_000] };
        self.jobs.clone().unwrap_or_else(|| usual.to_vec())
    }

    /// The command that plays the same again, whatever is usual then.
    fn command(&self) -> String {
        let mut words = vec!["scripts/bench".to_owned(), self.table.to_owned()];
        let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        if self.table != "build" {
            option("seconds", self.seconds().to_string());
        }
        if ["occurrences", "idle"].contains(&self.table) {
            option("jobs", list(self.jobs()));
        }
        if self.table == "occurrences" {
            option("instances", list(&self.instances));
            option("jitter", list(self.jitters.iter().map(|jitter| if *jitter { "on" } else { "off" })));
        }
        if self.schedulers.len() < SCHEDULERS.len() {
            option("schedulers", list(self.schedulers.iter().map(|scheduler| scheduler.name)));
        }
        words.extend(self.stores.iter().map(|store| (*store).to_owned()));
        words.join(" ")
    }

    /// Those of these that were asked for; all of them if none was.
    fn stores(&self, all: &[&'static str]) -> Vec<&'static str> {
        all.iter().filter(|name| self.stores.is_empty() || self.stores.contains(name)).copied().collect()
    }

    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut asked = Self {
            table: TABLES[0],
            seconds: None,
            jobs: None,
            instances: vec![1, 3, 10],
            stores: Vec::new(),
            schedulers: SCHEDULERS.to_vec(),
            jitters: vec![false, true],
            writes: false,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} names nothing"));
            match word.as_str() {
                "--seconds" => asked.seconds = Some(number(&value()?)?),
                "--jobs" => asked.jobs = Some(numbers(&value()?)?),
                "--instances" => asked.instances = numbers(&value()?)?,
                "--jitter" => {
                    let jitter = |word| Ok(known(word, &["off", "on"])? == "on");
                    asked.jitters = value()?.split(',').map(jitter).collect::<Result<_, String>>()?;
                }
                "--schedulers" => {
                    let all = SCHEDULERS.map(|scheduler| scheduler.name);
                    let names = value()?;
                    let names: Vec<&str> =
                        names.split(',').map(|name| known(name, &all)).collect::<Result<_, _>>()?;
                    asked.schedulers.retain(|scheduler| names.contains(&scheduler.name));
                }
                "--write" => asked.writes = true,
                _ => match TABLES.into_iter().find(|name| *name == word) {
                    Some(table) => asked.table = table,
                    None if word.starts_with('-') => return Err(format!("{word:?} is no option")),
                    None => {
                        let known = stores::NAMES.into_iter().find(|name| *name == word);
                        asked.stores.push(known.ok_or_else(|| format!("{word:?} is no table and no store"))?);
                    }
                },
            }
        }
        Ok(asked)
    }
}

fn numbers(text: &str) -> Result<Vec<usize>, String> {
    text.split(',').map(number).collect()
}

/// Nothing here is done for no time, or with nobody.
fn number(text: &str) -> Result<usize, String> {
    let number: std::num::NonZero<usize> = text.parse().map_err(|error| format!("{text:?}: {error}"))?;
    Ok(number.get())
}

/// The one of these that is called that.
fn known(word: &str, all: &[&'static str]) -> Result<&'static str, String> {
    let found = all.iter().find(|name| **name == word).copied();
    found.ok_or_else(|| format!("{word:?} is none of {}", all.join(", ")))
}

fn list(all: impl IntoIterator<Item = impl ToString>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Asked, String> {
        Asked::read(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_name_that_nothing_has_is_told_with_those_that_there_are() {
        let error = read("--schedulers anarchon,apalis").unwrap_err();
        assert_eq!(error, "\"apalis\" is none of anarchon, tokio-cron-scheduler, apalis-cron, apalis-redis");
        assert_eq!(read("--jitter maybe").unwrap_err(), "\"maybe\" is none of off, on");
        assert_eq!(read("--second 3").unwrap_err(), "\"--second\" is no option");
        assert!(read("--jobs 1,0").unwrap_err().starts_with("\"0\": "));
    }

    #[test]
    fn the_command_says_what_is_usual_too_and_is_read_as_the_same() {
        let asked = read("--instances 3 redis --schedulers anarchon").unwrap();
        let command = "scripts/bench occurrences --seconds 20 --jobs 1,100,1000,10000 --instances 3 \
                       --jitter off,on --schedulers anarchon redis";
        assert_eq!(asked.command(), command);
        let again = read(command.strip_prefix("scripts/bench ").unwrap()).unwrap();
        assert_eq!(again.command(), command);
        assert_eq!(read("claims").unwrap().command(), "scripts/bench claims --seconds 3");
        assert_eq!(read("build").unwrap().command(), "scripts/bench build");
    }
}
