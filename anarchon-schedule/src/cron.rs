//! The Unix dialect: the grammar of crontab(5) as Debian's cron reads it, with `L`, `LW`, `15W`, `5L` and `5#2`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::error::{ParseError, Where, nearest};
use crate::fields::{ALL_WEEKDAYS, ClockRule, DayRule, Days, Fields, Weekdays};
use crate::quartz;
use crate::words;
use crate::zone::{Zone, ZoneName, Zones};

/// A cron expression: 5 fields (minute, hour, day of month, month, day of week), 6 with seconds in front, or one of
/// `@hourly @daily @midnight @weekly @monthly @yearly @annually`.
///
/// It means what Debian's cron means. `1-5` is Monday to Friday, 0 and 7 are Sunday; names in any case; lists, ranges,
/// steps; `n/step` runs from n to the end of the field, which for days of the week is 7, Sunday. Day of month and day
/// of week are OR-ed, unless one of the two texts starts with `*`: then both have to fit.
///
/// | extension | field | means |
/// | --- | --- | --- |
/// | `L` | day of month | the last day |
/// | `L-3` | day of month | three days before the last day; none in a month that is too short |
/// | `LW` | day of month | the last Monday to Friday |
/// | `15W` | day of month | the Monday to Friday nearest to the 15th, never in another month; none where the month has no such day |
/// | `5L` | day of week | the last Friday |
/// | `5#2` | day of week | the second Friday; `#5` only in months that have a fifth |
///
/// **Clock changes.** A job whose minute and hour fields do not start with `*` and that falls into a gap runs at the
/// first instant after it, once for all its times in the gap; in a repeated hour it runs the first time. Other jobs
/// follow real minutes. As in Debian's cron, a change of 3 hours or more forward, or of more than 3 hours back, is a correction of the clock: what it
/// skips is not run, what it repeats is run again.
///
/// ```
/// use anarchon_schedule::{Cron, Spec};
///
/// let digest = Spec::from(Cron::new("0 8 * * 1-5").tz("Europe/Athens")).check().unwrap();
/// let friday_noon = "2027-01-01T12:00:00Z".parse().unwrap();
/// assert_eq!(digest.next_after(friday_noon).unwrap().to_rfc3339(), "2027-01-04T06:00:00+00:00");
/// assert_eq!(digest.to_string(), "at 08:00, Monday to Friday, Europe/Athens");
/// ```
#[derive(Clone, Debug)]
pub struct Cron {
    expr: String,
    tz: Option<ZoneName>,
    dialect: Option<String>,
}

impl Cron {
    /// From an expression. It is checked later, by [`Spec::check`](crate::Spec::check).
    pub fn new(expr: impl Into<String>) -> Self {
        Self { expr: expr.into(), tz: None, dialect: None }
    }

    /// The time zone the fields are read in. Default `UTC`.
    pub fn tz(self, zone: impl Into<ZoneName>) -> Self {
        Self { tz: Some(zone.into()), ..self }
    }

    /// `"unix"` (the default) or `"quartz"`: 6 or 7 fields as the crate [`cron`](::cron) reads them (seconds first, a year last,
    /// `?`, Sunday is 1, both day fields have to fit). Only clock changes follow the rule above.
    pub fn dialect(self, dialect: impl Into<String>) -> Self {
        Self { dialect: Some(dialect.into()), ..self }
    }

    /// The checked rule, and whether its zone had to be substituted.
    pub(crate) fn resolve(&self, zones: &Zones) -> Result<(CronRule, bool), Vec<ParseError>> {
        let fields = match self.dialect.as_deref() {
            None | Some("unix") => parse(&self.expr),
            Some("quartz") => quartz::parse(&self.expr).map_err(|error| vec![error]),
            Some(other) => Err(vec![unknown_dialect(other)]),
        };
        let zone = match &self.tz {
            Some(tz) => zones.get(tz),
            None => Ok((Zone::utc(), false)),
        };
        match (fields, zone) {
            (Ok(fields), Ok((zone, substitute))) => Ok((CronRule { fields, zone }, substitute)),
            (fields, zone) => Err(fields.err().into_iter().flatten().chain(zone.err()).collect()),
        }
    }
}

impl From<&str> for Cron {
    fn from(expr: &str) -> Self {
        Self::new(expr)
    }
}

impl From<String> for Cron {
    fn from(expr: String) -> Self {
        Self::new(expr)
    }
}

/// In the `quartz` dialect.
impl From<::cron::Schedule> for Cron {
    fn from(schedule: ::cron::Schedule) -> Self {
        Self::new(schedule).dialect("quartz")
    }
}

fn unknown_dialect(name: &str) -> ParseError {
    let mend = match nearest(name, ["unix", "quartz"].into_iter()) {
        Some(near) => format!("did you mean \"{near}\""),
        None => r#"write "unix" (the default) or "quartz""#.to_owned(),
    };
    ParseError::new(0..name.len(), format!("unknown cron dialect {name:?}"), mend).on(Where::Dialect)
}

/// Sets of allowed times in a zone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CronRule {
    fields: Fields,
    zone: Arc<Zone>,
}

impl CronRule {
    pub(crate) fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.fields.next_after(self.zone.changes(), after)
    }

    pub(crate) fn latest_at_or_before(&self, t: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.fields.latest_at_or_before(self.zone.changes(), t)
    }

    pub(crate) fn zone(&self) -> &Zone {
        &self.zone
    }

    pub(crate) fn canonical(&self) -> String {
        self.fields.canonical(self.zone.name())
    }
}

impl fmt::Display for CronRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", words::explain(&self.fields), self.zone.name())
    }
}

fn parse(expr: &str) -> Result<Fields, Vec<ParseError>> {
    let text = expr.trim_ascii();
    if text.is_empty() {
        let mend = r#"write 5 fields such as "0 8 * * 1-5""#;
        return Err(vec![ParseError::new(0..expr.len(), "the cron expression is empty", mend)]);
    }
    let nickname = text.starts_with('@');
    let text = if nickname { from_nickname(expr, text).map_err(|error| vec![error])? } else { expr };
    let mut parts: [Range<usize>; 6] = Default::default();
    let count = split(text, &mut parts);
    let [first, .., last] = &parts;
    if let Some(error) = foreign(expr, text, count, first, last) {
        return Err(vec![error]);
    }
    let (seconds, parts) = match (count, &parts) {
        (5, [parts @ .., _]) => (None, parts),
        (6, [seconds, parts @ ..]) => (Some(seconds), parts),
        _ => return Err(vec![wrong_count(expr, count)]),
    };
    let mut errors = Vec::new();
    let mut read = |field: &'static Field, part: &Range<usize>| {
        let mut set = Set::default();
        if let Err(error) = (Reader { expr: text, field }).list(part, &mut set) {
            errors.push(error);
        }
        set
    };
    let seconds = seconds.map_or(1, |part| read(&SECOND, part).numbers);
    let [minute, hour, day, month, weekday] = parts;
    let minutes = read(&MINUTE, minute).numbers;
    let hours = read(&HOUR, hour).numbers;
    let days = read(&DAY_OF_MONTH, day);
    let months = read(&MONTH, month).numbers as u16;
    let weekdays = read(&DAY_OF_WEEK, weekday);
    if !errors.is_empty() {
        return Err(errors);
    }
    let starred = |part: &Range<usize>| text.as_bytes().get(part.start) == Some(&b'*');
    let fields = Fields {
        seconds,
        minutes,
        hours,
        days: Days { numbers: days.numbers as u32, ..days.days },
        months,
        weekdays: Weekdays {
            // 7 is Sunday as well.
            any: ((weekdays.numbers | weekdays.numbers >> 7) & u64::from(ALL_WEEKDAYS)) as u8,
            nth: weekdays.nth,
        },
        rule: if starred(day) || starred(weekday) { DayRule::Both } else { DayRule::Either },
        clock: if starred(minute) || starred(hour) { ClockRule::Wildcard } else { ClockRule::Fixed },
        years: None,
    };
    if fields.has_date() { Ok(fields) } else { Err(vec![never(expr, day.start..month.end)]) }
}

/// Fills in the ranges of up to six fields and returns how many there are.
fn split(text: &str, parts: &mut [Range<usize>; 6]) -> usize {
    let mut count = 0;
    let mut at = 0;
    let bytes = text.as_bytes();
    while let Some(start) = bytes.iter().skip(at).position(|b| !b.is_ascii_whitespace()) {
        let start = at + start;
        let length = bytes.iter().skip(start).position(u8::is_ascii_whitespace);
        at = length.map_or(bytes.len(), |length| start + length);
        if let Some(part) = parts.get_mut(count) {
            *part = start..at;
        }
        count += 1;
    }
    count
}

fn from_nickname(expr: &str, text: &str) -> Result<&'static str, ParseError> {
    let name = &text[1..];
    if let Some((_, meaning)) = NICKNAMES.iter().find(|(nickname, _)| nickname.eq_ignore_ascii_case(name)) {
        return Ok(meaning);
    }
    let word = name.split_ascii_whitespace().next().unwrap_or("");
    let known = NICKNAMES.iter().map(|(nickname, _)| *nickname);
    let mend = if word.eq_ignore_ascii_case("reboot") {
        "a job that runs once across all instances has no reboot; call the function when the program starts"
            .to_owned()
    } else if word.eq_ignore_ascii_case("every") {
        r#"use an interval instead: every("5m")"#.to_owned()
    } else if known.clone().any(|nickname| nickname.eq_ignore_ascii_case(word)) {
        format!("write \"@{word}\" alone")
    } else {
        match nearest(word, known) {
            Some(near) => format!("did you mean \"@{near}\""),
            None => "use @hourly, @daily, @weekly, @monthly, @yearly or 5 fields".to_owned(),
        }
    };
    Err(ParseError::new(0..expr.len(), format!("{text:?} is no cron schedule"), mend))
}

/// A zone where a field should be: what other crons accept.
fn foreign(
    expr: &str,
    text: &str,
    count: usize,
    first: &Range<usize>,
    last: &Range<usize>,
) -> Option<ParseError> {
    let word = &text[first.clone()];
    if let Some((name, zone)) = word.split_once('=') {
        let (problem, mend) = if name.eq_ignore_ascii_case("CRON_TZ") || name.eq_ignore_ascii_case("TZ") {
            let rest = text[first.end..].trim_ascii();
            ("zone", format!("write {rest:?} and set tz = {zone:?}"))
        } else {
            ("variable", "write the 5 fields alone".to_owned())
        };
        return Some(ParseError::new(
            first.clone(),
            format!("{problem} {word:?} stands in cron expression {expr:?}"),
            mend,
        ));
    }
    let word = &text[last.clone()];
    if count == 6 && word.parse::<chrono_tz::Tz>().is_ok() {
        let rest = text[..last.start].trim_ascii();
        return Some(ParseError::new(
            last.clone(),
            format!("zone {word:?} stands in cron expression {expr:?}"),
            format!("write {rest:?} and set tz = {word:?}"),
        ));
    }
    None
}

fn wrong_count(expr: &str, count: usize) -> ParseError {
    let mend = match count {
        7 => r#"leave the year out, or set dialect = "quartz" if that is how it is meant"#,
        _ => "write minute, hour, day of month, month, day of week, and seconds in front if needed",
    };
    let plural = if count == 1 { "" } else { "s" };
    ParseError::new(
        0..expr.len(),
        format!("cron expression {expr:?} has {count} field{plural}, not 5 or 6"),
        mend,
    )
}

pub(crate) fn never(expr: &str, range: Range<usize>) -> ParseError {
    ParseError::new(
        range,
        format!("the date in cron expression {expr:?} never comes"),
        "write a day that one of the months has",
    )
}

/// One field as it is read.
#[derive(Default)]
struct Set {
    numbers: u64,
    days: Days,
    nth: [u8; 7],
}

struct Field {
    name: &'static str,
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", low: 0, high: 59, names: &[] };
const MINUTE: Field = Field { name: "minute", low: 0, high: 59, names: &[] };
const HOUR: Field = Field { name: "hour", low: 0, high: 23, names: &[] };
const DAY_OF_MONTH: Field = Field { name: "day of month", low: 1, high: 31, names: &[] };
const MONTH: Field = Field {
    name: "month",
    low: 1,
    high: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const DAY_OF_WEEK: Field =
    Field { name: "day of week", low: 0, high: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// Reads one field. All ranges are bytes of `expr`.
struct Reader<'a> {
    expr: &'a str,
    field: &'static Field,
}

impl Reader<'_> {
    fn list(&self, part: &Range<usize>, set: &mut Set) -> Result<(), ParseError> {
        let mut start = part.start;
        for item in self.expr[part.clone()].split(',') {
            let end = start + item.len();
            self.item(item, start..end, set)?;
            start = end + 1;
        }
        Ok(())
    }

    fn item(&self, item: &str, range: Range<usize>, set: &mut Set) -> Result<(), ParseError> {
        let start = range.start;
        if item == "*" {
            set.numbers |= span(self.field.low, self.field.high);
            return Ok(());
        }
        if self.field.name == DAY_OF_MONTH.name && self.special_day(item, &range, &mut set.days)? {
            return Ok(());
        }
        if self.field.name == DAY_OF_WEEK.name && self.special_weekday(item, &range, &mut set.nth)? {
            return Ok(());
        }
        let (body, step) = match item.split_once('/') {
            None => (item, None),
            Some((body, step)) => (body, Some(self.step(step, start + body.len() + 1..range.end)?)),
        };
        let body_range = start..start + body.len();
        let (low, high) = if body == "*" {
            (self.field.low, self.field.high)
        } else if let Some((low, high)) = body.split_once('-').filter(|(low, _)| !low.is_empty()) {
            let end = start + low.len();
            let low = self.value(low, start..end)?;
            let high = self.value(high, end + 1..body_range.end)?;
            if low > high {
                return Err(self.reversed(body_range, low, high));
            }
            (low, high)
        } else {
            let low = self.value(body, body_range)?;
            (low, if step.is_some() { self.field.high } else { low })
        };
        set.numbers |= match step {
            None | Some(1) => span(low, high),
            Some(step) => (low..=high).step_by(step).fold(0, |numbers, number| numbers | 1 << number),
        };
        Ok(())
    }

    /// `L`, `L-3`, `LW`, `15W`.
    fn special_day(&self, item: &str, range: &Range<usize>, days: &mut Days) -> Result<bool, ParseError> {
        if item.eq_ignore_ascii_case("L") {
            days.before_last |= 1;
        } else if item.eq_ignore_ascii_case("LW") || item.eq_ignore_ascii_case("WL") {
            days.last_weekday = true;
        } else if let Some(before) = item.strip_prefix("L-").or_else(|| item.strip_prefix("l-")) {
            match number(before) {
                Some(before @ 0..=30) => days.before_last |= 1 << before,
                _ => {
                    return Err(self.error(range.clone(), "is no day before the last", "write L-1 to L-30"));
                }
            }
        } else if let Some(day) = item.strip_suffix(['W', 'w']) {
            if day.contains(['-', '/']) {
                return Err(self.error(
                    range.clone(),
                    "is no single day",
                    "write one day before W, such as 15W",
                ));
            }
            days.nearest_weekday |= 1 << self.value(day, range.start..range.end - 1)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// `5L`, `5#2`.
    fn special_weekday(
        &self,
        item: &str,
        range: &Range<usize>,
        nth: &mut [u8; 7],
    ) -> Result<bool, ParseError> {
        let (day, n) = if let Some((day, n)) = item.split_once('#') {
            let n_range = range.start + day.len() + 1..range.end;
            match number(n) {
                Some(n @ 1..=5) => (day, n),
                _ => {
                    let problem = format!("week \"{n}\" is out of range 1–5 in {:?}", self.expr);
                    return Err(ParseError::new(
                        n_range,
                        problem,
                        "write #1 to #5, or L for the last, such as 5L",
                    ));
                }
            }
        } else if let Some(day) = item.strip_suffix(['L', 'l']) {
            if day.is_empty() {
                let mend = "write the day before L, such as 5L for the last Friday";
                return Err(self.error(range.clone(), "names no day", mend));
            }
            (day, 0)
        } else {
            return Ok(false);
        };
        let day = self.value(day, range.start..range.start + day.len())? % 7;
        if let Some(nth) = nth.get_mut(day as usize) {
            *nth |= 1 << n;
        }
        Ok(true)
    }

    fn value(&self, text: &str, range: Range<usize>) -> Result<u32, ParseError> {
        let Field { low, high, names, .. } = self.field;
        if let Some(number) = number(text) {
            return if (*low..=*high).contains(&number) {
                Ok(number)
            } else {
                let problem = format!("is out of range {low}–{high}");
                Err(self.error(range, &problem, format!("write {low} to {high}")))
            };
        }
        if let Some(index) = names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(index as u32 + low);
        }
        Err(self.no_value(text, range))
    }

    fn step(&self, text: &str, range: Range<usize>) -> Result<usize, ParseError> {
        match number(text) {
            Some(0) => Err(self.wrong_step(text, range, "is zero")),
            Some(step) => Ok(step as usize),
            None => Err(self.wrong_step(text, range, "is no number")),
        }
    }

    fn wrong_step(&self, text: &str, range: Range<usize>, problem: &str) -> ParseError {
        ParseError::new(
            range,
            format!("{} step \"{text}\" {problem} in {:?}", self.field.name, self.expr),
            "write a step of 1 or more",
        )
    }

    fn no_value(&self, text: &str, range: Range<usize>) -> ParseError {
        let Field { low, high, names, .. } = self.field;
        let full =
            |short: &&&str| text.len() > 3 && text.get(..3).is_some_and(|t| t.eq_ignore_ascii_case(short));
        let (problem, mend) = if text.is_empty() {
            ("is empty", "remove the comma, or write a value".to_owned())
        } else if text == "?" {
            ("is for quartz", r#"write "*", or set dialect = "quartz""#.to_owned())
        } else if text.eq_ignore_ascii_case("L") || text.eq_ignore_ascii_case("LW") {
            ("cannot stand here", "L and LW stand alone, in day of month".to_owned())
        } else if text.contains('*') {
            ("mixes * with something else", r#"write "*", or "*/n" for every n-th"#.to_owned())
        } else if let Some(short) = names.iter().find(full).or_else(|| {
            nearest(text, names.iter().copied()).and_then(|near| names.iter().find(|name| **name == near))
        }) {
            ("is no name", format!("did you mean \"{}\"", short.to_uppercase()))
        } else if names.is_empty() {
            ("is no number", format!("write {low} to {high}"))
        } else {
            (
                "is no value",
                format!("write {low} to {high}, or a name such as \"{}\"", names[1].to_uppercase()),
            )
        };
        self.error(range, problem, mend)
    }

    fn reversed(&self, range: Range<usize>, low: u32, high: u32) -> ParseError {
        let mend = match self.field.name {
            "day of week" if high == 0 => format!("Sunday at the end is 7: write {low}-7"),
            "day of week" if low == 7 => format!("Sunday at the beginning is 0: write 0-{high}"),
            _ => format!("write {},{}", joined(low, self.last()), joined(self.field.low, high)),
        };
        self.error(range, "is a reversed range", mend)
    }

    fn last(&self) -> u32 {
        if self.field.name == DAY_OF_WEEK.name { 6 } else { self.field.high }
    }

    fn error(&self, range: Range<usize>, problem: &str, mend: impl Into<String>) -> ParseError {
        let problem =
            format!("{} \"{}\" {problem} in {:?}", self.field.name, &self.expr[range.clone()], self.expr);
        ParseError::new(range, problem, mend)
    }
}

fn joined(low: u32, high: u32) -> String {
    if low == high { low.to_string() } else { format!("{low}-{high}") }
}

/// Digits alone; a number too large for us is [`u32::MAX`].
fn number(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.bytes().fold(0, |number: u32, b| number.saturating_mul(10).saturating_add(u32::from(b - b'0'))))
}

/// Bits `low` to `high`, at most 59.
fn span(low: u32, high: u32) -> u64 {
    (u64::MAX >> (63 - high)) & (u64::MAX << low)
}

const NICKNAMES: [(&str, &str); 7] = [
    ("hourly", "0 * * * *"),
    ("daily", "0 0 * * *"),
    ("midnight", "0 0 * * *"),
    ("weekly", "0 0 * * 0"),
    ("monthly", "0 0 1 * *"),
    ("yearly", "0 0 1 1 *"),
    ("annually", "0 0 1 1 *"),
];
