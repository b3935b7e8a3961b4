//! When would this schedule run? Explains it, lists its next occurrences, and marks the clock changes between them.
//!
//! ```text
//! cargo run --example next -- "0 8 * * 1-5" --tz Europe/Athens --after 2026-03-27T00:00:00Z --count 5
//! ```
//!
//! With `-` it answers one line for each line of standard input; `--help` says how. Nothing here needs a store or a
//! scheduler: `anarchon-schedule` alone answers.

use std::{
    ffi::OsString,
    io::{self, BufRead, Write},
    process::ExitCode,
    time::SystemTime,
};

use anarchon_schedule::{At, Cron, Every, Schedule, Spec, Zones};
use chrono::{DateTime, Datelike, FixedOffset, SecondsFormat, Utc};

const HELP: &str = "\
usage: next SCHEDULE [--tz ZONE] [--after INSTANT] [--count N] [--dialect unix|quartz]
       next -

SCHEDULE is one of
  \"0 8 * * 1-5\"                    cron: 5 fields, 6 with seconds first, or @daily and the like
  \"every 10s\"                      an interval; \"every 1h offset 5m\" moves its grid
  \"at 2027-01-01T00:00\"            an instant, or several with blanks between

--tz ZONE         an IANA time zone, such as Europe/Athens (default UTC); intervals have none
--after INSTANT   RFC 3339, such as 2026-03-27T00:00:00Z; occurrences come after it (default now)
--count N         how many, 0 to 10000 (default 5)
--dialect NAME    how to read cron fields: unix (default), or quartz as the cron crate does

next - reads lines of UTF-8 from standard input, each with four fields:

  SCHEDULE<TAB>ZONE<TAB>INSTANT<TAB>N

All four are needed, in the forms above (ZONE is UTC for intervals; cron fields are read as unix does), and answers each
line with one line, in order: up to N instants in RFC 3339, UTC, with single blanks between, fewer where there are no
more and nothing where there are none, or \"error: …\". A line that fails stops no other.

exit code: 0; 1 when a line was answered with an error, or standard input or output failed; 2 for a wrong command line.
";

const DEFAULT_COUNT: usize = 5;
const MOST: usize = 10_000;

fn main() -> ExitCode {
    match go() {
        Ok(Answered::All) => ExitCode::SUCCESS,
        Ok(Answered::NotAll) => ExitCode::FAILURE,
        Err(Failure::Usage(problems)) => {
            for problem in problems {
                eprintln!("error: {problem}");
            }
            ExitCode::from(2)
        }
        // Whoever reads us has read enough, as `head` does.
        Err(Failure::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failure::Io(error)) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether an answer was given to all that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answered {
    All,
    /// To some lines only an error.
    NotAll,
}

enum Failure {
    Usage(Vec<String>),
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn go() -> Result<Answered, Failure> {
    let zones = Zones::system();
    // Standard output of Rust is flushed at each line end, which 10,000 lines would feel.
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut answered = Answered::All;
    match Command::read(std::env::args_os().skip(1)).map_err(|problem| Failure::Usage(vec![problem]))? {
        Command::Help => out.write_all(HELP.as_bytes())?,
        Command::Lines => answered = answer_lines(io::stdin().lock(), &mut out, &zones)?,
        Command::Explain(question) => explain(&question, &mut out, &zones)?,
    }
    out.flush()?;
    Ok(answered)
}

#[derive(Debug)]
enum Command {
    Help,
    Lines,
    Explain(Question),
}

/// What is asked, on the command line or in a line.
#[derive(Debug)]
struct Question {
    schedule: String,
    tz: Option<String>,
    dialect: Option<String>,
    after: DateTime<Utc>,
    count: usize,
}

impl Command {
    fn read(arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let (mut schedule, mut tz, mut dialect, mut after, mut count) = (None, None, None, None, None);
        let mut arguments = arguments.map(text);
        while let Some(argument) = arguments.next() {
            let argument = argument?;
            let (option, attached) = match argument.split_once('=') {
                Some((option, value)) if option.starts_with("--") => (option, Some(value.to_owned())),
                _ => (argument.as_str(), None),
            };
            let place = match option {
                "--help" | "-h" if attached.is_none() => return Ok(Self::Help),
                "--tz" => &mut tz,
                "--after" => &mut after,
                "--count" => &mut count,
                "--dialect" => &mut dialect,
                other if other.starts_with('-') && other != "-" => {
                    return Err(format!("unknown option {other:?}; see --help"));
                }
                _ if schedule.is_some() => {
                    return Err(format!("{argument:?} is one argument too many; put the schedule in quotes"));
                }
                _ => {
                    schedule = Some(argument);
                    continue;
                }
            };
            let value = match attached {
                Some(value) => value,
                None => arguments.next().ok_or_else(|| format!("{option} lacks its value; see --help"))??,
            };
            if place.replace(value).is_some() {
                return Err(format!("{option} is given twice; leave one out"));
            }
        }
        let schedule = schedule.ok_or("the schedule is missing; see --help")?;
        if schedule == "-" {
            return match [&tz, &dialect, &after, &count].iter().all(|option| option.is_none()) {
                true => Ok(Self::Lines),
                false => Err("\"-\" takes no options, each line has its own; leave them out".to_owned()),
            };
        }
        let after = after.map_or_else(|| Ok(SystemTime::now().into()), |after| instant(&after))?;
        let count = count.map_or(Ok(DEFAULT_COUNT), |count| number(&count))?;
        Ok(Self::Explain(Question { schedule, tz, dialect, after, count }))
    }
}

fn text(argument: OsString) -> Result<String, String> {
    argument
        .into_string()
        .map_err(|argument| format!("argument {argument:?} is not valid Unicode; write it in UTF-8"))
}

fn instant(text: &str) -> Result<DateTime<Utc>, String> {
    match DateTime::parse_from_rfc3339(text) {
        Ok(instant) => Ok(instant.to_utc()),
        Err(_) => Err(format!("{text:?} is no instant; write one such as 2026-03-27T00:00:00Z")),
    }
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count <= MOST => Ok(count),
        Ok(_) | Err(_) => Err(format!("{text:?} is no count; write a number from 0 to {MOST}")),
    }
}

impl Question {
    /// The schedule and what to warn of, or all that is wrong.
    fn resolve(&self, zones: &Zones) -> Result<(Schedule, Vec<String>), Vec<String>> {
        let spec = self.spec().map_err(|problem| vec![problem])?;
        spec.resolve(zones).map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    fn spec(&self) -> Result<Spec, String> {
        let words: Vec<_> = self.schedule.split_whitespace().collect();
        if let (Some(&kind @ ("every" | "at")), Some(_)) = (words.first(), &self.dialect) {
            return Err(format!("--dialect is for cron expressions, not for {kind:?}; leave it out"));
        }
        match words[..] {
            ["every", interval] => Ok(Every::new(interval).into()),
            ["every", interval, "offset", offset] => Ok(Every::new(interval).offset(offset).into()),
            ["every", ..] => Err("write \"every 10s\" or \"every 1h offset 5m\"".to_owned()),
            ["at"] => Err("\"at\" lacks its instant; write one such as \"at 2027-01-01T00:00\"".to_owned()),
            ["at", first, ref more @ ..] => {
                let at = more.iter().fold(At::new(first), |at, instant| at.and(*instant));
                Ok(self.tz.iter().fold(at, |at, tz| at.tz(tz.as_str())).into())
            }
            _ => {
                let cron = Cron::new(self.schedule.as_str());
                let cron = self.tz.iter().fold(cron, |cron, tz| cron.tz(tz.as_str()));
                Ok(self.dialect.iter().fold(cron, |cron, dialect| cron.dialect(dialect.as_str())).into())
            }
        }
    }

    fn occurrences<'a>(&self, schedule: &'a Schedule) -> impl Iterator<Item = DateTime<Utc>> + use<'a> {
        std::iter::successors(schedule.next_after(self.after), |last| schedule.next_after(*last))
            // RFC 3339 has four digits for the year.
            .take_while(|instant| instant.year() <= 9999)
            .take(self.count)
    }
}

fn rfc3339(instant: DateTime<Utc>) -> String {
    instant.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

fn explain(question: &Question, out: &mut impl Write, zones: &Zones) -> Result<(), Failure> {
    let (schedule, warnings) = question.resolve(zones).map_err(Failure::Usage)?;
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
    writeln!(out, "{schedule}\n")?;
    let mut shown = 0;
    let mut before: Option<FixedOffset> = None;
    for instant in question.occurrences(&schedule) {
        let local = schedule.local(instant);
        if let Some(before) = before {
            mark_clock_change(out, before, *local.offset())?;
        }
        before = Some(*local.offset());
        writeln!(out, "{:<24}  {}", rfc3339(instant), local.format("%a %Y-%m-%d %H:%M:%S%.f %:z"))?;
        shown += 1;
    }
    if shown < question.count {
        writeln!(out, "{}", if shown == 0 { "(no occurrence)" } else { "(no more occurrences)" })?;
    }
    Ok(())
}

fn mark_clock_change(out: &mut impl Write, before: FixedOffset, now: FixedOffset) -> io::Result<()> {
    let seconds = now.local_minus_utc() - before.local_minus_utc();
    let direction = match seconds {
        0 => return Ok(()),
        1.. => "forward",
        _ => "back",
    };
    writeln!(out, "    -- clocks go {direction} {} between these", length(seconds.unsigned_abs()))
}

fn length(seconds: u32) -> String {
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let parts: Vec<_> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n} {unit}")).collect();
    parts.join(" ")
}

fn answer_lines(mut input: impl BufRead, out: &mut impl Write, zones: &Zones) -> io::Result<Answered> {
    let mut line = Vec::new();
    let mut answered = Answered::All;
    while input.read_until(b'\n', &mut line)? > 0 {
        match answer(&line, zones) {
            Ok(instants) => writeln!(out, "{}", instants.join(" "))?,
            Err(problem) => {
                answered = Answered::NotAll;
                writeln!(out, "error: {}", on_one_line(&problem))?;
            }
        }
        line.clear();
    }
    Ok(answered)
}

fn answer(line: &[u8], zones: &Zones) -> Result<Vec<String>, String> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = std::str::from_utf8(line).map_err(|wrong| format!("the line is not UTF-8: {wrong}"))?;
    let fields: Vec<_> = line.split('\t').collect();
    let [schedule, tz, after, count] = fields[..] else {
        let found = fields.len();
        return Err(format!("found {found} of 4 fields; write SCHEDULE<TAB>ZONE<TAB>INSTANT<TAB>N"));
    };
    let question = Question {
        schedule: schedule.to_owned(),
        tz: Some(tz.to_owned()),
        dialect: None,
        after: instant(after)?,
        count: number(count)?,
    };
    let (schedule, _warnings) = question.resolve(zones).map_err(|problems| problems.join("; "))?;
    Ok(question.occurrences(&schedule).map(rfc3339).collect())
}

/// Messages quote what they are about, and that may hold anything.
fn on_one_line(message: &str) -> String {
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
