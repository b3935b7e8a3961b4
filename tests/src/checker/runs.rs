//! What must hold of each run, and of those that follow on each other: on all lines, also on those that the store may not have
//! heard of.

use std::{collections::BTreeMap, time::Duration};

use anarchon::clock::Mono;
use anarchon_schedule::parse_duration;

use super::{FOR_EVER, Facts, LATE, Process, SETTLED, before};
use crate::{
    history::{Fact, History, Run},
    job_line::JobLine,
};

/// How much sooner than its planned time a run may seem to begin: clocks are read one after the other.
const EARLY: i64 = 500_000;
/// How a handler writes down that its lease was lost.
const LEASE_LOST: &str = "lease-lost";
/// How long before its first line a run may have been won.
const AWARDED: Duration = Duration::from_millis(1500);
/// How long a process that is told to end may go on, and then how long others may take to see that a lease is over.
const TAKEN_UP: Duration = Duration::from_secs(26 + 10);
/// The catch-up window of a job that names none.
const WINDOW: Duration = Duration::from_secs(300);
/// How often a job that says nothing of it is tried when its holders vanish.
const MAX_ATTEMPTS: u32 = 3;

/// All that is wrong, a line each.
pub(super) fn wrong_runs(history: &History, facts: &Facts) -> Vec<String> {
    let mut problems = Vec::new();
    for job in history.jobs() {
        let runs = history.runs(job);
        let lines = facts.processes.iter().filter_map(|process| process.line(job));
        if let Some(most) = lines.map(most_attempts).max() {
            problems.extend(tried_too_often(job, &runs, most));
        }
        for (place, run) in runs.iter().enumerate() {
            let Some(own) = facts.process(&run.start) else { continue };
            let Some(line) = own.line(job) else { continue };
            problems.extend(wrong_time(run, own, line, facts));
            if is_left(run, own, line, &runs[place + 1..], facts) {
                problems.push(format!("nobody took up what a process left behind: {}", run.last));
            }
            if let Some(next) = runs.get(place + 1)
                && is_too_soon(run, line, next, facts)
            {
                problems.push(format!(
                    "a run before the lease of another was over: {} and {}",
                    run.last, next.start
                ));
            }
        }
    }
    problems
}

fn option<'a>(line: &'a JobLine, name: &str) -> Option<&'a str> {
    line.options.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn length(line: &JobLine, name: &str) -> Option<Duration> {
    parse_duration(option(line, name)?).ok()
}

/// Whether the store was away, or this process could not be heard, at some time between.
fn is_disturbed(own: &Process, facts: &Facts, from: Mono, to: Mono) -> bool {
    own.disturbed.iter().chain(&facts.outages).any(|(since, until)| *since <= to && from <= *until)
}

/// A first attempt too early, after the window, or at an occurrence that is not the newest. Where our clock, that of the process and
/// the token, a time of the store, differ, the one counts that makes less of it: clocks are set by tests.
fn wrong_time(run: &Run, own: &Process, line: &JobLine, facts: &Facts) -> Option<String> {
    let (start, due) = (&run.start, facts.mono_of(run.start.nominal));
    let ours = start.mono.0 as i64 - due.0 as i64;
    let its = start.wall - start.nominal * 1000;
    if ours < -EARLY && its < -EARLY {
        return Some(format!("a run before its time: {start}"));
    }
    let by_token = start.token as i64 - start.nominal * 1000;
    let late = u64::try_from(ours.min(its).min(by_token)).map_or(Duration::ZERO, Duration::from_micros);
    if start.attempt > 1 {
        return None;
    }
    // A claim may wait in a frozen server, or on a way that is cut, until it expires.
    let claimed = if is_disturbed(own, facts, due, start.mono) { facts.lease(start) } else { Duration::ZERO };
    let allowed = LATE + claimed;
    if late > length(line, "catch_up").unwrap_or(WINDOW) + allowed {
        return Some(format!("a first attempt after the catch-up window: {start}"));
    }
    let jitter = length(line, "jitter").unwrap_or_default();
    let settled = late.checked_sub(allowed + jitter)?;
    let then = chrono::DateTime::from_timestamp_millis(start.nominal)? + settled;
    let newest = facts.with_schedule(line, |schedule| schedule.latest_at_or_before(then))?;
    (newest.timestamp_millis() > start.nominal)
        .then(|| format!("a first attempt at an occurrence that is not the newest: {start}"))
}

/// Whether the next run began while this one must still have had its lease, by our clock and by the tokens, which are times of the
/// store.
fn is_too_soon(run: &Run, line: &JobLine, next: &Run, facts: &Facts) -> bool {
    let is_repeat = next.start.nominal == run.start.nominal && next.start.attempt == run.start.attempt + 1;
    if was_given_back(run, line, facts) || run.is_done() && !is_repeat {
        return false;
    }
    // A store that comes back without its data begins anew.
    let away =
        |(gone, back): &(Mono, Mono)| *gone <= next.start.mono && run.start.mono <= before(*back, SETTLED);
    if facts.outages.iter().any(away) {
        return false;
    }
    let lease = facts.lease(&run.start);
    let tokens = Duration::from_micros(next.start.token.saturating_sub(run.start.token));
    let within_the_first = next.start.mono.plus(AWARDED) < run.start.mono.plus(lease) && tokens < lease;
    // Who can reach the store renews after a third of the lease: of what it had at its last line a good half was left.
    let (from, last) = (before(run.last.mono, lease), run.last.mono);
    let could_renew = facts.process(&run.start).is_some_and(|own| !is_disturbed(own, facts, from, last));
    let renewed = could_renew && !run.dropped && next.start.mono.plus(AWARDED) < last.plus(lease / 2);
    within_the_first || renewed
}

/// Whether the run may have been closed, or its lease given back: by an error, its timeout, an operator, or the shutdown of its process.
fn was_given_back(run: &Run, line: &JobLine, facts: &Facts) -> bool {
    let is_told = match &run.last.fact {
        Fact::Failing => true,
        Fact::Cancelled(reason) => reason != LEASE_LOST,
        Fact::Start | Fact::Step | Fact::Done | Fact::Dropped => false,
    };
    let lasted = run.last.mono.since(run.start.mono) + AWARDED;
    let is_timed_out = length(line, "timeout").is_some_and(|timeout| lasted >= timeout);
    let is_leaving = run.dropped && facts.process(&run.start).is_some_and(|own| own.alive.1 != FOR_EVER);
    is_told || is_timed_out || is_leaving
}

/// How often an occurrence is tried, when its holders vanish and its handler errs.
fn most_attempts(line: &JobLine) -> usize {
    let number = |name, usual| option(line, name).and_then(|text| text.parse().ok()).unwrap_or(usual);
    number("max_attempts", MAX_ATTEMPTS) as usize + number("retries", 0) as usize
}

/// Occurrences that were tried more often than vanished holders and errors together allow.
fn tried_too_often(job: &str, runs: &[Run], most: usize) -> Vec<String> {
    let failed =
        |run: &&Run| !run.dropped && matches!(run.last.fact, Fact::Start | Fact::Step | Fact::Failing);
    let mut counts = BTreeMap::<i64, usize>::new();
    runs.iter().filter(failed).for_each(|run| *counts.entry(run.start.nominal).or_default() += 1);
    let told = |(nominal, count)| format!("{count} attempts of {job} at {nominal}, where {most} are allowed");
    counts.into_iter().filter(|(_, count)| *count > most).map(told).collect()
}

/// Whether a run whose process is gone was followed by none, although somebody who has the job was there all the time.
fn is_left(run: &Run, own: &Process, line: &JobLine, later: &[Run], facts: &Facts) -> bool {
    let max = option(line, "max_attempts").and_then(|max| max.parse().ok()).unwrap_or(MAX_ATTEMPTS);
    let is_unfinished = matches!(run.last.fact, Fact::Start | Fact::Step) && !run.dropped;
    if !is_unfinished || own.alive.1 == FOR_EVER || run.start.attempt >= max {
        return false;
    }
    let gone = own.alive.1.max(run.last.mono);
    let until = gone.plus(facts.lease(&run.start)).plus(TAKEN_UP);
    let saw_it = |process: &Process| {
        process.line(&line.name).is_some_and(|other| other.rule() == line.rule())
            && process.present.iter().any(|(since, to)| *since <= gone && until <= *to)
    };
    let is_out = facts.outages.iter().any(|(away, back)| *away <= until && gone <= *back);
    !is_out && facts.processes.iter().any(saw_it) && later.iter().all(|next| next.start.mono > until)
}

#[cfg(test)]
mod tests {
    use crate::checker::tests::{START, assert_finds};

    const TWO: &str =
        "0 start|1|job,every=60s,lease=5s; 0 ready|1; 0 start|2|job,every=60s,lease=5s; 0 ready|2";

    #[test]
    fn a_run_before_its_time_is_found() {
        let early = "8000 1 10000 1 11 start; 8010 1 10000 1 11 done;";
        assert_finds(&["a run before its time"], &format!("{START}; 15000 end|1"), early);
    }

    #[test]
    fn a_takeover_before_the_lease_is_over_is_found_also_in_the_shade_of_an_outage() {
        let deeds = format!("{TWO}; 61000 store gone; 61500 store back; 90000 end|1; 90000 end|2");
        let second = |ms: u32| {
            format!("60000 1 60000 1 60 start; {ms} 2 60000 2 61 start; {} 2 60000 2 61 done", ms + 9)
        };
        assert_finds(
            &["a run before the lease"],
            &format!("{TWO}; 90000 end|1; 90000 end|2"),
            &second(60_200),
        );
        assert_finds(&["a run before the lease"], &deeds.replace("61", "64"), &second(60_200));
        assert_finds(&[], &deeds, &second(65_300));
    }

    #[test]
    fn a_takeover_from_a_holder_that_renewed_is_found_until_half_a_lease_after_its_last_sign() {
        let deeds = format!("{TWO}; 80000 end|1; 119000 end|2");
        let signs: String =
            (60_500..=79_900).step_by(300).map(|ms| format!("{ms} 1 60000 1 60 step;")).collect();
        let taken_over = |ms: u32| {
            format!("60000 1 60000 1 60 start; {signs} {ms} 2 60000 2 61 start; {} 2 60000 2 61 done", ms + 9)
        };
        assert_finds(&["a run before the lease"], &deeds, &taken_over(80_100));
        assert_finds(&[], &deeds, &taken_over(84_500));
        // Who is cut off for so long may have nothing left.
        assert_finds(&[], &deeds.replace("80000 end|1", "76000 cut|1; 80000 end|1"), &taken_over(80_100));
    }

    #[test]
    fn a_holder_that_is_told_of_a_lost_lease_had_one_lease_at_least() {
        let lost = |ms: u32| {
            format!(
                "60000 1 60000 1 60 start; 60100 1 60000 1 60 cancelled:lease-lost; {ms} 2 60000 2 61 start; {} 2 60000 2 61 done",
                ms + 9
            )
        };
        let deeds = format!("{TWO}; 90000 end|1; 90000 end|2");
        assert_finds(&["a run before the lease"], &deeds, &lost(60_200));
        assert_finds(&[], &deeds, &lost(60_200).replace("lease-lost", "operator"));
        assert_finds(&[], &deeds, &lost(65_100));
    }

    #[test]
    fn two_successful_ends_that_a_disturbance_keeps_from_the_store_are_judged_by_the_lease() {
        let deeds = format!("{TWO}; 60500 freeze|1; 90000 end|1; 90000 end|2");
        let both = "60000 1 60000 1 60 start; 60010 1 60000 1 60 done; 60040 2 60000 2 61 start; 60050 2 60000 2 61 done";
        assert_finds(&["a run before the lease"], &deeds, both);
    }

    #[test]
    fn what_a_killed_process_left_behind_has_to_be_taken_up() {
        let deeds = format!("{TWO}; 60500 end|1; 119000 end|2");
        let left = "60000 1 60000 1 60 start; 60400 1 60000 1 60 step;";
        assert_finds(&["nobody took up"], &deeds, left);
        assert_finds(&[], &deeds, &format!("{left} 66000 2 60000 2 66 start; 66010 2 60000 2 66 done"));
        // Nobody was there to see it.
        assert_finds(&[], &format!("{TWO}; 60500 end|1; 61000 end|2"), left);
    }

    #[test]
    fn a_first_attempt_after_the_window_or_beside_a_newer_occurrence_is_found() {
        let deeds = |window| {
            format!("0 start|1|job,every=10s,lease=5s,catch_up={window}; 78000 ready|1; 79000 end|1")
        };
        let late = "31000 1 10000 1 31000000 start; 31010 1 10000 1 31000000 done";
        assert_finds(&["a first attempt after the catch-up window"], &deeds("10s"), late);
        assert_finds(&["a first attempt at an occurrence that is not the newest"], &deeds("5m"), late);
    }

    #[test]
    fn more_attempts_than_are_allowed_are_found() {
        let attempt = |n: u32| format!("{0} 1 10000 {n} {n} start; {0} 1 10000 {n} {n} failing;", 10_000 + n);
        let times = |n: u32| (1..=n).map(attempt).collect::<String>();
        let deeds = format!("{START}; 15000 end|1");
        assert_finds(&[], &deeds, &times(3));
        assert_finds(&["4 attempts of job at 10000"], &deeds, &times(4));
    }
}
