//! Whether a history of real processes keeps what is promised, given what was done to them.
//!
//! Pure: the program `check_history` reads both from files, and every scenario with real processes ends with it.

mod runs;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anarchon::{clock::Mono, protocol::Millis};
use anarchon_schedule::{Schedule, parse_duration};

use crate::{
    deeds::{Deed, What},
    history::{Entry, Fact, History, Run},
    job_line::JobLine,
};

/// How long after its start, a thaw or the end of a cut a process may take until it is counted on: a lease of its own that it has
/// lost ends first, and it may have to connect.
const SETTLED: Duration = Duration::from_secs(15);
/// How late a run may begin on a busy machine: jitter, claims and retries together.
const LATE: Duration = Duration::from_secs(5);
/// How long another schedule of the same job, of a process that is gone, may stay in force.
const HANDED_OVER: Duration = Duration::from_secs(90);
/// How long a finish may take to reach the store.
const TOLD: Duration = Duration::from_secs(3);
/// How long a run whose handler has written its end may still hold its lease.
const FINISHING: Duration = Duration::from_millis(500);
/// The lease of a job that names none.
const LEASE: Duration = Duration::from_secs(30);

/// All that is wrong, a line each.
#[must_use]
pub fn problems(history: &History, deeds: &[Deed]) -> Vec<String> {
    let facts = Facts::new(deeds);
    let mut problems = facts.heard(history).problems(|start| facts.is_planned(start));
    problems.extend(runs::wrong_runs(history, &facts));
    problems.extend(lost(history, &facts));
    problems
}

/// When something holds, and again not.
type Times = Vec<(Mono, Mono)>;

const FOR_EVER: Mono = Mono(u64::MAX);

/// What the deeds come to.
#[derive(Debug, Default)]
struct Facts {
    processes: Vec<Process>,
    outages: Times,
    /// The wall clock minus the monotonic one, in µs.
    offset: i64,
    /// Nothing was planned for the times of the test.
    is_other_day: bool,
    end: Mono,
    /// Read once each: to read the rules of zones anew for each run takes longer than all else here.
    schedules: RefCell<BTreeMap<String, Schedule>>,
}

/// One from its start to its end; the system gives its id to another one later.
#[derive(Debug)]
struct Process {
    pid: u32,
    jobs: Vec<JobLine>,
    alive: (Mono, Mono),
    /// When it was there and could reach the store.
    present: Times,
    /// When it may not have been heard.
    disturbed: Times,
    /// From when on it is counted on.
    ready: Option<Mono>,
}

impl Process {
    fn new(pid: u32, jobs: &[String], at: Mono) -> Self {
        let read = |line: &String| line.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        Self {
            pid,
            jobs: jobs.iter().map(read).collect(),
            alive: (at, FOR_EVER),
            present: Times::new(),
            disturbed: Times::new(),
            ready: None,
        }
    }

    fn line(&self, job: &str) -> Option<&JobLine> {
        self.jobs.iter().find(|line| line.name == job)
    }

    fn hear(&mut self, what: &What, at: Mono) {
        // Whoever is told to end while a way is cut may hear of its mending: it leaves all the same.
        if self.alive.1 != FOR_EVER {
            return;
        }
        match what {
            What::Ready(_) => self.ready = Some(at),
            What::Thaw(_) | What::Heal(_) => {
                self.ready = Some(at.plus(SETTLED));
                if let Some(disturbed) = self.disturbed.last_mut() {
                    disturbed.1 = disturbed.1.min(at);
                }
            }
            What::End(_) | What::Freeze(_) | What::Cut(_) => {
                self.present.extend(self.ready.take().map(|since| (since, at)));
                self.disturbed.push((at, FOR_EVER));
                if let What::End(_) = what {
                    self.alive.1 = self.alive.1.min(at);
                }
            }
            What::Start(..) | What::StoreGone | What::StoreBack | What::ClocksSet => {}
        }
    }
}

impl Facts {
    fn new(deeds: &[Deed]) -> Self {
        let mut facts = Self::default();
        let Some(last) = deeds.last() else { return facts };
        facts.offset = last.wall - last.mono.0 as i64;
        facts.end = last.mono;
        let mut gone = None;
        for Deed { mono, what, .. } in deeds {
            match what {
                What::Start(pid, jobs) => facts.processes.push(Process::new(*pid, jobs, *mono)),
                What::StoreGone => gone = Some(*mono),
                What::StoreBack => facts.outages.extend(gone.take().map(|gone| (gone, mono.plus(SETTLED)))),
                What::ClocksSet => facts.is_other_day = true,
                What::Ready(pid)
                | What::End(pid)
                | What::Freeze(pid)
                | What::Thaw(pid)
                | What::Cut(pid)
                | What::Heal(pid) => {
                    if let Some(process) = facts.processes.iter_mut().rfind(|process| process.pid == *pid) {
                        process.hear(what, *mono);
                    }
                }
            }
        }
        for process in &mut facts.processes {
            process.present.extend(process.ready.take().map(|since| (since, facts.end)));
        }
        facts.outages.extend(gone.map(|gone| (gone, FOR_EVER)));
        facts
    }

    fn mono_of(&self, nominal: i64) -> Mono {
        Mono(u64::try_from(nominal.saturating_mul(1000).saturating_sub(self.offset)).unwrap_or(0))
    }

    fn nominal_at(&self, mono: Mono) -> Millis {
        Millis((mono.0 as i64 + self.offset).div_euclid(1000))
    }

    /// Who wrote a line.
    fn process(&self, entry: &Entry) -> Option<&Process> {
        let earlier = |process: &&Process| process.pid == entry.pid && process.alive.0 <= entry.mono;
        self.processes.iter().rfind(earlier)
    }

    fn with_schedule<T>(&self, line: &JobLine, look: impl FnOnce(&Schedule) -> T) -> T {
        look(self.schedules.borrow_mut().entry(line.to_string()).or_insert_with(|| line.schedule()))
    }

    /// Whether the process has a job with this occurrence; a further attempt may be at one of the schedule before.
    fn is_planned(&self, start: &Entry) -> bool {
        let at = chrono::DateTime::from_timestamp_millis(start.nominal).expect("a time");
        let has = |process: &Process| {
            let line = process.line(&start.job);
            line.is_some_and(|line| {
                self.with_schedule(line, |schedule| schedule.latest_at_or_before(at) == Some(at))
            })
        };
        match self.process(start) {
            Some(own) if start.attempt > 1 => {
                own.line(&start.job).is_some() && self.processes.iter().any(has)
            }
            Some(own) => has(own),
            None => false,
        }
    }

    fn lease(&self, start: &Entry) -> Duration {
        let line = self.process(start).and_then(|process| process.line(&start.job));
        let told = line.and_then(|line| line.options.iter().find(|(name, _)| name == "lease"));
        told.and_then(|(_, text)| parse_duration(text).ok()).unwrap_or(LEASE)
    }

    /// Without successful ends that the store may not have heard of: handlers run at least once, and such a run is taken over.
    fn heard(&self, history: &History) -> History {
        let mut history = history.clone();
        history.0.retain(|entry| {
            let near =
                |(from, to): &(Mono, Mono)| *from <= entry.mono.plus(TOLD) && entry.mono <= to.plus(TOLD);
            let own = self.process(entry).is_some_and(|process| process.disturbed.iter().any(near));
            entry.fact != Fact::Done || !own && !self.outages.iter().any(near)
        });
        history
    }

    /// Whether there was a process all around this time that had to see to it, and its schedule of the job was in force.
    fn is_owed(&self, line: &JobLine, runs: &[Run], at: Mono) -> bool {
        let (from, to) = (Mono(at.0.saturating_sub(1_000_000)), at.plus(LATE));
        let there =
            |process: &Process| process.present.iter().any(|(since, until)| *since <= from && to <= *until);
        let near = |process: &Process| {
            process.alive.0 <= to
                && from <= Mono(process.alive.1.0.saturating_add(HANDED_OVER.as_micros() as u64))
        };
        let (mut owes, mut is_contested) = (false, false);
        for process in &self.processes {
            match process.line(&line.name) {
                Some(own) if own.rule() == line.rule() => owes |= there(process),
                Some(_) => is_contested |= near(process),
                None => {}
            }
        }
        owes && (!is_contested || self.stayed_in_force(line, runs, from, to))
    }

    /// Whether a run of before shows that this schedule was in force, and since then somebody who has it was there all the time: then
    /// no other one can have taken its place.
    fn stayed_in_force(&self, line: &JobLine, runs: &[Run], at: Mono, until: Mono) -> bool {
        let has_it =
            |process: &&Process| process.line(&line.name).is_some_and(|own| own.rule() == line.rule());
        let shows = |run: &&Run| {
            run.start.mono <= at
                && run.start.attempt == 1
                && self.process(&run.start).is_some_and(|own| has_it(&own))
        };
        let Some(shown) = runs.iter().filter(shows).map(|run| run.start.mono).max() else { return false };
        if self.outages.iter().any(|(gone, back)| *gone <= until && shown <= *back) {
            return false;
        }
        let mut covered = shown;
        let there: Times =
            self.processes.iter().filter(has_it).flat_map(|process| process.present.clone()).collect();
        while covered < until {
            let further = there.iter().filter(|(from, _)| *from <= covered).map(|(_, to)| *to).max();
            match further.filter(|further| *further > covered) {
                Some(further) => covered = further,
                None => return false,
            }
        }
        true
    }

    fn is_out(&self, at: Mono) -> bool {
        let (from, to) = (Mono(at.0.saturating_sub(1_000_000)), at.plus(LATE));
        self.outages.iter().any(|(gone, back)| *gone <= to && from <= *back)
    }

    /// Whether this fell due in an outage, or soon after, from which there was too little time to recover until all ended.
    fn ended_before_recovery(&self, at: Mono) -> bool {
        let (from, to) = (Mono(at.0.saturating_sub(1_000_000)), at.plus(LATE));
        let lasted = |(gone, settled): &&(Mono, Mono)| *gone <= to && from <= *settled;
        self.outages.iter().filter(lasted).any(|(_, settled)| self.end < before(*settled, SETTLED).plus(LATE))
    }
}

fn before(at: Mono, length: Duration) -> Mono {
    Mono(at.0.saturating_sub(length.as_micros() as u64))
}

/// Occurrences that nobody ran although somebody had to: no run before them went on, and nothing newer took their place while the
/// store was away.
///
/// The newest wins, so that on a machine which stalls one may give way to the next if that comes within [`LATE`]; but not more than
/// one of ten.
fn lost(history: &History, facts: &Facts) -> Vec<String> {
    let mut problems = Vec::new();
    if facts.is_other_day {
        return problems;
    }
    let mut seen = BTreeSet::new();
    let lines = facts.processes.iter().flat_map(|process| &process.jobs);
    for line in lines.filter(|line| seen.insert((line.name.clone(), line.rule()))) {
        let runs = history.runs(&line.name);
        let ran: BTreeSet<i64> = runs.iter().map(|run| run.start.nominal).collect();
        let (mut owed, mut gave_way) = (0, 0);
        for (nominal, next) in facts.with_schedule(line, |schedule| occurrences(schedule, facts)) {
            let at = facts.mono_of(nominal);
            if !facts.is_owed(line, &runs, at) {
                continue;
            }
            owed += 1;
            if ran.contains(&nominal)
                || runs.iter().any(|run| run.start.nominal < nominal && goes_on(run, at, facts))
            {
                continue;
            }
            let has_newer = ran.last().is_some_and(|newest| *newest > nominal);
            if facts.is_out(at) && (has_newer || facts.ended_before_recovery(at)) {
                continue;
            }
            if has_newer && facts.mono_of(next).since(at) <= LATE {
                gave_way += 1;
            } else {
                problems.push(format!("a lost occurrence: {} at {nominal}", line.name));
            }
        }
        if gave_way > owed / 10 {
            problems.push(format!(
                "lost occurrences: {gave_way} of {owed} of {} gave way to the next",
                line.name
            ));
        }
    }
    problems
}

/// All from the first deed to the last, each with the one that follows it.
fn occurrences(schedule: &Schedule, facts: &Facts) -> Vec<(i64, i64)> {
    let first = facts.processes.first().map_or(facts.end, |process| process.alive.0);
    let instant = |mono| chrono::DateTime::from_timestamp_millis(facts.nominal_at(mono).0).expect("a time");
    let (mut at, end) = (instant(first), instant(facts.end));
    let mut all = Vec::new();
    while let Some(next) = schedule.next_after(at).filter(|next| *next <= end) {
        let following = schedule.next_after(next).map_or(i64::MAX, |following| following.timestamp_millis());
        all.push((next.timestamp_millis(), following));
        at = next;
    }
    all
}

/// Whether the run, or its lease when nobody heard of its end, may have lasted at this time, or a little later.
fn goes_on(run: &Run, at: Mono, facts: &Facts) -> bool {
    let ended = !matches!(run.last.fact, Fact::Start | Fact::Step) || run.dropped;
    let lease = facts.lease(&run.start);
    let last =
        if ended { run.last.mono.plus(FINISHING) } else { run.last.mono.plus(lease.mul_f64(1.5)).plus(LATE) };
    run.start.mono <= at.plus(LATE) && at <= last
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times in ms; deeds and lines of one job, `every=1s`, of process 1.
    fn checked(deeds: &str, lines: &str) -> Vec<String> {
        let deeds = deeds.split(';').map(|deed| {
            let (ms, what) = deed.trim().split_once(' ').unwrap();
            let ms: u64 = ms.parse().unwrap();
            Deed::parse(&format!("{}\t{}\t{}", ms * 1000, ms * 1000, what.replace('|', "\t"))).unwrap()
        });
        let lines = lines.split(';').filter(|line| !line.trim().is_empty()).map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [ms, pid, nominal, attempt, token, fact] = words[..] else { panic!("{line:?}") };
            let ms: u64 = ms.parse().unwrap();
            format!("{} {}000 {pid} i{pid} job {nominal} {attempt} {token} on-time {fact}\n", ms * 1000, ms)
        });
        problems(&History::parse(&lines.collect::<String>()), &deeds.collect::<Vec<_>>())
    }

    pub(super) const START: &str = "0 start|1|job,every=10s,lease=5s; 0 ready|1";

    /// Runs at these seconds, each well and in time.
    pub(super) fn runs(seconds: &[u64]) -> String {
        let run =
            |s: &u64| format!("{0} 1 {0} 1 {1} start; {2} 1 {0} 1 {1} done;", s * 1000, s + 1, s * 1000 + 10);
        seconds.iter().map(run).collect()
    }

    #[track_caller]
    pub(super) fn assert_finds(expected: &[&str], deeds: &str, lines: &str) {
        let found = checked(deeds, lines);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found:?}");
        }
    }

    #[test]
    fn nothing_is_wrong_when_all_ran() {
        assert_finds(&[], &format!("{START}; 46000 end|1"), &runs(&[10, 20, 30, 40]));
    }

    #[test]
    fn an_occurrence_that_nobody_ran_is_lost() {
        assert_finds(
            &["a lost occurrence: job at 20000"],
            &format!("{START}; 46000 end|1"),
            &runs(&[10, 30, 40]),
        );
    }

    #[test]
    fn nobody_owes_what_falls_due_while_no_process_is_there() {
        for (down, up) in [("end", ""), ("freeze", "thaw"), ("cut", "heal")] {
            let deeds = format!("{START}; 15000 {down}|1");
            assert_finds(&[], &format!("{deeds}; 46000 store back"), &runs(&[10]));
            if !up.is_empty() {
                // Counted on from 15 s after.
                let lost = ["a lost occurrence: job at 40000"];
                assert_finds(&lost, &format!("{deeds}; 22000 {up}|1; 46000 end|1"), &runs(&[10]));
            }
        }
    }

    #[test]
    fn another_process_owes_what_the_first_cannot_do() {
        let deeds = format!("{START}; 0 start|2|job,every=10s,lease=5s; 0 ready|2; 15000 end|1; 26000 end|2");
        assert_finds(&["a lost occurrence: job at 20000"], &deeds, &runs(&[10]));
    }

    #[test]
    fn the_schedule_in_force_is_owed_as_long_as_somebody_who_has_it_is_there_all_the_time() {
        let other = "15000 start|2|job,every=3s,lease=5s; 15000 ready|2";
        let lost = ["a lost occurrence: job at 20000"];
        assert_finds(&lost, &format!("{START}; {other}; 26000 end|1; 27000 end|2"), &runs(&[10]));
        // Handed from one to the next without a gap, and with one.
        let next = "start|3|job,every=10s,lease=5s";
        let handed = |ready| {
            format!("{START}; {other}; 16000 {next}; {ready} ready|3; 17000 end|1; 26000 end|3; 27000 end|2")
        };
        let sorted = |deeds: String| {
            let mut deeds: Vec<&str> = deeds.split(';').map(str::trim).collect();
            deeds.sort_by_key(|deed| deed.split(' ').next().unwrap().parse::<u64>().unwrap());
            deeds.join(";")
        };
        assert_finds(&lost, &sorted(handed(16_500)), &runs(&[10]));
        assert_finds(&[], &sorted(handed(17_500)), &runs(&[10]));
        // Nothing shows that it was in force, or only later.
        let contested = format!("{START}; 0 start|2|job,every=3s,lease=5s; 26000 end|1; 27000 end|2");
        assert_finds(&[], &contested, "");
        assert_finds(&[], &contested, "23000 1 10000 1 5 start; 23010 1 10000 1 5 done");
    }

    #[test]
    fn who_was_told_to_end_is_not_counted_on_when_its_way_is_mended() {
        let deeds = format!("{START}; 11000 cut|1; 12000 end|1; 13000 heal|1; 46000 store back");
        assert_finds(&[], &deeds, &runs(&[10]));
    }

    #[test]
    fn what_falls_due_in_an_outage_may_give_way_to_something_newer() {
        let deeds = format!("{START}; 15000 store gone; 32000 store back; 66000 end|1");
        assert_finds(&[], &deeds, &runs(&[10, 30, 40, 50, 60]));
        assert_finds(&[], &deeds, &runs(&[10, 50, 60]));
        assert_finds(&["a lost occurrence: job at 60000"], &deeds, &runs(&[10, 30, 40, 50]));
        let all = [
            "a lost occurrence: job at 20000",
            "a lost occurrence: job at 30000",
            "a lost occurrence: job at 40000",
        ];
        let never = format!("{START}; 15000 store gone; 32000 store back; 46000 end|1");
        assert_finds(&all, &never, &runs(&[10]));
        let other_day = never.replace("46000 end", "45000 clocks set; 46000 end");
        assert_finds(&[], &other_day, &runs(&[10]));
        // Too soon after it came back to be caught up.
        let soon = format!("{START}; 15000 store gone; 32000 store back; 36000 end|1");
        assert_finds(&[], &soon, &runs(&[10]));
    }

    #[test]
    fn of_short_intervals_one_of_ten_may_give_way_to_the_next() {
        let deeds = "0 start|1|job,every=1s,lease=5s; 0 ready|1; 36000 end|1";
        let but = |gone: &[u64]| runs(&(1..=36).filter(|second| !gone.contains(second)).collect::<Vec<_>>());
        assert_finds(&[], deeds, &but(&[10, 20, 30]));
        assert_finds(&["lost occurrences: 4 of 31"], deeds, &but(&[10, 15, 20, 30]));
        let last = ["a lost occurrence: job at 30000", "a lost occurrence: job at 31000"];
        assert_finds(&last, deeds, &but(&[30, 31, 32, 33, 34, 35, 36]));
    }

    #[test]
    fn a_run_that_goes_on_skips_what_falls_due() {
        let long = "10000 1 10000 1 11 start; 35000 1 10000 1 11 done";
        assert_finds(&[], &format!("{START}; 36000 end|1"), long);
        assert_finds(&["a lost occurrence: job at 40000"], &format!("{START}; 46000 end|1"), long);
    }

    #[test]
    fn the_lease_of_a_run_without_an_end_skips_as_well() {
        let cut_short = "10000 1 10000 1 11 start; 12000 1 10000 1 11 step";
        let deeds = format!("{START}; 0 start|2|job,every=10s,lease=5s; 0 ready|2; 13000 end|1");
        assert_finds(&[], &format!("{deeds}; 26000 end|2"), cut_short);
        assert_finds(&["a lost occurrence: job at 30000"], &format!("{deeds}; 36000 end|2"), cut_short);
    }

    #[test]
    fn of_two_schedules_neither_is_owed_until_a_run_shows_which_is_in_force_or_one_is_alone() {
        let deeds =
            format!("{START}; 0 start|2|job,every=20s,lease=5s; 0 ready|2; 25000 end|2; 136000 end|1");
        let alone = ["a lost occurrence: job at 120000", "a lost occurrence: job at 130000"];
        assert_finds(&alone, &deeds, "");
        assert_finds(&["a lost occurrence"; 11], &deeds, &runs(&[10, 20]));
    }

    #[test]
    fn a_run_of_a_process_without_the_job_is_off_the_plan() {
        assert_finds(
            &["a planned time off the grid"],
            &format!("{START}; 16000 end|1"),
            "10000 1 10000 1 11 start; 15000 1 10001 1 12 start",
        );
    }

    #[test]
    fn the_id_of_a_process_may_be_that_of_another_one_later() {
        let deeds = format!(
            "{START}; 15000 end|1; 16000 start|1|other,every=10s,lease=5s; 16000 ready|1; 36000 end|1"
        );
        assert_finds(
            &["a lost occurrence: other at 20000", "a lost occurrence: other at 30000"],
            &deeds,
            &runs(&[10]),
        );
        let all = [
            "a planned time off",
            "a planned time off",
            "a lost occurrence: other",
            "a lost occurrence: other",
        ];
        assert_finds(&all, &deeds, &runs(&[10, 20, 30]));
    }

    #[test]
    fn a_further_attempt_may_be_at_an_occurrence_of_the_schedule_before() {
        let deeds =
            format!("{START}; 11000 end|1; 11000 start|2|job,every=7s,lease=5s; 11000 ready|2; 19000 end|2");
        let lines = "10000 1 10000 1 11 start; 10500 1 10000 1 11 step; 16000 2 10000 2 12 start; 16010 2 10000 2 12 done";
        assert_finds(&[], &deeds, lines);
        assert_finds(
            &["a planned time off the grid"],
            &deeds,
            &lines.replace("10000 2 12", "10000 1 12").replace("1 11", "0 11"),
        );
    }

    #[test]
    fn an_end_that_the_store_may_not_have_heard_of_may_be_followed_by_a_further_attempt() {
        let twice = "10000 1 10000 1 11 start; 10500 1 10000 1 11 done; 17000 2 10000 2 12 start; 17010 2 10000 2 12 done";
        let deeds = format!("{START}; 0 start|2|job,every=10s,lease=5s; 0 ready|2");
        assert_finds(&[], &format!("{deeds}; 10600 end|1; 18000 end|2"), twice);
        assert_finds(&[], &format!("{deeds}; 10400 store gone; 12000 store back; 18000 end|2"), twice);
        assert_finds(&["two successful ends"], &format!("{deeds}; 15000 end|1; 24000 end|2"), twice);
    }
}
