//! What a test did to processes and to their store: one line per deed, beside what the handlers wrote down.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anarchon::clock::{Clock as _, Mono, SystemClock};

/// One deed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// When, on the clock that all processes share.
    pub mono: Mono,
    /// When, on the wall clock of the test, in µs since the epoch.
    pub wall: i64,
    /// What.
    pub what: What,
}

/// What was done, to a process by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// It was started, with these jobs.
    Start(u32, Vec<String>),
    /// It was seen to be there.
    Ready(u32),
    /// It was killed, told to end, or allowed to.
    End(u32),
    /// It was stopped in its tracks.
    Freeze(u32),
    /// It was let go on.
    Thaw(u32),
    /// Its connections were cut, or let nothing through.
    Cut(u32),
    /// They work again.
    Heal(u32),
    /// The store was made unusable.
    StoreGone,
    /// It can be used again.
    StoreBack,
    /// Its clock, and those of all processes, were set to another day.
    ClocksSet,
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}\t", self.mono.0, self.wall)?;
        match &self.what {
            What::Start(pid, jobs) => write!(f, "start\t{pid}\t{}", jobs.join("\t")),
            What::Ready(pid) => write!(f, "ready\t{pid}"),
            What::End(pid) => write!(f, "end\t{pid}"),
            What::Freeze(pid) => write!(f, "freeze\t{pid}"),
            What::Thaw(pid) => write!(f, "thaw\t{pid}"),
            What::Cut(pid) => write!(f, "cut\t{pid}"),
            What::Heal(pid) => write!(f, "heal\t{pid}"),
            What::StoreGone => f.write_str("store gone"),
            What::StoreBack => f.write_str("store back"),
            What::ClocksSet => f.write_str("clocks set"),
        }
    }
}

impl Deed {
    /// Reads a line.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split('\t');
        let (mono, wall) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let kind = words.next()?;
        let what = match kind {
            "store gone" => What::StoreGone,
            "store back" => What::StoreBack,
            "clocks set" => What::ClocksSet,
            _ => {
                let pid = words.next()?.parse().ok()?;
                match kind {
                    "start" => What::Start(pid, words.by_ref().map(str::to_owned).collect()),
                    "ready" => What::Ready(pid),
                    "end" => What::End(pid),
                    "freeze" => What::Freeze(pid),
                    "thaw" => What::Thaw(pid),
                    "cut" => What::Cut(pid),
                    "heal" => What::Heal(pid),
                    _ => return None,
                }
            }
        };
        words.next().is_none().then_some(Self { mono: Mono(mono), wall, what })
    }
}

/// All deeds of a test, in memory and in a file.
#[derive(Debug)]
pub struct Deeds(Mutex<(File, Vec<Deed>)>);

impl Deeds {
    /// None so far.
    ///
    /// # Errors
    /// When there can be no such file.
    pub fn new(file: &Path) -> std::io::Result<Self> {
        Ok(Self(Mutex::new((OpenOptions::new().create(true).append(true).open(file)?, Vec::new()))))
    }

    /// Notes what is done just now.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn note(&self, what: What) {
        let deed = Deed { mono: SystemClock.mono(), wall: SystemClock.wall_micros(), what };
        let (file, deeds) = &mut *self.lock();
        writeln!(file, "{deed}").expect("the deeds can be written");
        deeds.push(deed);
    }

    /// All so far.
    #[must_use]
    pub fn all(&self) -> Vec<Deed> {
        self.lock().1.clone()
    }

    fn lock(&self) -> MutexGuard<'_, (File, Vec<Deed>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_as_it_was_written() {
        let all = [
            What::Start(7, vec!["job,every=1s".into(), "other,cron=0 8 * * *".into()]),
            What::Ready(7),
            What::End(7),
            What::Freeze(7),
            What::Thaw(7),
            What::Cut(7),
            What::Heal(7),
            What::StoreGone,
            What::StoreBack,
        ];
        for what in all {
            let deed = Deed { mono: Mono(5), wall: -6, what };
            assert_eq!(Deed::parse(&deed.to_string()), Some(deed));
        }
        for wrong in ["", "5", "5\t6", "5\t6\tthink\t7", "5\t6\tend", "5\t6\tend\t7\t8", "x\t6\tend\t7"] {
            assert_eq!(Deed::parse(wrong), None, "{wrong:?}");
        }
    }
}
