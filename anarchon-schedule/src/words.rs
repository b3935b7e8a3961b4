//! A cron expression as text: one for machines that compare, one for people.

use crate::duration::words;
use crate::fields::{
    ALL_DAYS, ALL_HOURS, ALL_MONTHS, ALL_SIXTY, ALL_WEEKDAYS, ClockRule, DayRule, Days, Fields, Weekdays,
    bits,
};

impl Fields {
    /// A text that is equal for expressions that mean the same in this zone.
    pub(crate) fn canonical(&self, zone: &str) -> String {
        let (days, weekdays, rule) = self.reduced();
        let zone = if UTC_NAMES.contains(&zone) { "UTC" } else { zone };
        let mut text =
            format!("cron {:x} {:x} {:x} {:x}", self.seconds, self.minutes, self.hours, days.numbers);
        text.push_str(&format!(
            "/{:x}/{:x}/{}",
            days.before_last,
            days.nearest_weekday,
            u8::from(days.last_weekday)
        ));
        text.push_str(&format!(" {:x} {:x}", self.months, weekdays.any));
        for nth in weekdays.nth {
            text.push_str(&format!("/{nth:x}"));
        }
        text.push_str(match rule {
            DayRule::Both => " both",
            DayRule::Either => " either",
        });
        text.push_str(match self.clock {
            // Where the clocks never change, the two mean the same.
            _ if zone == "UTC" => " utc",
            ClockRule::Wildcard => " wildcard",
            ClockRule::Fixed => " fixed",
        });
        if let Some(years) = &self.years {
            text.push_str(" years");
            for year in years {
                text.push_str(&format!(" {year}"));
            }
        }
        format!("{text} {zone}")
    }

    /// The day sets without what has no effect, and the rule that then holds.
    fn reduced(&self) -> (Days, Weekdays, DayRule) {
        let (mut days, mut weekdays) = (self.days, self.weekdays);
        if days.numbers == ALL_DAYS {
            days = Days::ALL;
        }
        for (weekday, nth) in weekdays.nth.iter_mut().enumerate() {
            // In four weeks each weekday comes four times.
            if weekdays.any >> weekday & 1 == 1 {
                *nth = 0;
            }
        }
        let free = (days == Days::ALL, weekdays == Weekdays::ALL);
        match self.rule {
            DayRule::Either if free.0 || free.1 => (Days::ALL, Weekdays::ALL, DayRule::Both),
            rule => (days, weekdays, rule),
        }
    }
}

/// `at 08:00, Monday to Friday`, without the zone.
pub(crate) fn explain(fields: &Fields) -> String {
    let mut text = time(fields);
    let (days, weekdays, rule) = fields.reduced();
    let on_days = (days != Days::ALL).then(|| day_words(days));
    let on_weekdays = (weekdays != Weekdays::ALL).then(|| weekday_words(weekdays));
    match (on_days, on_weekdays) {
        (None, None) => {}
        (Some(days), None) => text.push_str(&format!(", on {days}")),
        (None, Some(weekdays)) => text.push_str(&format!(", {weekdays}")),
        (Some(days), Some(weekdays)) => {
            let link = match rule {
                DayRule::Both => "if that is",
                DayRule::Either => "and also",
            };
            text.push_str(&format!(", on {days} {link} {weekdays}"));
        }
    }
    if fields.months != ALL_MONTHS {
        text.push_str(&format!(
            ", in {}",
            runs(fields.months.into(), |month| MONTHS[month as usize - 1].to_owned())
        ));
    }
    if let Some(years) = &fields.years {
        text.push_str(&format!(", in {}", year_words(years)));
    }
    text
}

fn time(fields: &Fields) -> String {
    let (seconds, minutes, hours) = (fields.seconds, fields.minutes, fields.hours);
    let second = (seconds.count_ones() == 1).then(|| seconds.trailing_zeros());
    let few = minutes.count_ones() * hours.count_ones() <= 6;
    if let Some(second) = second
        && few
    {
        let times = bits(hours).flat_map(|hour| bits(minutes).map(move |minute| clock(hour, minute, second)));
        return format!("at {}", join(times.collect()));
    }
    let mut text = match second {
        Some(_) if minutes.count_ones() == 1 => String::new(),
        Some(0) if regular(minutes, 60).is_none() => format!("at {}", repeated(minutes, "minute")),
        Some(0) => repeated(minutes, "minute"),
        Some(second) => format!("{} at second {second}", repeated(minutes, "minute")),
        None => repeated(seconds, "second"),
    };
    if second.is_none() && minutes != ALL_SIXTY {
        text.push_str(&format!(" of {}", repeated(minutes, "minute")));
    }
    if text.is_empty() {
        return hourly(hours, minutes.trailing_zeros(), second.unwrap_or(0));
    }
    if hours != ALL_HOURS {
        text.push_str(&format!(" {}", hour_words(hours)));
    }
    text
}

/// One time in each of several hours.
fn hourly(hours: u64, minute: u32, second: u32) -> String {
    match (hours, minute, second) {
        (ALL_HOURS, 0, 0) => "every hour".to_owned(),
        (ALL_HOURS, _, 0) => format!("every hour at minute {minute}"),
        (ALL_HOURS, ..) => format!("every hour at minute {minute}, second {second}"),
        _ if in_a_row(hours) => {
            let (first, last) = (hours.trailing_zeros(), hours.ilog2());
            format!("every hour from {} to {}", clock(first, minute, second), clock(last, minute, second))
        }
        _ => match regular(hours, 24) {
            Some((step, first)) => format!("every {step} hours from {}", clock(first, minute, second)),
            None => format!("hourly at {}", runs(hours, |hour| clock(hour, minute, second))),
        },
    }
}

/// `every 15 minutes`, `every minute`, `at minutes 1, 2 and 7`, `minutes 0 to 29`.
fn repeated(mask: u64, unit: &str) -> String {
    let size = if unit == "hour" { 24 } else { 60 };
    match regular(mask, size) {
        Some((1, _)) => format!("every {unit}"),
        Some((step, 0)) => format!("every {step} {unit}s"),
        Some((step, first)) => format!("every {step} {unit}s from {unit} {first}"),
        None if mask.count_ones() == 1 => format!("{unit} {}", mask.trailing_zeros()),
        None => format!("{unit}s {}", runs(mask, |number| number.to_string())),
    }
}

/// Step and first of a set that is spread evenly over the whole unit, also from one unit to the next.
fn regular(mask: u64, size: u32) -> Option<(u32, u32)> {
    let count = mask.count_ones();
    if count < 2 || !size.is_multiple_of(count) {
        return None;
    }
    let (step, first) = (size / count, mask.trailing_zeros());
    (0..count).all(|n| mask >> (first + n * step).min(63) & 1 == 1).then_some((step, first))
}

fn hour_words(hours: u64) -> String {
    if let Some((step, 0)) = regular(hours, 24) {
        return format!("of every {step} hours");
    }
    let first = hours.trailing_zeros();
    let last = hours.ilog2();
    if in_a_row(hours) {
        return format!("from {first:02}:00 to {last:02}:59");
    }
    format!("of hours {}", runs(hours, |hour| hour.to_string()))
}

fn in_a_row(mask: u64) -> bool {
    mask.count_ones() == mask.ilog2() - mask.trailing_zeros() + 1
}

fn day_words(days: Days) -> String {
    let mut parts = Vec::new();
    if let Some((step, first)) = stepped(days.numbers) {
        parts.push(format!("every {} day from the {}", ordinal(step), ordinal(first)));
    } else if days.numbers != 0 {
        parts.push(format!("the {}", runs(days.numbers.into(), ordinal)));
    }
    for day in bits(days.nearest_weekday.into()) {
        parts.push(format!("the weekday nearest the {}", ordinal(day)));
    }
    if days.last_weekday {
        parts.push("the last weekday of the month".to_owned());
    }
    for before in bits(days.before_last.into()) {
        parts.push(match before {
            0 => "the last day of the month".to_owned(),
            _ => format!("the day {} before the last of the month", words(u64::from(before) * 86_400_000)),
        });
    }
    join(parts)
}

/// Step and first of a set such as `*/3`, which no list would explain better.
fn stepped(numbers: u32) -> Option<(u32, u32)> {
    let mut days = bits(numbers.into());
    let (first, second) = (days.next()?, days.next()?);
    let step = second - first;
    let all = (first..=31).step_by(step as usize).fold(0, |mask: u32, day| mask | 1 << day);
    (step > 1 && numbers == all && numbers.count_ones() > 3).then_some((step, first))
}

fn weekday_words(weekdays: Weekdays) -> String {
    let mut parts = Vec::new();
    let any = u64::from(weekdays.any & ALL_WEEKDAYS);
    // Sunday goes last: a week is read from Monday on.
    let from_monday = any >> 1 | (any & 1) << 6;
    if from_monday != 0 {
        parts.push(runs(from_monday, |day| WEEKDAYS[(day as usize + 1) % 7].to_owned()));
    }
    for (weekday, nth) in [1, 2, 3, 4, 5, 6, 0].into_iter().map(|weekday| (weekday, weekdays.nth[weekday])) {
        for n in bits(nth.into()) {
            parts.push(format!("the {} {} of the month", NTH[n as usize], WEEKDAYS[weekday]));
        }
    }
    join(parts)
}

fn year_words(years: &[i32]) -> String {
    match years {
        [first, .., last]
            if years.len() > 2 && i64::from(*last) - i64::from(*first) + 1 == years.len() as i64 =>
        {
            format!("{first} to {last}")
        }
        _ => join(years.iter().map(ToString::to_string).collect()),
    }
}

/// The members of a set, three or more in a row as `first to last`.
fn runs(mask: u64, show: impl Fn(u32) -> String) -> String {
    let mut parts = Vec::new();
    let mut rest = mask;
    while rest != 0 {
        let first = rest.trailing_zeros();
        let length = (rest >> first).trailing_ones();
        let last = first + length - 1;
        match length {
            1 => parts.push(show(first)),
            2 => parts.extend([show(first), show(last)]),
            _ => parts.push(format!("{} to {}", show(first), show(last))),
        }
        rest &= (u64::MAX << last) << 1;
    }
    join(parts)
}

fn join(mut parts: Vec<String>) -> String {
    match parts.pop() {
        None => String::new(),
        Some(last) if parts.is_empty() => last,
        Some(last) => format!("{} and {last}", parts.join(", ")),
    }
}

fn clock(hour: u32, minute: u32, second: u32) -> String {
    match second {
        0 => format!("{hour:02}:{minute:02}"),
        _ => format!("{hour:02}:{minute:02}:{second:02}"),
    }
}

fn ordinal(day: u32) -> String {
    let ending = match day {
        1 | 21 | 31 => "st",
        2 | 22 => "nd",
        3 | 23 => "rd",
        _ => "th",
    };
    format!("{day}{ending}")
}

const UTC_NAMES: [&str; 7] = ["UTC", "Etc/UTC", "UCT", "Etc/UCT", "Universal", "Etc/Universal", "Zulu"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const NTH: [&str; 6] = ["last", "first", "second", "third", "fourth", "fifth"];
