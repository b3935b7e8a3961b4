//! The options of a job, as checked values: lease, catch-up, jitter, retries.

use std::{fmt, time::Duration};

use anarchon_schedule::LONGEST_OPTION;

/// The shortest lease: renewals every third of it must survive a slow store.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_secs(5);

/// How a job is run; every value is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How long the lease lasts without renewal.
    pub lease: Duration,
    /// How late an occurrence may still start.
    pub catch_up: CatchUp,
    /// The random delay before a claim.
    pub jitter: Jitter,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    /// After how many attempts that ended by crash or lost lease an occurrence is given up.
    pub max_attempts: u32,
    /// How many attempts follow an error or a time-out.
    pub retries: u32,
    /// The delay before those.
    pub backoff: Backoff,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            catch_up: CatchUp::Window(Duration::from_secs(300)),
            jitter: Jitter::Default,
            timeout: None,
            max_attempts: 3,
            retries: 0,
            backoff: Backoff { first: Duration::from_secs(5), max: Duration::from_secs(300) },
        }
    }
}

/// How late an occurrence may still start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatchUp {
    /// Up to this long after its planned time.
    Window(Duration),
    /// Only within its jitter + 1 s.
    None,
}

/// The random delay before a claim, which spreads the load over the instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// 0 … min(500 ms, interval / 10).
    Default,
    /// 0 … this long.
    UpTo(Duration),
}

/// The delay before the n-th retry: doubled each time, from `first` up to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The delay before the first retry.
    pub first: Duration,
    /// The longest delay.
    pub max: Duration,
}

/// A length of time as a user gave it: a text such as `"1h30m"`, or a [`Duration`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Length(Written);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Written {
    Text(String),
    Exact(Duration),
}

impl Length {
    pub(crate) fn check(&self) -> Result<Duration, String> {
        match &self.0 {
            Written::Text(text) => anarchon_schedule::parse_duration(text).map_err(|e| e.to_string()),
            Written::Exact(duration) => Ok(*duration),
        }
    }

    fn is(&self, word: &str) -> bool {
        matches!(&self.0, Written::Text(text) if text == word)
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Written::Text(text) => write!(f, "{text:?}"),
            Written::Exact(duration) => write!(f, "{duration:?}"),
        }
    }
}

impl From<&str> for Length {
    fn from(text: &str) -> Self {
        Self(Written::Text(text.to_owned()))
    }
}

impl From<String> for Length {
    fn from(text: String) -> Self {
        Self(Written::Text(text))
    }
}

impl From<Duration> for Length {
    fn from(duration: Duration) -> Self {
        Self(Written::Exact(duration))
    }
}

/// The delays before retries as a user gave them: `"5s..5m"`, the first and the longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delays {
    first: Length,
    max: Option<Length>,
}

impl From<&str> for Delays {
    fn from(text: &str) -> Self {
        match text.split_once("..") {
            Some((first, max)) => Self { first: first.into(), max: Some(max.into()) },
            None => Self { first: text.into(), max: None },
        }
    }
}

impl From<String> for Delays {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<std::ops::RangeInclusive<Duration>> for Delays {
    fn from(range: std::ops::RangeInclusive<Duration>) -> Self {
        Self { first: (*range.start()).into(), max: Some((*range.end()).into()) }
    }
}

impl From<std::ops::Range<Duration>> for Delays {
    fn from(range: std::ops::Range<Duration>) -> Self {
        Self { first: range.start.into(), max: Some(range.end.into()) }
    }
}

/// The options as a user gave them, of one job or as the defaults of a scheduler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) lease: Option<Length>,
    pub(crate) jitter: Option<Length>,
    pub(crate) catch_up: Option<Length>,
    pub(crate) timeout: Option<Length>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) retries: Option<u32>,
    pub(crate) backoff: Option<Delays>,
}

impl Options {
    /// These, and the defaults where nothing was said.
    pub(crate) fn or(&self, defaults: &Self) -> Self {
        Self {
            lease: self.lease.clone().or_else(|| defaults.lease.clone()),
            jitter: self.jitter.clone().or_else(|| defaults.jitter.clone()),
            catch_up: self.catch_up.clone().or_else(|| defaults.catch_up.clone()),
            timeout: self.timeout.clone().or_else(|| defaults.timeout.clone()),
            max_attempts: self.max_attempts.or(defaults.max_attempts),
            retries: self.retries.or(defaults.retries),
            backoff: self.backoff.clone().or_else(|| defaults.backoff.clone()),
        }
    }

    /// The checked values; what is wrong goes to `problems`, each with its option and mend.
    ///
    /// `interval` is that of an `every` job.
    pub(crate) fn check(&self, interval: Option<Duration>, problems: &mut Vec<String>) -> Policy {
        let mut policy = Policy::default();
        if let Some(lease) = read("lease", self.lease.as_ref(), problems) {
            policy.lease = lease;
            if lease < SHORTEST_LEASE {
                problems.push(format!("lease {lease:?} is shorter than 5s; set lease to \"5s\" or longer"));
            }
        }
        if let Some(jitter) = read("jitter", self.jitter.as_ref(), problems) {
            policy.jitter = Jitter::UpTo(jitter);
            if let Some(interval) = interval.filter(|interval| jitter >= *interval) {
                problems.push(format!(
                    "jitter {jitter:?} is not under the interval of {interval:?}; set jitter to less than that"
                ));
            }
        }
        match &self.catch_up {
            Some(word) if word.is("none") => policy.catch_up = CatchUp::None,
            other => {
                if let Some(window) = read("catch_up", other.as_ref(), problems) {
                    policy.catch_up = CatchUp::Window(window);
                }
            }
        }
        policy.timeout = read("timeout", self.timeout.as_ref(), problems);
        if policy.timeout.is_some_and(|timeout| timeout.is_zero()) {
            problems.push("timeout 0s lets no run finish; leave it out for none".to_owned());
        }
        policy.max_attempts = self.max_attempts.unwrap_or(policy.max_attempts);
        if policy.max_attempts == 0 {
            problems.push("max_attempts 0 allows no attempt at all; set it to 1 or more".to_owned());
        }
        policy.retries = self.retries.unwrap_or(policy.retries);
        if let Some(delays) = &self.backoff
            && let Some(first) = read("backoff", Some(&delays.first), problems)
        {
            let max = read("backoff", delays.max.as_ref(), problems).unwrap_or(first);
            policy.backoff = Backoff { first, max };
            if delays.max.is_none() {
                problems.push(format!(
                    "backoff {} is no range; write the first and the longest delay, as in \"5s..5m\"",
                    delays.first
                ));
            }
            if first.is_zero() {
                problems.push(
                    "backoff begins at zero, which would retry without a pause; begin with more, as in \"5s..5m\""
                        .to_owned(),
                );
            }
            if first > max {
                problems.push(format!(
                    "backoff starts at {first:?} and ends at {max:?}; write the shorter delay first, as in \"5s..5m\""
                ));
            }
        }
        policy
    }
}

/// The checked length; what is wrong goes to `problems`, with its option and mend.
pub(crate) fn read(option: &str, length: Option<&Length>, problems: &mut Vec<String>) -> Option<Duration> {
    let length = length?;
    match length.check() {
        Ok(duration) if duration > LONGEST_OPTION => {
            problems.push(format!("{option} {length} is longer than 100 years; write a shorter one"));
            None
        }
        Ok(duration) => Some(duration),
        Err(problem) => {
            let otherwise = if option == "catch_up" { ", or write \"none\" for no catch-up" } else { "" };
            problems.push(format!("{option}: {problem}{otherwise}"));
            None
        }
    }
}
