//! Schedules of the anarchon job scheduler: intervals, cron expressions and instants, right across clock changes.
//!
//! Pure: no clock is read, and no file but those of the tz database. The macros check a user's text with
//! [`Spec::check`] at build time; the runtime turns the same text into a [`Schedule`] with [`Spec::resolve`].
//!
//! ```
//! use anarchon_schedule::{Cron, Spec, Zones};
//!
//! let spec = Spec::from(Cron::new("30 2 * * *").tz("America/New_York"));
//! let (schedule, warnings) = spec.resolve(&Zones::system()).unwrap();
//! assert!(warnings.is_empty());
//!
//! // 02:30 is skipped on 8 March 2026: the job runs at 03:00 EDT, the first instant after the gap.
//! let after = "2026-03-07T12:00:00Z".parse().unwrap();
//! assert_eq!(schedule.next_after(after).unwrap().to_rfc3339(), "2026-03-08T07:00:00+00:00");
//! ```

// On docs.rs each item is shown with the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod at;
mod cron;
mod duration;
mod error;
mod every;
mod fields;
mod quartz;
mod schedule;
mod words;
mod zone;

pub use ::cron::Schedule as QuartzSchedule;
pub use at::{At, AtInstant};
pub use chrono_tz::Tz;
pub use cron::Cron;
pub use duration::{LONGEST_OPTION, parse_duration};
pub use error::{ParseError, Where, nearest};
pub use every::{Every, Interval};
pub use schedule::{Schedule, Spec};
pub use zone::{ZoneName, Zones};
