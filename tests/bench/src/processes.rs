//! What processes have taken so far, as Linux tells it.

use std::{collections::BTreeSet, fs};

/// CPU seconds of a process with all that it started, those that have ended too.
pub fn cpu_seconds(root: u32) -> f64 {
    let mut family = BTreeSet::from([root]);
    let all: Vec<(u32, Vec<u64>)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, numbers(pid)?)))
        .collect();
    // A parent may come behind its children.
    loop {
        let before = family.len();
        family.extend(
            all.iter()
                .filter(|(_, stat)| family.contains(&(stat[PARENT] as u32)))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        if family.len() == before {
            break;
        }
    }
    let own = |stat: &[u64]| stat[USER] + stat[SYSTEM];
    let ticks: u64 = all
        .iter()
        .filter(|(pid, _)| family.contains(pid))
        .map(|(_, stat)| own(stat) + stat[USER + 2] + stat[SYSTEM + 2])
        .sum();
    // USER_HZ, which is 100 on every Linux.
    ticks as f64 / 100.0
}

/// Where these stand behind the name of the program, which may hold anything.
const PARENT: usize = 1;
const USER: usize = 11;
const SYSTEM: usize = 12;

fn numbers(pid: u32) -> Option<Vec<u64>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(") ")?;
    Some(behind.split(' ').map(|word| word.trim().parse().unwrap_or(0)).collect())
}

/// Resident memory of a process, in bytes.
pub fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
