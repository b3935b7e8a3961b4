//! The Quartz dialect: parsed by the crate `cron`, its sets walked by ours.

use cron::TimeUnitSpec;

use crate::cron::never;
use crate::error::ParseError;
use crate::fields::{ClockRule, DayRule, Days, Fields, Weekdays};

pub(crate) fn parse(expr: &str) -> Result<Fields, ParseError> {
    let schedule: cron::Schedule = expr.parse().map_err(|error| refused(expr, &error))?;
    let fields = Fields {
        seconds: mask(schedule.seconds()),
        minutes: mask(schedule.minutes()),
        hours: mask(schedule.hours()),
        days: Days { numbers: mask(schedule.days_of_month()) as u32, ..Days::default() },
        months: mask(schedule.months()) as u16,
        // Sunday is 1 there and 0 here.
        weekdays: Weekdays { any: (mask(schedule.days_of_week()) >> 1) as u8, nth: [0; 7] },
        rule: DayRule::Both,
        clock: clock_rule(expr, &schedule),
        // All years of that crate are 1970 to 2100; whoever wrote no year meant no end.
        years: (!schedule.years().is_all())
            .then(|| schedule.years().iter().filter_map(|year| year.try_into().ok()).collect()),
    };
    if fields.has_date() { Ok(fields) } else { Err(never(expr, 0..expr.len())) }
}

fn mask(set: &impl TimeUnitSpec) -> u64 {
    set.iter().filter(|number| *number < 64).fold(0, |mask, number| mask | 1 << number)
}

fn clock_rule(expr: &str, schedule: &cron::Schedule) -> ClockRule {
    let starred = expr.split_ascii_whitespace().skip(1).take(2).any(|field| field.starts_with('*'));
    // `@hourly` has no fields to look at.
    if starred || schedule.hours().is_all() { ClockRule::Wildcard } else { ClockRule::Fixed }
}

fn refused(expr: &str, error: &cron::error::Error) -> ParseError {
    let count = expr.split_ascii_whitespace().count();
    let (problem, mend) = match count {
        6 | 7 => {
            let reason = error.to_string();
            let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
            (
                format!(
                    "the crate cron refuses quartz expression {expr:?}: {}",
                    reason.trim_end_matches('.')
                ),
                "write seconds, minutes, hours, day of month, month, day of week and perhaps years, as it documents them",
            )
        }
        5 => (
            format!("quartz expression {expr:?} has 5 fields, not 6 or 7"),
            "put the seconds in front, or remove dialect = \"quartz\"",
        ),
        _ => (
            format!("quartz expression {expr:?} has {count} fields, not 6 or 7"),
            "write seconds, minutes, hours, day of month, month, day of week and perhaps years",
        ),
    };
    ParseError::new(0..expr.len(), problem, mend)
}
