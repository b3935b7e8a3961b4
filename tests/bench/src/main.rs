//! `bench [--seconds S] [--jobs J,…] [--instances N,…] [STORE…]`: plays each case with real processes on a real server, and prints one
//! table. `scripts/bench` builds all of it and calls this.

mod case;
mod stores;

use std::process::ExitCode;

use case::{Case, Scheduler};

/// What users would pick instead, beside ours where it can be had.
const SCHEDULERS: [Scheduler; 3] = [
    Scheduler { name: "anarchon", program: "anarchon", stores: &stores::NAMES, is_shared: true },
    Scheduler { name: "tokio-cron-scheduler", program: "tokio-cron", stores: &["memory"], is_shared: false },
    Scheduler { name: "apalis-cron", program: "apalis-cron", stores: &["memory"], is_shared: false },
];

struct Asked {
    seconds: usize,
    jobs: Vec<usize>,
    instances: Vec<usize>,
    stores: Vec<&'static str>,
    schedulers: Vec<Scheduler>,
    jitters: Vec<bool>,
    idle: bool,
}

fn main() -> ExitCode {
    let asked = match Asked::read(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!(
                "bench: {why}\nbench [--seconds 20] [--jobs 1,100,1000,10000] [--instances 1,3,10] [--jitter off,on] \
                 [--schedulers {}] [--idle] [{}…]",
                SCHEDULERS.map(|scheduler| scheduler.name).join(","),
                stores::NAMES.join("|")
            );
            return ExitCode::from(2);
        }
    };
    println!("{}", case::HEAD);
    for store in &asked.stores {
        for scheduler in asked.schedulers.iter().filter(|scheduler| scheduler.stores.contains(store)) {
            for &jitter in asked.jitters.iter().filter(|jitter| !**jitter || scheduler.name == "anarchon") {
                for &jobs in &asked.jobs {
                    for &instances in asked
                        .instances
                        .iter()
                        .filter(|n| **n == 1 || scheduler.is_shared && *store != "memory")
                    {
                        let case =
                            Case { scheduler: *scheduler, store, jobs, instances, jitter, idle: asked.idle };
                        println!("{}", case.play(asked.seconds));
                    }
                }
            }
        }
    }
    ExitCode::SUCCESS
}

impl Asked {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut asked = Self {
            seconds: 20,
            jobs: vec![1, 100, 1_000, 10_000],
            instances: vec![1, 3, 10],
            stores: Vec::new(),
            schedulers: SCHEDULERS.to_vec(),
            jitters: vec![false, true],
            idle: false,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} names nothing"));
            match word.as_str() {
                "--seconds" => asked.seconds = number(&value()?)?,
                "--jobs" => asked.jobs = numbers(&value()?)?,
                "--instances" => asked.instances = numbers(&value()?)?,
                "--jitter" => asked.jitters = value()?.split(',').map(|word| word == "on").collect(),
                "--schedulers" => {
                    let names = value()?;
                    asked.schedulers.retain(|scheduler| names.split(',').any(|name| name == scheduler.name));
                }
                "--idle" => asked.idle = true,
                _ => {
                    let known = stores::NAMES.into_iter().find(|name| *name == word);
                    asked.stores.push(known.ok_or_else(|| format!("{word:?} is no store"))?);
                }
            }
        }
        if asked.stores.is_empty() {
            asked.stores = stores::NAMES.to_vec();
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
