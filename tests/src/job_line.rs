//! How a test tells a worker process which job to have: `name,every=1s,run=200ms,mode=err,lease=5s`.

use std::{fmt, str::FromStr, time::Duration};

use anarchon_schedule::{Cron, Every, Schedule, Spec, Zones, parse_duration};

/// A job of a worker.
///
/// The schedule is `every=` with `offset=`, or `cron=` (without commas) with `tz=`. `run` is how long a run takes, `step`
/// how long it sleeps at a time; after each step it writes a line. `fails=2` makes the mode hold for the first two
/// attempts only. Whatever else is there is an option of [`anarchon::Job`] under its own name.
#[derive(Debug, Clone)]
pub struct JobLine {
    /// Its name.
    pub name: String,
    /// Its schedule.
    pub spec: Spec,
    /// What its handler does in the end.
    pub mode: Mode,
    /// How long that takes.
    pub run: Duration,
    /// How long it sleeps at a time.
    pub step: Duration,
    /// For how many attempts the mode holds; later ones end well.
    pub fails: u32,
    /// Options of the job.
    pub options: Vec<(String, String)>,
    line: String,
}

/// What a handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Ends well, and never looks whether it is cancelled.
    Ok,
    /// The same, but gives up when it is cancelled.
    Polite,
    /// Errs.
    Err,
    /// Panics.
    Panic,
    /// Sleeps without await: its thread does nothing else.
    Block,
    /// Never comes to an end.
    Hang,
    /// Ends its process.
    Abort,
}

impl FromStr for JobLine {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split(',');
        let name = words.next().unwrap_or_default().to_owned();
        let (mut every, mut offset, mut cron, mut tz) = (None, None, None, None);
        let (mut mode, mut run, mut step, mut fails) = (Mode::Ok, "10ms", None, u32::MAX);
        let mut options = Vec::new();
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is no key=value"))?;
            match key {
                "every" => every = Some(value),
                "offset" => offset = Some(value),
                "cron" => cron = Some(value),
                "tz" => tz = Some(value),
                "mode" => mode = value.parse()?,
                "run" => run = value,
                "step" => step = Some(value),
                "fails" => fails = value.parse().map_err(|e| format!("{word:?}: {e}"))?,
                _ => options.push((key.to_owned(), value.to_owned())),
            }
        }
        let spec = match (every, cron) {
            (Some(every), None) => {
                let every = Every::new(every);
                Spec::from(offset.map_or(every.clone(), |offset| every.offset(offset)))
            }
            (None, Some(cron)) => {
                let cron = Cron::new(cron);
                Spec::from(tz.map_or(cron.clone(), |tz| cron.tz(tz)))
            }
            _ => return Err(format!("{line:?} needs either every= or cron=")),
        };
        let length = |text: &str| parse_duration(text).map_err(|error| format!("{line:?}: {error}"));
        let run = length(run)?;
        let step = step.map(length).transpose()?.unwrap_or(run);
        Ok(Self { name, spec, mode, run, step, fails, options, line: line.to_owned() })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Ok(match word {
            "ok" => Self::Ok,
            "polite" => Self::Polite,
            "err" => Self::Err,
            "panic" => Self::Panic,
            "block" => Self::Block,
            "hang" => Self::Hang,
            "abort" => Self::Abort,
            _ => return Err(format!("{word:?} is no mode")),
        })
    }
}

impl fmt::Display for JobLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl JobLine {
    /// What tells its schedule from another.
    #[must_use]
    pub fn rule(&self) -> String {
        format!("{:?}", self.spec)
    }

    /// Its schedule as the scheduler understands it.
    ///
    /// # Panics
    /// For a wrong schedule.
    #[must_use]
    pub fn schedule(&self) -> Schedule {
        match self.spec.resolve(&Zones::system()) {
            Ok((schedule, _)) => schedule,
            Err(errors) => panic!("{self}: {errors:?}"),
        }
    }
}
