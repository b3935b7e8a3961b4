//! Reading clocks. The only file that does; everything else is handed the time.

use std::{
    fmt,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use chrono::{DateTime, Utc};

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

/// A clock that stands still until a test moves it.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use anarchon::{
///     MemoryBackend,
///     clock::{Clock, ManualClock},
/// };
///
/// let clock = Arc::new(ManualClock::new("2027-01-01T00:00:00Z".parse()?));
/// let store = MemoryBackend::with_clock(clock.clone());
///
/// // An hour passes for the store, and none for the test.
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now().to_rfc3339(), "2027-01-01T01:00:00+00:00");
///
/// // The wall clock can be set, as an administrator would; the monotonic clock cannot.
/// let before = clock.mono();
/// clock.set_wall("2026-12-31T23:00:00Z".parse()?);
/// assert_eq!(clock.mono(), before);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ManualClock {
    wall: AtomicI64,
    mono: AtomicU64,
}

impl ManualClock {
    /// A clock whose wall clock shows `wall`; its monotonic clock starts at one day, as on a machine that is up.
    #[must_use]
    pub fn new(wall: DateTime<Utc>) -> Self {
        Self { wall: AtomicI64::new(wall.timestamp_micros()), mono: AtomicU64::new(86_400_000_000) }
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        let wall = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        let mono = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        // The closures always return a value, so that neither update can fail.
        let _ = self.mono.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |t| Some(t.saturating_add(mono)));
        let _ = self.wall.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |t| Some(t.saturating_add(wall)));
    }

    /// Sets the wall clock, forward or back; the monotonic clock goes on from where it is.
    pub fn set_wall(&self, wall: DateTime<Utc>) {
        self.wall.store(wall.timestamp_micros(), Ordering::SeqCst);
    }

    /// Sets the monotonic clock alone. A real one never goes back within one boot of a machine.
    pub fn set_mono(&self, mono: Mono) {
        self.mono.store(mono.0, Ordering::SeqCst);
    }

    /// What the wall clock shows.
    #[must_use]
    pub fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.wall_micros()).unwrap_or(DateTime::<Utc>::MAX_UTC)
    }
}

impl Clock for ManualClock {
    fn wall_micros(&self) -> i64 {
        self.wall.load(Ordering::SeqCst)
    }

    fn mono(&self) -> Mono {
        Mono(self.mono.load(Ordering::SeqCst))
    }
}
