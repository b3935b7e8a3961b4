use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, Offset, SecondsFormat, TimeZone, Utc};

use crate::error::ParseError;
use crate::zone::{Local, Zone, ZoneName, Zones};

/// An instant as a user gave it: a text (see [`At`]) or a [`DateTime`].
#[derive(Clone, Debug)]
pub struct AtInstant(Written);

#[derive(Clone, Debug)]
enum Written {
    Text(String),
    Exact(DateTime<FixedOffset>),
}

impl From<&str> for AtInstant {
    fn from(text: &str) -> Self {
        Self(Written::Text(text.to_owned()))
    }
}

impl From<String> for AtInstant {
    fn from(text: String) -> Self {
        Self(Written::Text(text))
    }
}

impl<Z: TimeZone> From<DateTime<Z>> for AtInstant {
    fn from(instant: DateTime<Z>) -> Self {
        Self(Written::Exact(instant.with_timezone(&instant.offset().fix())))
    }
}

/// One or more instants, each of which is one occurrence.
///
/// A text is RFC 3339 with an offset (`2027-01-01T00:00:00+02:00`; the seconds may be missing), or local time without one
/// (`2027-01-01T00:00`), which needs [`tz`](Self::tz). Instants are kept to the millisecond; what is finer is cut off.
///
/// ```
/// use anarchon_schedule::{At, Spec};
///
/// let new_year = Spec::from(At::new("2027-01-01T00:00").tz("Europe/Athens")).check().unwrap();
/// let before = "2026-12-01T00:00:00Z".parse().unwrap();
/// assert_eq!(new_year.next_after(before).unwrap().to_rfc3339(), "2026-12-31T22:00:00+00:00");
/// ```
#[derive(Clone, Debug)]
pub struct At {
    instants: Vec<AtInstant>,
    tz: Option<ZoneName>,
}

impl At {
    /// At one instant: a text or a [`DateTime`]. It is checked later, by [`Spec::check`](crate::Spec::check).
    pub fn new(instant: impl Into<AtInstant>) -> Self {
        Self { instants: vec![instant.into()], tz: None }
    }

    /// And at one more. Order does not matter, and the same instant twice is one.
    pub fn and(mut self, instant: impl Into<AtInstant>) -> Self {
        self.instants.push(instant.into());
        self
    }

    /// The time zone of the instants that are written without an offset, and the one in which all are shown.
    pub fn tz(self, zone: impl Into<ZoneName>) -> Self {
        Self { tz: Some(zone.into()), ..self }
    }

    /// The checked instants, what to warn of, and whether the zone had to be substituted.
    pub(crate) fn resolve(&self, zones: &Zones) -> Result<(Instants, Vec<String>, bool), Vec<ParseError>> {
        let mut errors = Vec::new();
        let zone = match self.tz.as_ref().map(|tz| zones.get(tz)).transpose() {
            Ok(zone) => zone,
            Err(error) => {
                errors.push(error);
                None
            }
        };
        let (zone, substitute) = zone.map_or((None, false), |(zone, substitute)| (Some(zone), substitute));
        let built_with = self.tz.as_ref().and_then(|tz| Zones::embedded().get(tz).ok()).map(|(zone, _)| zone);
        let mut times = Vec::new();
        let mut warnings = Vec::new();
        for (index, instant) in self.instants.iter().enumerate() {
            let time = match &instant.0 {
                Written::Exact(instant) => Ok(Time::exact(*instant)),
                Written::Text(text) => read(text).and_then(|found| match (found, &zone) {
                    (Found::Exact(instant), _) => Ok(Time::exact(instant)),
                    (Found::Local(local), Some(zone)) => {
                        Time::local(text, local, zone, built_with.as_deref(), &mut warnings)
                    }
                    // One error is enough where the zone is unknown.
                    (Found::Local(local), None) if self.tz.is_some() => {
                        Ok(Time::exact(local.and_utc().into()))
                    }
                    (Found::Local(_), None) => Err(zoneless(text)),
                }),
            };
            match time {
                Ok(time) => times.push(time),
                Err(error) => errors.push(error.nth(index)),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        times.sort_by_key(|time| time.millis);
        times.dedup_by_key(|time| time.millis);
        Ok((Instants { times, zone }, warnings, substitute))
    }
}

impl From<&str> for At {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for At {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl<Z: TimeZone> From<DateTime<Z>> for At {
    fn from(instant: DateTime<Z>) -> Self {
        Self::new(instant)
    }
}

/// In ascending order, none twice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Instants {
    times: Vec<Time>,
    zone: Option<Arc<Zone>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Time {
    millis: i64,
    offset: FixedOffset,
    /// The local time where that is what was written: newer rules may move the instant, but it stays the same schedule.
    local: Option<NaiveDateTime>,
}

impl Time {
    fn exact(instant: DateTime<FixedOffset>) -> Self {
        Self { millis: instant.timestamp_millis(), offset: *instant.offset(), local: None }
    }

    fn local(
        text: &str,
        local: NaiveDateTime,
        zone: &Zone,
        built_with: Option<&Zone>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, ParseError> {
        let seconds = local.and_utc().timestamp();
        let changes = zone.changes();
        let (at, problem) = match changes.resolve(seconds) {
            Local::One(at) => (at, None),
            Local::Gap(at) => (at, Some("does not exist")),
            Local::Two(at, _) => (at, Some("comes twice")),
        };
        if let Some(problem) = problem {
            let fine_when_built =
                built_with.is_some_and(|zone| matches!(zone.changes().resolve(seconds), Local::One(_)));
            if !fine_when_built {
                return Err(misses(text, problem, at, zone));
            }
            warnings.push(format!(
                "local time {text:?} {problem} in {} by newer zone rules; it runs at {}",
                zone.name(),
                rfc3339(at, changes.offset(at)),
            ));
        }
        // The fraction belongs to the local time, not to the end of a gap.
        let fraction =
            if problem == Some("does not exist") { 0 } else { local.and_utc().timestamp_subsec_millis() };
        let offset = i32::try_from(changes.offset(at)).ok().and_then(FixedOffset::east_opt);
        Ok(Self {
            millis: at * 1_000 + i64::from(fraction),
            offset: offset.unwrap_or(Utc.fix()),
            local: Some(local),
        })
    }

    fn instant(&self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_millis(self.millis)
    }
}

impl Instants {
    pub(crate) fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let millis = after.timestamp_millis();
        self.times.get(self.times.partition_point(|time| time.millis <= millis))?.instant()
    }

    pub(crate) fn latest_at_or_before(&self, t: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.preceding(t)?.instant()
    }

    pub(crate) fn zone(&self) -> Option<&Zone> {
        self.zone.as_deref()
    }

    /// The offset that the instant at or before `t` was written with.
    pub(crate) fn offset(&self, t: DateTime<Utc>) -> FixedOffset {
        self.preceding(t).or(self.times.first()).map_or(Utc.fix(), |time| time.offset)
    }

    pub(crate) fn canonical(&self) -> String {
        let zone = self.zone().map_or("", Zone::name);
        let times = self.times.iter().map(|time| match time.local {
            Some(local) => format!("{}[{zone}]", local.format("%Y-%m-%dT%H:%M:%S%.3f")),
            None => time.instant().unwrap_or_default().to_rfc3339_opts(SecondsFormat::Millis, true),
        });
        format!("at {}", times.collect::<Vec<_>>().join(" "))
    }

    fn preceding(&self, t: DateTime<Utc>) -> Option<&Time> {
        let millis = t.timestamp_millis();
        self.times.get(self.times.partition_point(|time| time.millis <= millis).checked_sub(1)?)
    }
}

impl fmt::Display for Instants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times: Vec<_> = self.times.iter().take(3).map(|time| self.show(time)).collect();
        write!(f, "at {}", times.join(" and "))?;
        match self.times.len() - times.len() {
            0 => {}
            more => write!(f, " and {more} more")?,
        }
        match self.zone() {
            Some(zone) => write!(f, ", {}", zone.name()),
            None => Ok(()),
        }
    }
}

impl Instants {
    fn show(&self, time: &Time) -> String {
        let local = match &self.zone {
            Some(zone) => zone.changes().offset(time.millis.div_euclid(1_000)) * 1_000,
            None => i64::from(time.offset.local_minus_utc()) * 1_000,
        };
        let shown = DateTime::from_timestamp_millis(time.millis.saturating_add(local)).unwrap_or_default();
        let clock = match (shown.timestamp_millis() % 60_000, shown.timestamp_millis() % 1_000) {
            (0, _) => "%Y-%m-%d %H:%M",
            (_, 0) => "%Y-%m-%d %H:%M:%S",
            _ => "%Y-%m-%d %H:%M:%S%.3f",
        };
        let offset = match (&self.zone, time.offset.local_minus_utc()) {
            (Some(_), _) => String::new(),
            (None, 0) => " UTC".to_owned(),
            (None, _) => format!(" {}", time.offset),
        };
        format!("{}{offset}", shown.format(clock))
    }
}

enum Found {
    Exact(DateTime<FixedOffset>),
    Local(NaiveDateTime),
}

fn read(text: &str) -> Result<Found, ParseError> {
    let mut reader = Reader { text, at: text.len() - text.trim_start().len() };
    let end = text.trim_end().len();
    let date = reader.date()?;
    if reader.at >= end {
        return Err(reader.error(0..text.len(), "has no time", format!("write \"{}T00:00\"", text.trim())));
    }
    if !reader.takes(['T', 't', ' ']) {
        return Err(reader.unexpected());
    }
    let (time, time_range) = reader.time()?;
    let local = time.and_then(|(h, m, s, milli)| date.and_hms_milli_opt(h, m, s, milli));
    let local = local.ok_or_else(|| {
        reader.error(time_range, "is no time of day", "write 00:00 to 23:59, seconds up to 59")
    })?;
    if reader.at >= end {
        return Ok(Found::Local(local));
    }
    let offset_start = reader.at;
    let offset = reader.offset()?;
    let rest = reader.at..end;
    if text[rest.clone()].starts_with('[') {
        return Err(reader.error(rest, "is a zone in the text", "leave it out and set tz"));
    }
    if reader.at < end {
        return Err(reader.unexpected());
    }
    match offset.and_then(|offset| local.and_local_timezone(offset).single()) {
        Some(instant) => Ok(Found::Exact(instant)),
        None => Err(reader.error(
            offset_start..end,
            "is no offset",
            "write Z, or hours and minutes such as +02:00",
        )),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn date(&mut self) -> Result<NaiveDate, ParseError> {
        let start = self.at;
        let year = self.digits(4)?;
        self.expect('-')?;
        let month = self.digits(2)?;
        self.expect('-')?;
        let day = self.digits(2)?;
        let date = i32::try_from(year).ok().and_then(|year| NaiveDate::from_ymd_opt(year, month, day));
        date.ok_or_else(|| self.error(start..self.at, "is no date", "write a day that the month has"))
    }

    /// Hour, minute, second, millisecond; `None` if only the fraction is odd.
    #[expect(clippy::type_complexity, reason = "four numbers, used once")]
    fn time(&mut self) -> Result<(Option<(u32, u32, u32, u32)>, Range<usize>), ParseError> {
        let start = self.at;
        let hour = self.digits(2)?;
        self.expect(':')?;
        let minute = self.digits(2)?;
        let mut second = 0;
        let mut milli = 0;
        if self.takes([':']) {
            second = self.digits(2)?;
            if self.takes(['.']) {
                let rest = &self.text[self.at..];
                let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                if digits == 0 {
                    return Err(self.unexpected());
                }
                let fraction = &rest[..digits];
                milli = fraction.bytes().chain(*b"000").take(3).fold(0, |n, b| n * 10 + u32::from(b - b'0'));
                self.at += digits;
            }
        }
        Ok((Some((hour, minute, second, milli)), start..self.at))
    }

    fn offset(&mut self) -> Result<Option<FixedOffset>, ParseError> {
        if self.takes(['Z', 'z']) {
            return Ok(Some(Utc.fix()));
        }
        let east = match self.text[self.at..].chars().next() {
            Some('+') => 1,
            Some('-') => -1,
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        let hours = self.digits(2)?;
        self.expect(':')?;
        let minutes = self.digits(2)?;
        let seconds = i32::try_from(hours * 3_600 + minutes * 60).unwrap_or(i32::MAX);
        Ok((minutes < 60 && hours < 24)
            .then_some(seconds)
            .and_then(|seconds| FixedOffset::east_opt(east * seconds)))
    }

    fn digits(&mut self, count: usize) -> Result<u32, ParseError> {
        let found = self.text[self.at..].bytes().take(count).take_while(u8::is_ascii_digit).count();
        if found < count {
            self.at += found;
            return Err(self.unexpected());
        }
        let number = self.text[self.at..self.at + count].bytes().fold(0, |n, b| n * 10 + u32::from(b - b'0'));
        self.at += count;
        Ok(number)
    }

    fn expect(&mut self, c: char) -> Result<(), ParseError> {
        if self.takes([c]) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn takes<const N: usize>(&mut self, any: [char; N]) -> bool {
        let takes = self.text[self.at..].starts_with(any);
        self.at += usize::from(takes);
        takes
    }

    fn unexpected(&self) -> ParseError {
        let end = self.text[self.at..].chars().next().map_or(self.at, |c| self.at + c.len_utf8());
        let mend = r#"write one such as "2027-01-01T00:00:00Z", or "2027-01-01T00:00" with tz"#;
        if self.text.trim().is_empty() {
            return ParseError::new(0..self.text.len(), "the instant is empty", mend);
        }
        let found = &self.text[self.at..end];
        let problem = match found {
            "" => format!("instant {:?} ends too early", self.text),
            _ => format!("{found:?} cannot stand at byte {} of instant {:?}", self.at, self.text),
        };
        ParseError::new(self.at..end, problem, mend)
    }

    fn error(&self, range: Range<usize>, problem: &str, mend: impl Into<String>) -> ParseError {
        let part = &self.text[range.clone()];
        let place = if part == self.text { String::new() } else { format!(" in {:?}", self.text) };
        ParseError::new(range, format!("{part:?} {problem}{place}"), mend)
    }
}

fn zoneless(text: &str) -> ParseError {
    ParseError::new(
        0..text.len(),
        format!("local time {text:?} has no zone"),
        format!("set tz, or add the offset, as in \"{}Z\" for UTC", text.trim()),
    )
}

fn misses(text: &str, problem: &str, at: i64, zone: &Zone) -> ParseError {
    let changes = zone.changes();
    let mend = match problem {
        "comes twice" => {
            let later = match changes.resolve(at + changes.offset(at)) {
                Local::Two(_, later) => later,
                Local::One(later) | Local::Gap(later) => later,
            };
            format!(
                "write which: \"{}\" or \"{}\"",
                rfc3339(at, changes.offset(at)),
                rfc3339(later, changes.offset(later))
            )
        }
        _ => format!(
            "the clocks go forward then; the first time after is \"{}\"",
            rfc3339(at, changes.offset(at))
        ),
    };
    ParseError::new(0..text.len(), format!("local time {text:?} {problem} in {}", zone.name()), mend)
}

fn rfc3339(at: i64, offset: i64) -> String {
    let utc = DateTime::from_timestamp(at, 0).unwrap_or_default();
    let offset = i32::try_from(offset).ok().and_then(FixedOffset::east_opt).unwrap_or(Utc.fix());
    utc.with_timezone(&offset).to_rfc3339()
}
