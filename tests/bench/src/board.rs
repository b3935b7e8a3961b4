//! What an instance saw of the occurrences of some seconds: how often each ran, and how late.

use std::{
    fs, io,
    path::Path,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
};

/// Lateness in µs is counted in 16 steps of each power of two: an error of at most 6 %.
const STEPS: usize = 16;
const BUCKETS: usize = 62 * STEPS;

/// Counts as handlers run; one byte an occurrence, so that the board does not hide what an instance takes.
pub struct Board {
    first: i64,
    seconds: usize,
    counts: Vec<AtomicU8>,
    late: Vec<AtomicU32>,
    longest: AtomicU64,
}

impl Board {
    /// For so many jobs that are due each second, from this one on, in ms since the epoch.
    pub fn new(jobs: usize, first: i64, seconds: usize) -> Self {
        let counts = (0..jobs * seconds).map(|_| AtomicU8::new(0)).collect();
        let late = (0..BUCKETS).map(|_| AtomicU32::new(0)).collect();
        Self { first, seconds, counts, late, longest: AtomicU64::new(0) }
    }

    /// A run of this job, planned for this time, begins.
    pub fn mark(&self, job: usize, planned: i64) {
        let second = (planned - self.first).div_euclid(1000);
        let Some(second) = usize::try_from(second).ok().filter(|second| *second < self.seconds) else {
            return;
        };
        self.counts[job * self.seconds + second].fetch_add(1, Relaxed);
        let late = u64::try_from(crate::micros() - planned * 1000).unwrap_or(0);
        self.late[bucket(late)].fetch_add(1, Relaxed);
        self.longest.fetch_max(late, Relaxed);
    }

    /// Writes it down.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let counts: Vec<u8> = self.counts.iter().map(|count| b'0' + count.load(Relaxed).min(9)).collect();
        let late: Vec<String> = self.late.iter().map(|count| count.load(Relaxed).to_string()).collect();
        let counts = String::from_utf8_lossy(&counts).into_owned();
        fs::write(file, format!("{counts}\n{}\n{}\n", late.join(" "), self.longest.load(Relaxed)))
    }
}

fn bucket(micros: u64) -> usize {
    if micros < STEPS as u64 {
        return micros as usize;
    }
    let power = 63 - micros.leading_zeros() as usize;
    (power - 3) * STEPS + ((micros >> (power - 4)) as usize & (STEPS - 1))
}

/// The largest lateness in a bucket.
fn end_of(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (power, step) = (bucket / STEPS + 3, (bucket % STEPS) as u64);
    ((STEPS as u64 + step + 1) << (power - 4)) - 1
}

/// What several instances saw together.
#[derive(Default)]
pub struct Seen {
    counts: Vec<u8>,
    late: Vec<u64>,
    /// µs.
    pub longest: u64,
    /// Runs of each instance.
    pub shares: Vec<u64>,
}

impl Seen {
    /// Adds what an instance wrote down.
    pub fn add(&mut self, file: &Path) -> io::Result<()> {
        let text = fs::read_to_string(file)?;
        let mut lines = text.lines();
        let mut line =
            || lines.next().ok_or_else(|| io::Error::other(format!("{} is cut off", file.display())));
        let counts: Vec<u8> = line()?.bytes().map(|digit| digit - b'0').collect();
        self.counts.resize(counts.len(), 0);
        self.counts.iter_mut().zip(&counts).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        self.late.resize(BUCKETS, 0);
        for (sum, count) in self.late.iter_mut().zip(line()?.split(' ')) {
            *sum += count.parse::<u64>().map_err(io::Error::other)?;
        }
        self.longest = self.longest.max(line()?.parse().map_err(io::Error::other)?);
        self.shares.push(counts.iter().map(|count| u64::from(*count)).sum());
        Ok(())
    }

    /// How many occurrences ran once, more than once, and never.
    pub fn once_twice_missed(&self) -> [usize; 3] {
        let count = |is: fn(u8) -> bool| self.counts.iter().filter(|count| is(**count)).count();
        [count(|n| n == 1), count(|n| n > 1), count(|n| n == 0)]
    }

    /// The lateness that this part of all runs does not exceed, in µs.
    pub fn percentile(&self, part: f64) -> u64 {
        let all: u64 = self.late.iter().sum();
        let wanted = (all as f64 * part).ceil() as u64;
        let mut sum = 0;
        let found = self.late.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        found.map_or(0, end_of).min(self.longest)
    }
}
