//! What the programs of `examples/rolling` print of their runs, as lines of a history.

use std::sync::LazyLock;

use anarchon::clock::{Clock as _, Mono, SystemClock};
use chrono::DateTime;

use crate::history::{Entry, Fact};

/// The wall clock minus the monotonic one, in µs: a program of a user tells the time of day.
static OFFSET: LazyLock<i64> = LazyLock::new(|| SystemClock.wall_micros() - SystemClock.mono().0 as i64);

/// `2026-11-30T10:00:00.123456Z v1 4711: stays 2026-11-30T10:00:00.000000Z attempt 1 token 17 start`
pub(crate) fn entry(line: &str) -> Option<Entry> {
    let words: Vec<&str> = line.split(' ').collect();
    let [now, version, process, job, planned, "attempt", attempt, "token", token, what] = words[..] else {
        return None;
    };
    let micros = |text| Some(DateTime::parse_from_rfc3339(text).ok()?.timestamp_micros());
    let wall = micros(now)?;
    let pid = process.strip_suffix(':')?;
    Some(Entry {
        mono: Mono(u64::try_from(wall - *OFFSET).ok()?),
        wall,
        pid: pid.parse().ok()?,
        instance: format!("{version}-{pid}"),
        job: job.to_owned(),
        nominal: micros(planned)? / 1000,
        attempt: attempt.parse().ok()?,
        token: token.parse().ok()?,
        catch_up: false,
        fact: match what {
            "start" => Fact::Start,
            "done" => Fact::Done,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_an_example_is_a_line_of_a_history() {
        // Of now: from before this machine was started there are none.
        let now = DateTime::from_timestamp_micros(SystemClock.wall_micros()).unwrap();
        let [wall, nominal] =
            ["%Y-%m-%dT%H:%M:%S.%6fZ", "%Y-%m-%dT%H:%M:%S.000000Z"].map(|form| now.format(form).to_string());
        let line = format!("{wall} v1 4711: goes {nominal} attempt 2 token 17 done");
        let told = entry(&line).unwrap();
        assert_eq!((told.wall, told.nominal), (now.timestamp_micros(), now.timestamp() * 1000));
        assert_eq!((told.pid, told.job.as_str(), told.attempt, told.token), (4711, "goes", 2, 17));
        assert_eq!(told.fact, Fact::Done);
        for wrong in [line.replace("done", "died"), line.replace("4711:", "4711"), format!("{line} more")] {
            assert_eq!(entry(&wrong), None, "{wrong}");
        }
    }
}
