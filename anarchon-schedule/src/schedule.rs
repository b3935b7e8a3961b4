use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, FixedOffset, Offset, Utc};

use crate::at::{At, Instants};
use crate::cron::{Cron, CronRule};
use crate::error::ParseError;
use crate::every::{Every, Grid};
use crate::zone::Zones;

/// What a user wrote, of either kind.
#[derive(Clone, Debug)]
pub enum Spec {
    /// An interval.
    Every(Every),
    /// A cron expression.
    Cron(Cron),
    /// Instants.
    At(At),
}

impl Spec {
    /// Checks it by the zones of `chrono-tz` alone. This is the check of a build, which must not depend on the files of
    /// the machine it runs on.
    ///
    /// # Errors
    ///
    /// All that is wrong, in the order of the text; never an empty list.
    pub fn check(&self) -> Result<Schedule, Vec<ParseError>> {
        self.resolve(&Zones::embedded()).map(|(schedule, _)| schedule)
    }

    /// Checks it by the rules of these zones, for running it. The texts are warnings.
    ///
    /// An `at` whose local time exists once by `chrono-tz`, and not or twice by these rules, is a warning: it follows the
    /// rule for clock changes (see [`Cron`]). So is a zone that these zones do not have but `chrono-tz` has.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn resolve(&self, zones: &Zones) -> Result<(Schedule, Vec<String>), Vec<ParseError>> {
        let (rule, mut warnings, substitute) = match self {
            Self::Every(every) => (Rule::Every(every.check()?), Vec::new(), false),
            Self::Cron(cron) => {
                let (rule, substitute) = cron.resolve(zones)?;
                (Rule::Cron(rule), Vec::new(), substitute)
            }
            Self::At(at) => {
                let (instants, warnings, substitute) = at.resolve(zones)?;
                (Rule::At(instants), warnings, substitute)
            }
        };
        let schedule = Schedule(Arc::new(rule));
        if substitute && let Some(zone) = schedule.zone() {
            warnings.push(format!(
                "zone {:?} is not in the tz database {}; its rules are those of the built-in one, {}",
                zone.name(),
                zones.version(),
                Zones::embedded().version(),
            ));
        }
        Ok((schedule, warnings))
    }
}

impl From<Every> for Spec {
    fn from(every: Every) -> Self {
        Self::Every(every)
    }
}

impl From<Cron> for Spec {
    fn from(cron: Cron) -> Self {
        Self::Cron(cron)
    }
}

impl From<At> for Spec {
    fn from(at: At) -> Self {
        Self::At(at)
    }
}

/// A checked schedule: which instants are its occurrences.
///
/// Cheap to clone. Equal if it yields the same instants by the same rules. `Display` explains it in words.
///
/// ```
/// use anarchon_schedule::{Cron, Spec};
///
/// let schedule = Spec::from(Cron::new("*/15 9-17 * * MON-FRI")).check().unwrap();
/// assert_eq!(schedule.to_string(), "every 15 minutes from 09:00 to 17:59, Monday to Friday, UTC");
/// ```
#[derive(Clone, Debug)]
pub struct Schedule(Arc<Rule>);

#[derive(Debug, PartialEq)]
enum Rule {
    Every(Grid),
    Cron(CronRule),
    At(Instants),
}

impl Schedule {
    /// The first occurrence after this instant (never at it), or `None` if there is none.
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match &*self.0 {
            Rule::Every(grid) => grid.next_after(after),
            Rule::Cron(rule) => rule.next_after(after),
            Rule::At(instants) => instants.next_after(after),
        }
    }

    /// The last occurrence at or before this instant, or `None` if there is none.
    ///
    /// Found directly: what was due last costs the same after ten years of standstill as after a second.
    pub fn latest_at_or_before(&self, t: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match &*self.0 {
            Rule::Every(grid) => grid.latest_at_or_before(t),
            Rule::Cron(rule) => rule.latest_at_or_before(t),
            Rule::At(instants) => instants.latest_at_or_before(t),
        }
    }

    /// One text for all schedules that mean the same (`15s` and `15000ms`, `MON-FRI` and `1-5`), whatever the zone rules of
    /// the day. It stays the same across releases, for instances of different versions compare it.
    pub fn canonical(&self) -> String {
        match &*self.0 {
            Rule::Every(grid) => grid.canonical(),
            Rule::Cron(rule) => rule.canonical(),
            Rule::At(instants) => instants.canonical(),
        }
    }

    /// The same instant on the schedule's clock: the zone's for cron, UTC for an interval, for instants their zone or else
    /// the offset that was written.
    pub fn local(&self, t: DateTime<Utc>) -> DateTime<FixedOffset> {
        let offset = match (&*self.0, self.zone()) {
            (_, Some(zone)) => i32::try_from(zone.changes().offset(t.timestamp()))
                .ok()
                .and_then(FixedOffset::east_opt)
                .unwrap_or(Utc.fix()),
            (Rule::At(instants), None) => instants.offset(t),
            (Rule::Every(_) | Rule::Cron(_), None) => Utc.fix(),
        };
        t.with_timezone(&offset)
    }

    /// The interval of an `every`; `None` for the others.
    pub fn shortest_interval(&self) -> Option<Duration> {
        match &*self.0 {
            Rule::Every(grid) => Some(grid.interval()),
            Rule::Cron(_) | Rule::At(_) => None,
        }
    }

    fn zone(&self) -> Option<&crate::zone::Zone> {
        match &*self.0 {
            Rule::Every(_) => None,
            Rule::Cron(rule) => Some(rule.zone()),
            Rule::At(instants) => instants.zone(),
        }
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Rule::Every(grid) => grid.fmt(f),
            Rule::Cron(rule) => rule.fmt(f),
            Rule::At(instants) => instants.fmt(f),
        }
    }
}
