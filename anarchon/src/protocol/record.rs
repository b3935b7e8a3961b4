use std::fmt;

use super::{Fingerprint, InstanceId, Millis, Nonce, StoreNow, Token, claim::LeaseEnd};

/// Which occurrence of a job a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Occurrence {
    /// The one that its schedule planned for this instant.
    Planned(Millis),
    /// The one that an operator asked for; the number counts the triggers of the job.
    Manual(u64),
}

impl fmt::Display for Occurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Planned(at) => at.fmt(f),
            Self::Manual(seq) => write!(f, "manual-{seq}"),
        }
    }
}

/// How far the occurrence that was last awarded has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Nothing was awarded yet.
    Idle,
    /// Awarded; its lease ends at `until`, or has ended.
    Running,
    /// Will be tried again from `until` on: after an error with retries left, or after a release.
    Waiting,
    /// Its handler returned well.
    Succeeded,
    /// Its handler failed and no retry is left.
    Failed,
    /// An operator ended it.
    Cancelled,
    /// Its holder vanished and it was given up.
    Lost,
}

impl Status {
    /// Whether there may be another attempt at the occurrence.
    #[must_use]
    pub fn is_unfinished(self) -> bool {
        match self {
            Self::Running | Self::Waiting => true,
            Self::Idle | Self::Succeeded | Self::Failed | Self::Cancelled | Self::Lost => false,
        }
    }
    /// The word that stores keep.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }
    /// Reads [`as_str`](Self::as_str).
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Idle, Self::Running, Self::Waiting, Self::Succeeded, Self::Failed, Self::Cancelled, Self::Lost]
            .into_iter()
            .find(|s| s.as_str() == word)
    }
}

/// What a store keeps for one job; of constant size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The newest planned occurrence that was awarded, skipped or paused away. Never goes down.
    pub decided: Millis,
    /// The occurrence last awarded; without meaning while `status` is idle.
    pub occurrence: Occurrence,
    /// How far that occurrence has come.
    pub status: Status,
    /// The attempt at it, from 1.
    pub attempt: u32,
    /// How many of its attempts ended by expiry.
    pub crashes: u32,
    /// How many of its attempts ended by an error or a time-out.
    pub errors: u32,
    /// When the attempt was awarded.
    pub started: Millis,
    /// The end of the lease while running, the earliest retry while waiting.
    pub until: Millis,
    /// The fencing token of the last award.
    pub token: Token,
    /// Who won it.
    pub holder: InstanceId,
    /// The claim that won it.
    pub nonce: Nonce,
    /// Whether an operator paused the job.
    pub paused: bool,
    /// The token whose run an operator wants ended.
    pub cancel: Option<Token>,
    /// How often the job was triggered.
    pub manual_asked: u64,
    /// The trigger up to which a run was awarded.
    pub manual_done: u64,
    /// The schedule in force.
    pub schedule: Fingerprint,
    /// The occurrence that follows `decided` on that schedule, on a store without announcements: once it is older than the
    /// window, nobody has that schedule any more.
    pub next: Option<Millis>,
    /// How many runs were closed; the history slot of the next is this, modulo what the store keeps.
    pub runs: u64,
}

impl Record {
    /// Whether somebody holds a lease that is not over.
    #[must_use]
    pub fn is_live(&self, now: StoreNow, end: LeaseEnd) -> bool {
        self.status == Status::Running
            && match end {
                LeaseEnd::ByClock => self.until > now.millis(),
                LeaseEnd::Live => true,
                LeaseEnd::Over => false,
            }
    }

    /// Whether an operator's trigger waits for a run.
    #[must_use]
    pub fn has_trigger(&self) -> bool {
        self.manual_asked > self.manual_done
    }

    /// Closes the current run: the history entry of it, counted.
    pub(super) fn close(&mut self, outcome: RunOutcome, now: StoreNow, message: Option<String>) -> Run {
        self.runs = self.runs.saturating_add(1);
        Run {
            occurrence: self.occurrence,
            attempt: self.attempt,
            token: self.token,
            holder: self.holder.clone(),
            started: self.started,
            ended: now.millis(),
            outcome,
            message,
        }
    }
}

/// How one attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunOutcome {
    /// The handler returned well.
    Succeeded,
    /// The handler failed, for good.
    Failed,
    /// The handler failed and is tried again.
    Retrying,
    /// The instance gave the run back, at shutdown or before it started.
    Released,
    /// An operator ended it.
    Cancelled,
    /// Its holder vanished, or a newer occurrence took its place.
    Lost,
}

impl RunOutcome {
    /// The word that stores keep.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Retrying => "retrying",
            Self::Released => "released",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }
    /// Reads [`as_str`](Self::as_str).
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Succeeded, Self::Failed, Self::Retrying, Self::Released, Self::Cancelled, Self::Lost]
            .into_iter()
            .find(|s| s.as_str() == word)
    }
}

/// One entry of a job's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// What it ran for.
    pub occurrence: Occurrence,
    /// Which attempt at it, from 1.
    pub attempt: u32,
    /// Its fencing token.
    pub token: Token,
    /// The instance that ran it.
    pub holder: InstanceId,
    /// When it was awarded, by the store's clock.
    pub started: Millis,
    /// When it was closed, by the store's clock.
    pub ended: Millis,
    /// How it ended.
    pub outcome: RunOutcome,
    /// The error of the handler, at most 1,000 characters.
    pub message: Option<String>,
}

/// What a store has to write for one decision, in one atomic step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Keep this record, and add the closed run to the history in slot `(record.runs - 1) % keep`.
    Put {
        /// The new record.
        record: Box<Record>,
        /// The run that this closed.
        closed: Option<Run>,
    },
    /// Delete the record and its history.
    Delete,
}
