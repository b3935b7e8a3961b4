//! Zone rules, and the one place where gaps and repeated hours are decided.
//!
//! Every source is read into the same plain table of offset changes, so that finding an instant is a binary search and
//! means the same whichever source it came from.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::Tz;

use crate::error::{ParseError, Where, nearest};

/// The name of an IANA time zone as a user gave it: a text such as `"Europe/Athens"`, or a [`chrono_tz::Tz`].
#[derive(Clone, Debug)]
pub struct ZoneName(String);

impl From<&str> for ZoneName {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

impl From<String> for ZoneName {
    fn from(name: String) -> Self {
        Self(name)
    }
}

impl From<Tz> for ZoneName {
    fn from(zone: Tz) -> Self {
        Self(zone.name().to_owned())
    }
}

/// Where the rules of time zones are read from.
///
/// Rules are used for the years 1900 to 2099; before and after, the first and the last offset hold. chrono-tz's tables
/// end there, and two instances with different sources have to agree.
///
/// Rules are read when a schedule is resolved: a program that runs while the system's files are replaced keeps the
/// rules it started with.
#[derive(Clone)]
pub struct Zones {
    source: Arc<dyn Source>,
    // Schedules of one zone share its table.
    known: Arc<Mutex<HashMap<String, Arc<Zone>>>>,
}

impl Zones {
    /// The tables compiled into `chrono-tz`.
    pub fn embedded() -> Self {
        static EMBEDDED: OnceLock<Zones> = OnceLock::new();
        EMBEDDED.get_or_init(|| Self::new(Embedded)).clone()
    }

    /// The system's tz database, else the [embedded](Self::embedded) tables.
    ///
    /// Looked for in the directory that the environment variable `TZDIR` names, then in `/usr/share/zoneinfo`,
    /// `/usr/lib/zoneinfo`, `/usr/share/lib/zoneinfo` and `/etc/zoneinfo`. Without the feature `system-tz` always the
    /// embedded tables.
    pub fn system() -> Self {
        #[cfg(feature = "system-tz")]
        {
            let named = std::env::var_os("TZDIR").map(std::path::PathBuf::from);
            let usual = USUAL_PLACES.iter().map(std::path::PathBuf::from);
            if let Some(zones) = named.into_iter().chain(usual).find_map(|dir| Self::from_dir(dir).ok()) {
                return zones;
            }
        }
        Self::embedded()
    }

    /// A tz database of compiled files (TZif), laid out as in `/usr/share/zoneinfo`. A zone that is not in it is taken
    /// from the [embedded](Self::embedded) tables, with a warning.
    ///
    /// # Errors
    ///
    /// The directory cannot be read or holds no zone file.
    #[cfg(feature = "system-tz")]
    pub fn from_dir(dir: impl AsRef<std::path::Path>) -> std::io::Result<Self> {
        Ok(Self::new(Files::open(dir.as_ref())?))
    }

    /// The release of the tz database, such as `2025b`; `unknown` where the files do not tell.
    pub fn version(&self) -> &str {
        self.source.version()
    }

    fn new(source: impl Source + 'static) -> Self {
        Self { source: Arc::new(source), known: Arc::default() }
    }

    /// The zone, and whether it had to come from the embedded tables although this is another source.
    pub(crate) fn get(&self, name: &ZoneName) -> Result<(Arc<Zone>, bool), ParseError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(zone) = known.get(&name.0) {
            return Ok((Arc::clone(zone), zone.substitute));
        }
        let zone = self.source.zone(&name.0).or_else(|| {
            let embedded = Embedded.zone(&name.0)?;
            Some(Zone { substitute: true, ..embedded })
        });
        let zone = Arc::new(zone.ok_or_else(|| unknown(&name.0))?);
        known.insert(name.0.clone(), Arc::clone(&zone));
        Ok((Arc::clone(&zone), zone.substitute))
    }
}

impl fmt::Debug for Zones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zones").field("source", &self.source).finish_non_exhaustive()
    }
}

fn unknown(name: &str) -> ParseError {
    let range = 0..name.len();
    if name.trim().is_empty() {
        return ParseError::new(
            range,
            "the zone name is empty",
            "write one such as \"Europe/Athens\" or \"UTC\"",
        )
        .on(Where::Tz);
    }
    let names = chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
    // People write the city alone, or the name with a space.
    let by_city = || {
        let city = name.trim().replace(' ', "_").to_lowercase();
        names.clone().find(|full| full.rsplit('/').next().is_some_and(|last| last.to_lowercase() == city))
    };
    let mend = match nearest(name, names.clone()).or_else(by_city) {
        Some(near) => format!("did you mean \"{near}\""),
        None => "write an IANA name such as \"Europe/Athens\" or \"UTC\"".to_owned(),
    };
    ParseError::new(range, format!("unknown time zone {name:?}"), mend).on(Where::Tz)
}

/// One place that zone rules come from.
trait Source: fmt::Debug + Send + Sync {
    /// The zone of exactly this name.
    fn zone(&self, name: &str) -> Option<Zone>;
    fn version(&self) -> &str;
}

#[derive(Debug)]
struct Embedded;

impl Source for Embedded {
    fn zone(&self, name: &str) -> Option<Zone> {
        let zone: Tz = name.parse().ok()?;
        Some(Zone { name: name.into(), substitute: false, embedded: Some(zone), changes: OnceLock::new() })
    }

    fn version(&self) -> &str {
        chrono_tz::IANA_TZDB_VERSION
    }
}

#[cfg(feature = "system-tz")]
#[derive(Debug)]
struct Files {
    database: jiff::tz::TimeZoneDatabase,
    version: String,
}

#[cfg(feature = "system-tz")]
impl Files {
    fn open(dir: &std::path::Path) -> std::io::Result<Self> {
        let database = jiff::tz::TimeZoneDatabase::from_dir(dir).map_err(std::io::Error::other)?;
        if database.available().next().is_none() {
            let text = format!("no zone files in {}", dir.display());
            return Err(std::io::Error::new(std::io::ErrorKind::NotFound, text));
        }
        Ok(Self { database, version: version_of(dir).unwrap_or_else(|| "unknown".to_owned()) })
    }
}

#[cfg(feature = "system-tz")]
impl Source for Files {
    fn zone(&self, name: &str) -> Option<Zone> {
        let zone = self.database.get(name).ok()?;
        // jiff does not mind the case of a name, chrono-tz does; the build would have refused it.
        if zone.iana_name() != Some(name) {
            return None;
        }
        let first = jiff::Timestamp::from_second(FIRST).ok()?;
        let start = zone.to_offset(first).seconds();
        let changes = zone
            .following(first)
            .map(|change| (change.timestamp().as_second(), change.offset().seconds()))
            .take_while(|(at, _)| *at < END);
        let changes = OnceLock::from(Changes::new(start, changes));
        Some(Zone { name: name.into(), substitute: false, embedded: None, changes })
    }

    fn version(&self) -> &str {
        &self.version
    }
}

/// The BSDs and macOS ship `+VERSION`, Debian and Fedora `tzdata.zi` with `# version 2025b` on its first line.
#[cfg(feature = "system-tz")]
fn version_of(dir: &std::path::Path) -> Option<String> {
    use std::io::{BufRead, BufReader, Read};

    let first_line = |file: &str| {
        let file = std::fs::File::open(dir.join(file)).ok()?;
        let mut line = String::new();
        BufReader::new(file.take(100)).read_line(&mut line).ok()?;
        Some(line.trim().to_owned())
    };
    let looks_right =
        |text: &String| !text.is_empty() && text.len() <= 20 && !text.contains(char::is_whitespace);
    first_line("+VERSION").filter(looks_right).or_else(|| {
        let line = first_line("tzdata.zi")?;
        line.strip_prefix("# version ").map(str::to_owned).filter(looks_right)
    })
}

/// A named zone with its rules.
pub(crate) struct Zone {
    name: Box<str>,
    substitute: bool,
    // chrono-tz hides its tables, probing them costs milliseconds, and a build that only checks texts needs none of it.
    embedded: Option<Tz>,
    changes: OnceLock<Changes>,
}

impl Zone {
    /// The zone of a schedule that names none. It has no rules to look up.
    pub(crate) fn utc() -> Arc<Self> {
        static UTC: OnceLock<Arc<Zone>> = OnceLock::new();
        let utc = || Self {
            name: "UTC".into(),
            substitute: false,
            embedded: None,
            changes: Changes::new(0, []).into(),
        };
        Arc::clone(UTC.get_or_init(|| Arc::new(utc())))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn changes(&self) -> &Changes {
        self.changes.get_or_init(|| self.embedded.map_or_else(|| Changes::new(0, []), probe))
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.changes() == other.changes()
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Zone").field(&self.name).finish()
    }
}

/// Reads the offset changes of a chrono-tz zone: one look per [`STRIDE`], then bisection.
fn probe(zone: Tz) -> Changes {
    let offset = |at: i64| {
        let utc = DateTime::from_timestamp(at, 0).unwrap_or_default().naive_utc();
        zone.offset_from_utc_datetime(&utc).fix().local_minus_utc()
    };
    let start = offset(FIRST);
    let mut changes = Vec::new();
    let (mut at, mut current) = (FIRST, start);
    while at < END {
        let ahead = (at + STRIDE).min(END);
        let there = offset(ahead);
        if there != current {
            let (mut before, mut after) = (at, ahead);
            while after - before > 1 {
                let middle = before + (after - before) / 2;
                if offset(middle) == current { before = middle } else { after = middle }
            }
            current = offset(after);
            changes.push((after, current));
            at = after;
        } else {
            at = ahead;
        }
    }
    Changes::new(start, changes)
}

/// The offset changes of a zone as spans of constant offset, the first without a beginning, the last without an end.
#[derive(Debug, PartialEq)]
pub(crate) struct Changes(Vec<Span>);

/// A time in which the offset is constant. All values are seconds; «local» counts as if local time were UTC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    /// The instant at which it begins.
    pub(crate) start: i64,
    /// The first instant after it.
    pub(crate) end: i64,
    /// Local time minus UTC.
    pub(crate) offset: i64,
    /// Local times from here up to the span's first local time were skipped by the change; equal to it if none were.
    pub(crate) skipped_from: i64,
    /// Local times of the span before this one repeat an earlier span; its first local time if none do.
    pub(crate) fresh_from: i64,
}

impl Span {
    /// The first local time.
    pub(crate) fn local_start(&self) -> i64 {
        self.start.saturating_add(self.offset)
    }

    /// The first local time after it.
    pub(crate) fn local_end(&self) -> i64 {
        self.end.saturating_add(self.offset)
    }
}

/// What an instant a local time is.
pub(crate) enum Local {
    One(i64),
    /// No instant has this local time; the first one after the gap.
    Gap(i64),
    /// The earlier and the later.
    Two(i64, i64),
}

impl Changes {
    fn new(start: i32, changes: impl IntoIterator<Item = (i64, i32)>) -> Self {
        let offset = i64::from(start);
        let local = i64::MIN.saturating_add(offset);
        let mut spans =
            vec![Span { start: i64::MIN, end: i64::MAX, offset, skipped_from: local, fresh_from: local }];
        for (at, offset) in changes {
            let offset = i64::from(offset);
            let Some(before) = spans.last_mut().filter(|before| before.offset != offset) else { continue };
            before.end = at;
            // Debian's cron keeps the latest local time it has served and serves none again, except after a
            // large change, which it takes for a correction of the clock.
            let served = if (-LARGE_CHANGE..LARGE_CHANGE).contains(&(offset - before.offset)) {
                before.fresh_from.max(before.local_end())
            } else {
                at + offset
            };
            spans.push(Span {
                start: at,
                end: i64::MAX,
                offset,
                skipped_from: served.min(at + offset),
                fresh_from: served.max(at + offset),
            });
        }
        Self(spans)
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.0
    }

    /// The index of the span that holds the instant.
    pub(crate) fn index(&self, at: i64) -> usize {
        self.0.partition_point(|span| span.start <= at).saturating_sub(1)
    }

    pub(crate) fn offset(&self, at: i64) -> i64 {
        self.0.get(self.index(at)).map_or(0, |span| span.offset)
    }

    pub(crate) fn resolve(&self, local: i64) -> Local {
        let near = self.index(local.saturating_sub(FARTHEST))..=self.index(local.saturating_add(FARTHEST));
        let near = self.0.get(near).unwrap_or(&[]);
        let mut hits = near.iter().filter(|span| (span.local_start()..span.local_end()).contains(&local));
        match (hits.next(), hits.next()) {
            (Some(first), Some(second)) => Local::Two(local - first.offset, local - second.offset),
            (Some(only), None) => Local::One(local - only.offset),
            _ => Local::Gap(
                near.iter().find(|span| span.local_start() > local).map_or(local, |span| span.start),
            ),
        }
    }
}

#[cfg(feature = "system-tz")]
const USUAL_PLACES: [&str; 4] =
    ["/usr/share/zoneinfo", "/usr/lib/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"];
/// 1900-01-01 and 2100-01-01, 00:00 UTC.
const FIRST: i64 = -2_208_988_800;
const END: i64 = 4_102_444_800;
/// Shorter than the time between any two changes since 1900. Checked with 2025b: where Debian builds its files from the
/// same rules, they give the same table.
const STRIDE: i64 = 86_400;
/// More than any offset, so that both instants of a local time lie within it.
pub(crate) const FARTHEST: i64 = 2 * 86_400;
/// Debian's `cron.c` compares minutes: three hours forward are a correction of the clock already, backward only more.
const LARGE_CHANGE: i64 = 3 * 3_600;
