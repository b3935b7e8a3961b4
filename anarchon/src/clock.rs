//! Reading clocks. The only file that does; everything else is handed the time.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A monotonic instant of this process's machine that also counts the time a machine sleeps, in microseconds.
///
/// Decides how long this process may trust its own lease; never compared with a wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(pub u64);

impl Mono {
    /// This instant moved later.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }
    /// How long after `earlier` this is; zero when it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Where the time comes from: the machine's clocks, or a test's.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The wall clock, in microseconds since the Unix epoch.
    fn wall_micros(&self) -> i64;
    /// The monotonic clock, counting suspend.
    fn mono(&self) -> Mono;
}

/// The machine's clocks: `CLOCK_REALTIME`, and `CLOCK_BOOTTIME` where there is one.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is where clocks are read")]
    fn wall_micros(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX),
        }
    }

    fn mono(&self) -> Mono {
        // `std::time::Instant` stands still while a Linux machine sleeps; a lease in the store does not.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const ID: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const ID: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let t = rustix::time::clock_gettime(ID);
        let secs = u64::try_from(t.tv_sec).unwrap_or(0);
        let micros = u64::try_from(t.tv_nsec / 1000).unwrap_or(0);
        Mono(secs * 1_000_000 + micros)
    }
}
