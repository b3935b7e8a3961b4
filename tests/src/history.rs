//! What the handlers of workers, or of an example, wrote down, one line per fact, and what must never be in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use anarchon::clock::Mono;

use crate::told;

/// One line: what one run did at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// On the monotonic clock that all processes of a machine share, and that no test fakes.
    pub mono: Mono,
    /// On the process's wall clock, in µs since the epoch.
    pub wall: i64,
    /// The process.
    pub pid: u32,
    /// Its instance id.
    pub instance: String,
    /// The job.
    pub job: String,
    /// The planned time, in ms since the epoch.
    pub nominal: i64,
    /// The attempt.
    pub attempt: u32,
    /// The fencing token.
    pub token: u64,
    /// Whether the run is marked as a catch-up.
    pub catch_up: bool,
    /// What happened.
    pub fact: Fact,
}

/// What a handler writes down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// It began.
    Start,
    /// It came back from an await, and goes on.
    Step,
    /// It is about to return well.
    Done,
    /// It is about to err, panic or abort.
    Failing,
    /// It saw that it was cancelled, for this reason, and is about to return.
    Cancelled(String),
    /// Its future was dropped before it came to its end.
    Dropped,
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::Step => f.write_str("step"),
            Self::Done => f.write_str("done"),
            Self::Failing => f.write_str("failing"),
            Self::Cancelled(reason) => write!(f, "cancelled:{reason}"),
            Self::Dropped => f.write_str("dropped"),
        }
    }
}

impl Fact {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "start" => Self::Start,
            "step" => Self::Step,
            "done" => Self::Done,
            "failing" => Self::Failing,
            "dropped" => Self::Dropped,
            _ => Self::Cancelled(word.strip_prefix("cancelled:")?.to_owned()),
        })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mono, wall, pid, instance, job, nominal, attempt, token, catch_up, fact } = self;
        let mark = if *catch_up { "catch-up" } else { "on-time" };
        write!(f, "{} {wall} {pid} {instance} {job} {nominal} {attempt} {token} {mark} {fact}", mono.0)
    }
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        Self::of_worker(line).or_else(|| told::entry(line))
    }

    fn of_worker(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [mono, wall, pid, instance, job, nominal, attempt, token, mark, fact] = words[..] else {
            return None;
        };
        Some(Self {
            mono: Mono(mono.parse().ok()?),
            wall: wall.parse().ok()?,
            pid: pid.parse().ok()?,
            instance: instance.to_owned(),
            job: job.to_owned(),
            nominal: nominal.parse().ok()?,
            attempt: attempt.parse().ok()?,
            token: token.parse().ok()?,
            catch_up: mark == "catch-up",
            fact: Fact::parse(fact)?,
        })
    }

    fn is_successful_end(&self) -> bool {
        self.fact == Fact::Done
    }
}

/// One attempt as its handler lived it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its first line.
    pub start: Entry,
    /// Its last line that shows its handler's own code at work: not the drop of its future.
    pub last: Entry,
    /// How often it came back from an await.
    pub steps: usize,
    /// Whether its future was dropped.
    pub dropped: bool,
}

impl Run {
    /// Whether it is a further attempt. Mostly the second; an award that comes late is given back unstarted.
    #[must_use]
    pub fn is_further(&self) -> bool {
        self.start.attempt > 1
    }

    /// Whether it came to its successful end.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.last.is_successful_end()
    }
}

/// All that was written down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History(pub Vec<Entry>);

impl History {
    /// Reads lines; text behind the last line's end is still being written.
    ///
    /// # Panics
    /// For a line that no handler writes.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self::read(text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same.
    ///
    /// # Errors
    /// For a line that no handler writes.
    pub fn read(text: &str) -> Result<Self, String> {
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let read = |line: &str| Entry::parse(line).ok_or_else(|| format!("a torn or foreign line: {line:?}"));
        complete.lines().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// The runs of a job, by token.
    #[must_use]
    pub fn runs(&self, job: &str) -> Vec<Run> {
        let mut runs: BTreeMap<(u64, u32), Run> = BTreeMap::new();
        for entry in self.0.iter().filter(|entry| entry.job == job) {
            let run = runs.entry((entry.token, entry.pid)).or_insert_with(|| Run {
                start: entry.clone(),
                last: entry.clone(),
                steps: 0,
                dropped: false,
            });
            match entry.fact {
                Fact::Dropped => run.dropped = true,
                Fact::Step => {
                    run.steps += 1;
                    run.last = entry.clone();
                }
                Fact::Start | Fact::Done | Fact::Failing | Fact::Cancelled(_) => run.last = entry.clone(),
            }
        }
        runs.into_values().collect()
    }

    /// The jobs, by name.
    #[must_use]
    pub fn jobs(&self) -> BTreeSet<&str> {
        self.0.iter().map(|entry| entry.job.as_str()).collect()
    }

    /// Without what a process wrote after an instant.
    #[must_use]
    pub fn without(mut self, pid: u32, after: Mono) -> Self {
        self.0.retain(|entry| entry.pid != pid || entry.mono <= after);
        self
    }

    /// Whatever must never be: two successful ends or an attempt after one, two runs at once, tokens or attempts that
    /// do not grow, a planned time that `planned` denies, lines that are not those of one run.
    ///
    /// `planned(start)` says whether the job has the occurrence of this first line.
    #[must_use]
    pub fn problems(&self, planned: impl Fn(&Entry) -> bool) -> Vec<String> {
        let mut problems = Vec::new();
        for job in self.jobs() {
            let runs = self.runs(job);
            wrong_lines(self.0.iter().filter(|entry| entry.job == job), &mut problems);
            wrong_times(&runs, &planned, &mut problems);
            wrong_ends(&runs, &mut problems);
            wrong_order(&runs, &mut problems);
        }
        problems
    }
}

/// One token is one run: it begins once, is of one occurrence, and does nothing after its end but being dropped.
fn wrong_lines<'a>(entries: impl Iterator<Item = &'a Entry>, problems: &mut Vec<String>) {
    let mut newest: BTreeMap<(u64, u32), &Entry> = BTreeMap::new();
    for entry in entries {
        let Some(before) = newest.insert((entry.token, entry.pid), entry) else { continue };
        let is_other = (before.nominal, before.attempt) != (entry.nominal, entry.attempt);
        let has_ended = !matches!(before.fact, Fact::Start | Fact::Step);
        if is_other || entry.fact == Fact::Start {
            problems.push(format!("one token for two runs: {before} and {entry}"));
        } else if has_ended && entry.fact != Fact::Dropped {
            problems.push(format!("a run that goes on after its end: {before} and {entry}"));
        }
    }
}

fn wrong_times(runs: &[Run], planned: impl Fn(&Entry) -> bool, problems: &mut Vec<String>) {
    for Run { start, .. } in runs {
        if start.fact != Fact::Start {
            problems.push(format!("a run without a start: {start}"));
        }
        if !planned(start) {
            problems.push(format!("a planned time off the grid: {start}"));
        }
    }
}

fn wrong_ends(runs: &[Run], problems: &mut Vec<String>) {
    for (i, run) in runs.iter().enumerate().filter(|(_, run)| run.is_done()) {
        for later in runs[i + 1..].iter().filter(|later| later.start.nominal == run.start.nominal) {
            let what =
                if later.is_done() { "two successful ends" } else { "an attempt after a successful end" };
            problems.push(format!("{what}: {} and {}", run.last, later.last));
        }
    }
}

/// Runs come by token, so that all else has to grow along.
fn wrong_order(runs: &[Run], problems: &mut Vec<String>) {
    for pair in runs.windows(2) {
        let (first, second) = (&pair[0], &pair[1]);
        if first.start.token == second.start.token {
            problems.push(format!("one token in two processes: {} and {}", first.start, second.start));
        }
        if second.start.mono < first.start.mono {
            problems.push(format!("a token that does not grow: {} before {}", second.start, first.start));
        }
        if first.last.mono >= second.start.mono && second.last.mono >= first.start.mono {
            problems.push(format!("two runs at once: {} and {}", first.last, second.start));
        }
        let same = first.start.nominal == second.start.nominal;
        if same && second.start.attempt <= first.start.attempt {
            problems.push(format!("an attempt that does not grow: {} and {}", first.start, second.start));
        }
        if second.start.nominal < first.start.nominal {
            problems
                .push(format!("an older occurrence after a newer one: {} and {}", first.start, second.start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `mono-in-ms pid nominal attempt token fact` a line, of one job.
    fn history(lines: &str) -> History {
        let entries = lines.split(';').map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [ms, pid, nominal, attempt, token, fact] = words[..] else { panic!("{line:?}") };
            let ms: u64 = ms.parse().unwrap();
            format!("{} {ms}000 {pid} i{pid} job {nominal} {attempt} {token} on-time {fact}\n", ms * 1000)
        });
        History::parse(&entries.collect::<String>())
    }

    fn problems(lines: &str) -> Vec<String> {
        history(lines).problems(|start| start.nominal % 1000 == 0)
    }

    #[track_caller]
    fn assert_finds(problem: &str, lines: &str) {
        let problems = problems(lines);
        assert!(problems.iter().any(|p| p.starts_with(problem)), "{problem:?} is not among {problems:?}");
    }

    const GOOD: &str = "1000 1 1000 1 11 start; 1010 1 1000 1 11 step; 1020 1 1000 1 11 done; \
                        2000 2 2000 1 12 start; 2010 2 2000 1 12 step; 8000 1 2000 2 13 start; 8010 1 2000 2 13 done";

    #[test]
    fn a_good_history_has_no_problems() {
        assert_eq!(problems(GOOD), Vec::<String>::new());
    }

    #[test]
    fn a_line_reads_as_it_was_written() {
        for entry in history(GOOD).0 {
            assert_eq!(Entry::parse(&entry.to_string()), Some(entry));
        }
        let cancelled = Fact::Cancelled("lease-lost".into());
        assert_eq!(Fact::parse(&cancelled.to_string()), Some(cancelled));
    }

    #[test]
    fn a_line_that_is_still_being_written_is_left_for_later() {
        let entry = history("1 1 1000 1 11 start").0.remove(0);
        assert_eq!(History::parse(&format!("{entry}\n{entry}")).0, [entry]);
    }

    #[test]
    #[should_panic(expected = "a torn or foreign line")]
    fn a_torn_line_is_refused() {
        let _ = History::parse("1000 1000 1 i1 job 10\n");
    }

    #[test]
    fn a_nominal_with_two_successful_ends_is_found() {
        assert_finds(
            "two successful ends",
            "1000 1 1000 1 11 start; 1010 1 1000 1 11 done; 1020 2 1000 2 12 start; 1030 2 1000 2 12 done",
        );
    }

    #[test]
    fn an_attempt_after_a_successful_end_is_found() {
        assert_finds(
            "an attempt after",
            "1000 1 1000 1 11 start; 1010 1 1000 1 11 done; 1020 2 1000 2 12 start; 1030 2 1000 2 12 failing",
        );
    }

    #[test]
    fn two_live_attempts_at_once_are_found() {
        assert_finds(
            "two runs at once",
            "1000 1 1000 1 11 start; 1500 2 1000 2 12 start; 1600 1 1000 1 11 step; 1700 2 1000 2 12 done",
        );
    }

    #[test]
    fn the_drop_of_a_frozen_runs_future_is_no_life() {
        let frozen =
            "1000 1 1000 1 11 start; 7000 2 1000 2 12 start; 9000 1 1000 1 11 dropped; 9100 2 1000 2 12 done";
        assert_eq!(problems(frozen), Vec::<String>::new());
    }

    #[test]
    fn a_token_that_does_not_grow_is_found() {
        assert_finds(
            "a token that does not grow",
            "1000 1 1000 1 12 start; 1010 1 1000 1 12 done; 2000 2 2000 1 11 start; 2010 2 2000 1 11 done",
        );
    }

    #[test]
    fn one_token_in_two_processes_is_found() {
        assert_finds("one token", "1000 1 1000 1 11 start; 1010 2 1000 1 11 start");
    }

    #[test]
    fn an_attempt_number_that_comes_again_is_found() {
        assert_finds("an attempt that", "1000 1 1000 1 11 start; 7000 2 1000 1 12 start");
    }

    #[test]
    fn a_nominal_off_the_grid_is_found() {
        assert_finds("a planned time off the grid", "1003 1 1003 1 11 start");
    }

    #[test]
    fn an_older_occurrence_after_a_newer_one_is_found() {
        assert_finds(
            "an older occurrence",
            "2000 1 2000 1 11 start; 2010 1 2000 1 11 done; 2100 1 1000 1 12 start",
        );
    }

    #[test]
    fn one_token_for_two_runs_and_work_after_the_end_are_found() {
        let run = "1000 1 1000 1 11 start; 1010 1 1000 1 11 done";
        assert_finds("one token for two runs", &format!("{run}; 2000 1 2000 1 11 start"));
        assert_finds("one token for two runs", "1000 1 1000 1 11 start; 1010 1 1000 1 11 start");
        assert_finds("a run that goes on after its end", &format!("{run}; 1020 1 1000 1 11 step"));
    }

    #[test]
    fn a_run_without_a_start_is_found() {
        assert_finds("a run without a start", "1010 1 1000 1 11 step");
    }
}
