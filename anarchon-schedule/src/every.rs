use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::duration::{format_millis, parse_duration, words};
use crate::error::{ParseError, Where};

/// A length of time as a user gave it: a text such as `"1h30m"` (see [`parse_duration`]) or a [`Duration`].
#[derive(Clone, Debug)]
pub struct Interval(Written);

#[derive(Clone, Debug)]
enum Written {
    Text(String),
    Exact(Duration),
}

impl From<&str> for Interval {
    fn from(text: &str) -> Self {
        Self(Written::Text(text.to_owned()))
    }
}

impl From<String> for Interval {
    fn from(text: String) -> Self {
        Self(Written::Text(text))
    }
}

impl From<Duration> for Interval {
    fn from(duration: Duration) -> Self {
        Self(Written::Exact(duration))
    }
}

/// A fixed interval, at least 100 ms, in whole milliseconds.
///
/// Occurrences lie on one grid, Unix epoch + offset + n × interval, so that all instances agree on it and a restart
/// does not move it: `1d` is 00:00 UTC, `1w` is Thursday 00:00 UTC. Clock changes do not touch it.
///
/// ```
/// use anarchon_schedule::{Every, Spec};
///
/// let hourly = Spec::from(Every::new("1h").offset("5m")).check().unwrap();
/// let after = "2027-01-01T10:00:00Z".parse().unwrap();
/// assert_eq!(hourly.next_after(after).unwrap().to_rfc3339(), "2027-01-01T10:05:00+00:00");
/// ```
#[derive(Clone, Debug)]
pub struct Every {
    interval: Interval,
    offset: Option<Interval>,
}

impl Every {
    /// Once per `interval`: a text such as `"10s"` or a [`Duration`]. It is checked later, by [`Spec::check`](crate::Spec::check).
    pub fn new(interval: impl Into<Interval>) -> Self {
        Self { interval: interval.into(), offset: None }
    }

    /// Moves the grid to this long after the epoch. Default zero; less than the interval.
    pub fn offset(self, offset: impl Into<Interval>) -> Self {
        Self { offset: Some(offset.into()), ..self }
    }

    pub(crate) fn check(&self) -> Result<Grid, Vec<ParseError>> {
        let interval =
            self.interval.millis("interval").and_then(|interval| self.interval.long_enough(interval));
        let offset = match &self.offset {
            None => Ok(0),
            Some(offset) => offset.millis("offset").map_err(|error| error.on(Where::Offset)),
        };
        match (interval, offset) {
            (Ok(interval), Ok(offset)) if offset < interval => Ok(Grid { interval, offset }),
            (Ok(interval), Ok(_)) => Err(vec![self.too_far(interval)]),
            (interval, offset) => Err(interval.err().into_iter().chain(offset.err()).collect()),
        }
    }

    fn too_far(&self, interval: i64) -> ParseError {
        let quoted = self.offset.as_ref().map_or(String::new(), Interval::quoted);
        let range = self.offset.as_ref().map_or(0..0, Interval::whole);
        let interval = format_millis(interval.unsigned_abs());
        ParseError::new(
            range,
            format!("offset {quoted} is not less than the interval \"{interval}\""),
            format!("write an offset from 0 to just under \"{interval}\""),
        )
        .on(Where::Offset)
    }
}

impl From<&str> for Every {
    fn from(interval: &str) -> Self {
        Self::new(interval)
    }
}

impl From<String> for Every {
    fn from(interval: String) -> Self {
        Self::new(interval)
    }
}

impl From<Duration> for Every {
    fn from(interval: Duration) -> Self {
        Self::new(interval)
    }
}

impl Interval {
    /// In whole milliseconds, few enough for [`LONGEST`]. `what` is the option's name in messages.
    fn millis(&self, what: &str) -> Result<i64, ParseError> {
        let duration = match &self.0 {
            Written::Text(text) => parse_duration(text)?,
            Written::Exact(duration) => *duration,
        };
        if !duration.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(ParseError::new(
                self.whole(),
                format!("{what} {duration:?} is not a whole number of milliseconds"),
                format!("round it, for example with Duration::from_millis({})", duration.as_millis()),
            ));
        }
        i64::try_from(duration.as_millis()).ok().filter(|millis| *millis <= LONGEST).ok_or_else(|| {
            ParseError::new(
                self.whole(),
                format!("{what} {} is longer than 1000 years", self.quoted()),
                "write a shorter one",
            )
        })
    }

    fn long_enough(&self, millis: i64) -> Result<i64, ParseError> {
        if millis >= SHORTEST {
            return Ok(millis);
        }
        let problem = if millis == 0 {
            format!("interval {} is zero", self.quoted())
        } else {
            format!("interval {} is shorter than 100ms", self.quoted())
        };
        Err(ParseError::new(self.whole(), problem, "write \"100ms\" or longer"))
    }

    fn quoted(&self) -> String {
        match &self.0 {
            Written::Text(text) => format!("{text:?}"),
            Written::Exact(duration) => format!("{duration:?}"),
        }
    }

    fn whole(&self) -> std::ops::Range<usize> {
        match &self.0 {
            Written::Text(text) => 0..text.len(),
            Written::Exact(_) => 0..0,
        }
    }
}

/// Unix epoch + offset + n × interval, in milliseconds; 0 ≤ offset < interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Grid {
    interval: i64,
    offset: i64,
}

impl Grid {
    pub(crate) fn next_after(self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_millis(self.floor(after)?.checked_add(self.interval)?)
    }

    pub(crate) fn latest_at_or_before(self, t: DateTime<Utc>) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_millis(self.floor(t)?)
    }

    pub(crate) fn interval(self) -> Duration {
        Duration::from_millis(self.interval.unsigned_abs())
    }

    pub(crate) fn canonical(self) -> String {
        format!("every {}ms offset {}ms", self.interval, self.offset)
    }

    /// The grid point at or before `t`.
    fn floor(self, t: DateTime<Utc>) -> Option<i64> {
        let millis = t.timestamp_millis();
        millis.checked_sub((millis - self.offset).rem_euclid(self.interval))
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interval = words(self.interval.unsigned_abs());
        let interval = match interval.strip_prefix("1 ") {
            Some(one) if !one.contains(' ') => one,
            _ => &interval,
        };
        write!(f, "every {interval}")?;
        // The epoch was a Thursday, 00:00 UTC; that a daily job follows it is what a reader wants to know.
        let first = DateTime::from_timestamp_millis(self.offset).unwrap_or_default();
        match self.interval {
            WEEK => write!(f, ", {} UTC", first.format(&format!("%A {}", clock(self.offset)))),
            DAY => write!(f, ", at {} UTC", first.format(clock(self.offset))),
            _ if self.offset > 0 => write!(f, ", offset by {}", words(self.offset.unsigned_abs())),
            _ => Ok(()),
        }
    }
}

fn clock(millis: i64) -> &'static str {
    match (millis % 60_000, millis % 1_000) {
        (0, _) => "%H:%M",
        (_, 0) => "%H:%M:%S",
        _ => "%H:%M:%S%.3f",
    }
}

const SHORTEST: i64 = 100;
const DAY: i64 = 86_400_000;
const WEEK: i64 = 7 * DAY;
const LONGEST: i64 = 365_250 * DAY;
