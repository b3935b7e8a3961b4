//! The newest runs of a job, in a third of the room that they take as the protocol has them: of all that this store keeps they are
//! the most.

use crate::protocol::{InstanceId, Millis, Occurrence, Run, RunOutcome, Token};

/// The ids of the instances that have closed runs, each once, so that a run names its own by two bytes.
#[derive(Debug, Default)]
pub(super) struct Holders(Vec<InstanceId>);

impl Holders {
    /// `None` once there are too many.
    fn number(&mut self, holder: &InstanceId) -> Option<u16> {
        let known = self.0.iter().rposition(|known| known == holder);
        let at = u16::try_from(known.unwrap_or(self.0.len())).ok()?;
        if known.is_none() {
            self.0.push(holder.clone());
        }
        Some(at)
    }
}

/// The newest `KEEP` runs of a job, by slot: the count of closed runs, modulo `KEEP`.
#[derive(Debug)]
pub(super) struct History<const KEEP: u8>(Vec<Entry>);

impl<const KEEP: u8> Default for History<KEEP> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<const KEEP: u8> History<KEEP> {
    /// Takes in the run that was closed as the `runs`-th.
    pub(super) fn add(&mut self, run: Run, runs: u64, holders: &mut Holders) {
        let kept = Entry::new(run, holders);
        match self.0.get_mut(slot::<KEEP>(runs)) {
            Some(oldest) => *oldest = kept,
            None => {
                if self.0.len() == self.0.capacity() {
                    // Room for all of them only for a job that runs often.
                    self.0.reserve_exact(if self.0.is_empty() {
                        FEW
                    } else {
                        usize::from(KEEP) - self.0.len()
                    });
                }
                self.0.push(kept);
            }
        }
    }

    /// The newest runs of `runs` that were closed, newest first.
    pub(super) fn newest(&self, runs: u64, most: u8, holders: &Holders) -> Vec<Run> {
        let ages = 0..u64::from(most.min(KEEP));
        ages.map_while(|age| runs.checked_sub(age).filter(|run| *run > 0))
            .map_while(|run| self.0.get(slot::<KEEP>(run)))
            .map(|kept| kept.run(holders))
            .collect()
    }
}

/// How many runs there is room for at first.
const FEW: usize = 4;

fn slot<const KEEP: u8>(run: u64) -> usize {
    (run.wrapping_sub(1) % u64::from(KEEP)) as usize
}

/// One run. Nearly all are the first attempt at a planned occurrence, and went well.
#[derive(Debug)]
enum Entry {
    Plain {
        holder: u16,
        started: Millis,
        /// From the planned time to the start, and from there to the end, in ms.
        late: u32,
        took: u32,
        /// What the token is above the start in µs, which it mostly was made from.
        token: u32,
    },
    Other(Box<Run>),
}

impl Entry {
    fn new(run: Run, holders: &mut Holders) -> Self {
        Self::plain(&run, holders).unwrap_or_else(|| Self::Other(Box::new(run)))
    }

    fn plain(run: &Run, holders: &mut Holders) -> Option<Self> {
        let Run {
            occurrence: Occurrence::Planned(planned),
            attempt: 1,
            outcome: RunOutcome::Succeeded,
            message: None,
            ..
        } = run
        else {
            return None;
        };
        let micros = u64::try_from(run.started.0).ok()?.checked_mul(1000)?;
        Some(Self::Plain {
            holder: holders.number(&run.holder)?,
            started: run.started,
            late: between(*planned, run.started)?,
            took: between(run.started, run.ended)?,
            token: u32::try_from(run.token.0.checked_sub(micros)?).ok()?,
        })
    }

    fn run(&self, holders: &Holders) -> Run {
        match self {
            Self::Other(run) => (**run).clone(),
            Self::Plain { holder, started, late, took, token } => Run {
                occurrence: Occurrence::Planned(Millis(started.0 - i64::from(*late))),
                attempt: 1,
                token: Token(started.0.unsigned_abs() * 1000 + u64::from(*token)),
                holder: holders.0[usize::from(*holder)].clone(),
                started: *started,
                ended: Millis(started.0 + i64::from(*took)),
                outcome: RunOutcome::Succeeded,
                message: None,
            },
        }
    }
}

fn between(from: Millis, to: Millis) -> Option<u32> {
    u32::try_from(to.0.checked_sub(from.0)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        Run {
            occurrence: Occurrence::Planned(Millis(1_800_000_000_000)),
            attempt: 1,
            token: Token(1_800_000_000_002_345),
            holder: InstanceId::new("a").unwrap(),
            started: Millis(1_800_000_000_002),
            ended: Millis(1_800_000_060_000),
            outcome: RunOutcome::Succeeded,
            message: None,
        }
    }

    #[test]
    fn a_plain_run_takes_24_bytes() {
        assert!(matches!(Entry::new(run(), &mut Holders::default()), Entry::Plain { .. }));
        assert_eq!(size_of::<Entry>(), 24);
    }

    #[test]
    fn every_run_comes_back_as_it_was() {
        let far =
            [i64::MIN, -1, 0, 1_800_000_000_001, 1_800_000_000_003, 1_810_000_000_000, i64::MAX].map(Millis);
        let mut runs = vec![
            run(),
            Run { attempt: 2, ..run() },
            Run { outcome: RunOutcome::Lost, ..run() },
            Run { message: Some("no".to_owned()), ..run() },
            Run { occurrence: Occurrence::Manual(7), ..run() },
            Run { holder: InstanceId::new("b").unwrap(), ..run() },
        ];
        runs.extend(
            [0, 1, 1_800_000_000_001_999, u64::MAX].map(|token| Run { token: Token(token), ..run() }),
        );
        runs.extend(far.map(|at| Run { occurrence: Occurrence::Planned(at), ..run() }));
        runs.extend(far.map(|started| Run { started, ..run() }));
        runs.extend(far.map(|ended| Run { ended, ..run() }));
        let mut holders = Holders::default();
        for run in runs {
            assert_eq!(Entry::new(run.clone(), &mut holders).run(&holders), run);
        }
        assert_eq!(holders.0.len(), 2);
    }

    #[test]
    fn a_holder_too_many_is_kept_with_its_run() {
        let mut holders = Holders((0..=u16::MAX).map(|i| InstanceId::new(&i.to_string()).unwrap()).collect());
        let run = run();
        assert_eq!(Entry::new(run.clone(), &mut holders).run(&holders), run);
        assert_eq!(holders.0.len(), 1 << 16);
    }
}
