//! The shared test data: 3,000 lines that two independent models of Debian's cron agree on, and public bug reports.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::{Path, PathBuf};

use anarchon_schedule::{Cron, Schedule, Spec, Zones};
use chrono::{DateTime, Utc};
use serde_json::Value;

#[test]
fn every_line_of_the_oracle_is_met_by_stepping() {
    let lines = lines("cron-oracle.jsonl");
    assert!(lines.len() >= 3_000, "{} lines", lines.len());
    check_all(&lines);
}

#[test]
fn every_public_bug_report_is_met() {
    let lines = lines("cron-cases.jsonl");
    assert!(lines.len() >= 38, "{} lines", lines.len());
    check_all(&lines);
}

fn check_all(lines: &[Value]) {
    let mut wrong = Vec::new();
    for zones in [Zones::embedded(), Zones::system()] {
        for line in lines {
            if let Err(difference) = check(line, &zones) {
                wrong.push(format!("{line}\n    {difference} (zones {})", zones.version()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn check(line: &Value, zones: &Zones) -> Result<(), String> {
    let text = |name: &str| line[name].as_str().unwrap_or_else(|| panic!("no {name} in {line}"));
    let spec = Spec::from(Cron::new(text("expr")).tz(text("tz")));
    let refused = line["invalid"] == true || line["never"] == true;
    let schedule = match spec.resolve(zones) {
        Err(_) if refused => return Ok(()),
        Ok(_) if refused => return Err("was accepted".to_owned()),
        Err(errors) => return Err(errors[0].to_string()),
        Ok((schedule, _)) => schedule,
    };
    let expected: Vec<DateTime<Utc>> =
        line["next"].as_array().unwrap().iter().map(|t| t.as_str().unwrap().parse().unwrap()).collect();
    let after = text("after").parse().unwrap();
    let found = step(&schedule, after, expected.len());
    if found != expected {
        return Err(format!("forward {found:?}"));
    }
    let Some(last) = expected.last() else { return Ok(()) };
    let mut back = vec![*last];
    while back.len() < expected.len() {
        let before = *back.last().unwrap() - chrono::TimeDelta::nanoseconds(1);
        back.push(schedule.latest_at_or_before(before).ok_or("nothing before")?);
    }
    back.reverse();
    if back == expected { Ok(()) } else { Err(format!("backward {back:?}")) }
}

fn step(schedule: &Schedule, after: DateTime<Utc>, count: usize) -> Vec<DateTime<Utc>> {
    std::iter::successors(schedule.next_after(after), |t| schedule.next_after(*t)).take(count).collect()
}

fn lines(file: &str) -> Vec<Value> {
    let path = folder().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `shared/data` beside the workspace or further up, else what `ANARCHON_TEST_DATA` names.
fn folder() -> PathBuf {
    if let Some(named) = std::env::var_os("ANARCHON_TEST_DATA") {
        return named.into();
    }
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("shared/data"));
    above.find(|dir| dir.is_dir()).expect("shared/data is missing; set ANARCHON_TEST_DATA to its place")
}
