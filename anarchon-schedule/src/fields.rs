//! The sets of a cron expression as bit masks, and the walk through them: first in local time, then over the spans of
//! a zone.

use chrono::{DateTime, Datelike, NaiveDate, Utc};

use crate::zone::{Changes, FARTHEST};

/// What a cron expression of either dialect allows. No set is empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fields {
    pub(crate) seconds: u64,
    pub(crate) minutes: u64,
    pub(crate) hours: u64,
    pub(crate) days: Days,
    /// Bits 1 to 12.
    pub(crate) months: u16,
    pub(crate) weekdays: Weekdays,
    pub(crate) rule: DayRule,
    pub(crate) clock: ClockRule,
    /// In ascending order; `None` is every year.
    pub(crate) years: Option<Vec<i32>>,
}

/// How day of month and day of week go together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DayRule {
    Both,
    Either,
}

/// What a change of the clocks does to a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ClockRule {
    /// Minute or hour begins with `*`: the job follows real minutes.
    Wildcard,
    /// Each local time once: in a gap at its end, in a repeated hour the first time.
    Fixed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Days {
    /// Bits 1 to 31.
    pub(crate) numbers: u32,
    /// Bit n: n days before the last one.
    pub(crate) before_last: u32,
    /// Bit n: the weekday (Monday to Friday) nearest to day n, in the same month.
    pub(crate) nearest_weekday: u32,
    /// The last weekday (Monday to Friday).
    pub(crate) last_weekday: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Weekdays {
    /// Bit 0 is Sunday.
    pub(crate) any: u8,
    /// Per weekday, bit n: the n-th of the month; bit 0: the last one.
    pub(crate) nth: [u8; 7],
}

pub(crate) const ALL_DAYS: u32 = 0xffff_fffe;
pub(crate) const ALL_MONTHS: u16 = 0x1ffe;
pub(crate) const ALL_WEEKDAYS: u8 = 0x7f;
pub(crate) const ALL_SIXTY: u64 = (1 << 60) - 1;
pub(crate) const ALL_HOURS: u64 = (1 << 24) - 1;

impl Fields {
    /// Whether there is any date that fits.
    ///
    /// The calendar knows 14 years (seven weekdays to begin with, leap or not) and in 400 years has them all.
    pub(crate) fn has_date(&self) -> bool {
        let fits = |year: i32| {
            let Some(january) = days_to(year) else { return false };
            let mut month = Month { year, month: 1, first: january };
            (0..12).any(|_| {
                let fits = self.days_of(month) != 0;
                month = month.following();
                fits
            })
        };
        match &self.years {
            Some(years) => years.iter().any(|year| fits(*year)),
            None => (2000..2028).any(fits),
        }
    }

    pub(crate) fn next_after(&self, changes: &Changes, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let spans = changes.spans();
        let from = after.timestamp().checked_add(1)?;
        let mut index = changes.index(from);
        // No fitting local time lies in `searched.0..searched.1`, and `searched.1` is one.
        let mut searched = (i64::MAX, i64::MAX);
        let mut find = |local: i64| {
            if !(searched.0..=searched.1).contains(&local) || searched.0 == i64::MAX {
                searched = (local, self.local_at_or_after(local).unwrap_or(i64::MAX));
            }
            searched.1
        };
        loop {
            let span = spans.get(index)?;
            let mut lowest = from.max(span.start).saturating_add(span.offset);
            if self.clock == ClockRule::Fixed {
                let gap = span.skipped_from < span.local_start();
                if gap && from <= span.start && find(span.skipped_from) < span.local_start() {
                    return DateTime::from_timestamp(span.start, 0);
                }
                lowest = lowest.max(span.fresh_from);
            }
            let local = find(lowest);
            if local < span.local_end() {
                return DateTime::from_timestamp(local.checked_sub(span.offset)?, 0);
            }
            index += 1;
            // Years may lie between; only a repeated hour can bring a local time before `lowest` back.
            if spans.get(index)?.start.saturating_sub(FARTHEST) >= lowest {
                index = index.max(changes.index(local.saturating_sub(FARTHEST)));
            }
        }
    }

    pub(crate) fn latest_at_or_before(&self, changes: &Changes, t: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let spans = changes.spans();
        let until = t.timestamp();
        let mut index = changes.index(until);
        let mut searched = (i64::MIN, i64::MIN);
        let mut find = |local: i64| {
            if !(searched.1..=searched.0).contains(&local) || searched.0 == i64::MIN {
                searched = (local, self.local_at_or_before(local).unwrap_or(i64::MIN));
            }
            searched.1
        };
        loop {
            let span = spans.get(index)?;
            let highest = until.min(span.end.saturating_sub(1)).saturating_add(span.offset);
            let local = find(highest);
            let lowest = match self.clock {
                ClockRule::Wildcard => span.local_start(),
                ClockRule::Fixed => span.fresh_from,
            };
            if local >= lowest && local > i64::MIN {
                return DateTime::from_timestamp(local.checked_sub(span.offset)?, 0);
            }
            let gap = self.clock == ClockRule::Fixed && span.skipped_from < span.local_start();
            if gap && find(span.local_start() - 1) >= span.skipped_from {
                return DateTime::from_timestamp(span.start, 0);
            }
            index = index.checked_sub(1)?;
            if spans.get(index)?.end.saturating_add(FARTHEST) <= highest {
                index = index.min(changes.index(local.saturating_add(FARTHEST)));
            }
        }
    }

    /// The first fitting local time, in seconds, at or after this one.
    fn local_at_or_after(&self, local: i64) -> Option<i64> {
        let (day, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        if day < first_day() {
            return self.local_at_or_after(first_day() * DAY);
        }
        let (mut month, number) = Month::of(day)?;
        let today = self.days_of(month);
        if today >> number & 1 == 1
            && let Some(second) = self.second_at_or_after(second)
        {
            return Some(day * DAY + second);
        }
        let mut rest = above(today, number);
        while rest == 0 {
            month = self.month_from(month.following())?;
            rest = self.days_of(month);
        }
        Some(month.day(rest.trailing_zeros()) * DAY + self.first_second())
    }

    /// The last fitting local time, in seconds, at or before this one.
    fn local_at_or_before(&self, local: i64) -> Option<i64> {
        let (day, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        if day > last_day() {
            return self.local_at_or_before(last_day() * DAY + DAY - 1);
        }
        let (mut month, number) = Month::of(day)?;
        let today = self.days_of(month);
        if today >> number & 1 == 1
            && let Some(second) = self.second_at_or_before(second)
        {
            return Some(day * DAY + second);
        }
        let mut rest = today & ((1 << number) - 1);
        while rest == 0 {
            month = self.month_until(month.preceding())?;
            rest = self.days_of(month);
        }
        Some(month.day(rest.ilog2()) * DAY + self.last_second())
    }

    /// The first month at or after this one in a year that is listed; `None` when there is none.
    fn month_from(&self, month: Month) -> Option<Month> {
        match &self.years {
            None => (month.year <= NaiveDate::MAX.year()).then_some(month),
            Some(years) => match years.get(years.partition_point(|year| *year < month.year))? {
                year if *year == month.year => Some(month),
                year => Some(Month { year: *year, month: 1, first: days_to(*year)? }),
            },
        }
    }

    fn month_until(&self, month: Month) -> Option<Month> {
        match &self.years {
            None => (month.year >= NaiveDate::MIN.year()).then_some(month),
            Some(years) => {
                match years.get(years.partition_point(|year| *year <= month.year).checked_sub(1)?)? {
                    year if *year == month.year => Some(month),
                    year => Some(Month { year: *year, month: 12, first: days_to(*year + 1)? - 31 }),
                }
            }
        }
    }

    /// The fitting days of a month, bits 1 to 31.
    fn days_of(&self, month: Month) -> u32 {
        let listed = self.years.as_ref().is_none_or(|years| years.binary_search(&month.year).is_ok());
        if self.months >> month.month & 1 == 0 || !listed {
            return 0;
        }
        let length = month.length();
        let begins_on = month.begins_on();
        let (days, weekdays) = (self.days.of(length, begins_on), self.weekdays.of(length, begins_on));
        let fitting = match self.rule {
            DayRule::Both => days & weekdays,
            DayRule::Either => days | weekdays,
        };
        fitting & up_to(length)
    }

    fn second_at_or_after(&self, second: i64) -> Option<i64> {
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        if self.hours >> hour & 1 == 1 {
            if self.minutes >> minute & 1 == 1
                && let Some(second) = at_or_above(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = at_or_above(self.minutes, minute + 1) {
                return Some(hour * 3_600 + minute * 60 + lowest(self.seconds));
            }
        }
        let hour = at_or_above(self.hours, hour + 1)?;
        Some(hour * 3_600 + lowest(self.minutes) * 60 + lowest(self.seconds))
    }

    fn second_at_or_before(&self, second: i64) -> Option<i64> {
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        if self.hours >> hour & 1 == 1 {
            if self.minutes >> minute & 1 == 1
                && let Some(second) = below(self.seconds, second + 1)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = below(self.minutes, minute) {
                return Some(hour * 3_600 + minute * 60 + highest(self.seconds));
            }
        }
        let hour = below(self.hours, hour)?;
        Some(hour * 3_600 + highest(self.minutes) * 60 + highest(self.seconds))
    }

    fn first_second(&self) -> i64 {
        lowest(self.hours) * 3_600 + lowest(self.minutes) * 60 + lowest(self.seconds)
    }

    fn last_second(&self) -> i64 {
        highest(self.hours) * 3_600 + highest(self.minutes) * 60 + highest(self.seconds)
    }
}

impl Days {
    pub(crate) const ALL: Self =
        Self { numbers: ALL_DAYS, before_last: 0, nearest_weekday: 0, last_weekday: false };

    fn of(&self, length: u32, begins_on: u32) -> u32 {
        let mut days = self.numbers;
        for before in bits(self.before_last.into()) {
            days |= if before < length { 1 << (length - before) } else { 0 };
        }
        for day in bits(self.nearest_weekday.into()).filter(|day| *day <= length) {
            days |= 1 << nearest_weekday(day, length, begins_on);
        }
        if self.last_weekday {
            days |= 1 << nearest_weekday(length, length, begins_on);
        }
        days
    }
}

impl Weekdays {
    pub(crate) const ALL: Self = Self { any: ALL_WEEKDAYS, nth: [0; 7] };

    fn of(&self, length: u32, begins_on: u32) -> u32 {
        // Bit n of one week is the n-th day after the first of the month; five weeks of it make the month.
        let week = u64::from(self.any) >> begins_on | u64::from(self.any) << (7 - begins_on);
        let mut days = (((week & u64::from(ALL_WEEKDAYS)) * FIVE_WEEKS) << 1) as u32;
        for (weekday, nth) in (0..).zip(self.nth) {
            let first = 1 + (weekday + 7 - begins_on) % 7;
            for n in bits(nth.into()) {
                let day = if n == 0 { first + (length - first) / 7 * 7 } else { first + 7 * (n - 1) };
                days |= if day <= length { 1 << day } else { 0 };
            }
        }
        days
    }
}

/// The weekday nearest to a day: Friday for a Saturday, Monday for a Sunday, but never in another month.
fn nearest_weekday(day: u32, length: u32, begins_on: u32) -> u32 {
    match (begins_on + day - 1) % 7 {
        6 if day == 1 => 3,
        6 => day - 1,
        0 if day == length => day - 2,
        0 => day + 1,
        _ => day,
    }
}

#[derive(Clone, Copy, Debug)]
struct Month {
    year: i32,
    month: u32,
    /// Days from 1970-01-01 to its first.
    first: i64,
}

impl Month {
    fn of(day: i64) -> Option<(Self, u32)> {
        let date = NaiveDate::from_epoch_days(day.try_into().ok()?)?;
        let number = date.day();
        Some((Self { year: date.year(), month: date.month(), first: day - i64::from(number) + 1 }, number))
    }

    fn following(self) -> Self {
        let first = self.first + i64::from(self.length());
        match self.month {
            12 => Self { year: self.year + 1, month: 1, first },
            _ => Self { month: self.month + 1, first, ..self },
        }
    }

    fn preceding(self) -> Self {
        let before = match self.month {
            1 => Self { year: self.year - 1, month: 12, ..self },
            _ => Self { month: self.month - 1, ..self },
        };
        Self { first: self.first - i64::from(before.length()), ..before }
    }

    fn length(self) -> u32 {
        match self.month {
            2 if self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    /// The weekday of its first day, Sunday is 0. 1970-01-01 was a Thursday.
    fn begins_on(self) -> u32 {
        (self.first + 4).rem_euclid(7) as u32
    }

    /// Days from 1970-01-01 to its n-th.
    fn day(self, number: u32) -> i64 {
        self.first + i64::from(number) - 1
    }
}

fn days_to(year: i32) -> Option<i64> {
    Some(NaiveDate::from_ymd_opt(year, 1, 1)?.to_epoch_days().into())
}

fn first_day() -> i64 {
    NaiveDate::MIN.to_epoch_days().into()
}

fn last_day() -> i64 {
    NaiveDate::MAX.to_epoch_days().into()
}

/// The numbers of the bits that are set, in ascending order.
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros())?;
        mask &= mask - 1;
        Some(bit)
    })
}

/// Bits 1 to `length`, at most 31.
fn up_to(length: u32) -> u32 {
    ALL_DAYS >> (31 - length) & ALL_DAYS
}

/// The bits above `number`, which is at most 31.
fn above(mask: u32, number: u32) -> u32 {
    mask & (u32::MAX << number << 1)
}

fn at_or_above(mask: u64, number: i64) -> Option<i64> {
    let rest = mask & (u64::MAX << number);
    (rest != 0).then(|| lowest(rest))
}

fn below(mask: u64, number: i64) -> Option<i64> {
    let rest = mask & ((1 << number) - 1);
    (rest != 0).then(|| highest(rest))
}

fn lowest(mask: u64) -> i64 {
    mask.trailing_zeros().into()
}

fn highest(mask: u64) -> i64 {
    (63 - mask.leading_zeros()).into()
}

const DAY: i64 = 86_400;
const FIVE_WEEKS: u64 = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28;
