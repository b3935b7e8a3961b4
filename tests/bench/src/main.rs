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
const TABLES: [&str; 5] = ["occurrences", "idle", "claims", "disturb", "build"];

/// What was not asked for is up to the table.
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
    let table = asked.play();
    if asked.writes
        && let Err(error) = table.write()
    {
        eprintln!("bench: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

impl Asked {
    fn play(&self) -> Table {
        let mut table = Table::new(self.table);
        let jobs = |all: &[usize]| self.jobs.clone().unwrap_or_else(|| all.to_vec());
        let seconds = |usual| self.seconds.unwrap_or(usual);
        match self.table {
            "idle" => idle::play(
                &self.stores(&stores::NAMES),
                &self.schedulers,
                &jobs(&[1, 1_000, 100_000]),
                seconds(60),
                &mut table,
            ),
            "claims" => claims::play(&self.stores(&stores::SHARED), seconds(3), &mut table),
            "disturb" => {
                disturb::play(&self.stores(&stores::SHARED), &self.schedulers, seconds(30), &mut table)
            }
            "build" => build::play(&mut table),
            _ => Plan {
                stores: &self.stores(&stores::NAMES),
                schedulers: &self.schedulers,
                jitters: &self.jitters,
                jobs: &jobs(&[1, 100, 1_000, 10_000]),
                instances: &self.instances,
                seconds: seconds(20),
            }
            .play(&mut table),
        }
        table
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
                "--jitter" => asked.jitters = value()?.split(',').map(|word| word == "on").collect(),
                "--schedulers" => {
                    let names = value()?;
                    asked.schedulers.retain(|scheduler| names.split(',').any(|name| name == scheduler.name));
                }
                "--write" => asked.writes = true,
                _ => match TABLES.into_iter().find(|name| *name == word) {
                    Some(table) => asked.table = table,
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

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|error| format!("{text:?}: {error}"))
}
