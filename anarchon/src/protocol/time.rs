use std::{fmt, time::Duration};

/// A wall-clock instant in milliseconds since the Unix epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub i64);

impl Millis {
    /// Later than any other.
    pub const MAX: Self = Self(i64::MAX);

    /// This instant moved later by `by`, rounded up to a whole millisecond.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(ceil_millis(by)))
    }
    /// This instant moved earlier by `by`, rounded up to a whole millisecond.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(ceil_millis(by)))
    }
    /// How long after `earlier` this is; zero when it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Millis {
    /// RFC 3339 in UTC with milliseconds, or the bare number outside the years that can be written so.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match chrono::DateTime::from_timestamp_millis(self.0) {
            Some(t) => f.write_str(&t.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)),
            None => write!(f, "{} ms", self.0),
        }
    }
}

fn ceil_millis(d: Duration) -> i64 {
    i64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// A reading of the store's clock, in microseconds since the Unix epoch: fine enough to grow fencing tokens from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StoreNow(pub i64);

impl StoreNow {
    /// The reading in whole milliseconds, rounded down, so that an occurrence is never early.
    #[must_use]
    pub fn millis(self) -> Millis {
        Millis(self.0.div_euclid(1000))
    }
    /// The first whole millisecond at or after `by` from now, so that a lease is never short.
    #[must_use]
    pub fn plus(self, by: Duration) -> Millis {
        let micros = i64::try_from(by.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX);
        let end = self.0.saturating_add(micros);
        Millis(end.div_euclid(1000) + i64::from(end.rem_euclid(1000) != 0))
    }
}
