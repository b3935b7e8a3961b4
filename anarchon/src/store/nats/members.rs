//! Who announces itself, each under a key of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{cache::Entry, value::Damage};
use crate::{
    protocol::{Contested, Fingerprint, InstanceId, JobName, Members, Millis, StoreNow, Waiting, earliest},
    store::{ANNOUNCEMENT_AGE, json},
};

/// After this long a key that nobody renews is removed.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// What an instance says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// When, by the server's clock.
    at: StoreNow,
    /// Withdrawn: kept as a value for a while, so that all hear of it.
    left: bool,
    schedules: BTreeMap<JobName, Fingerprint>,
    waiting: Vec<Waiting>,
    zones: String,
}

#[derive(Serialize, Deserialize)]
struct Text {
    at: i64,
    left: bool,
    zones: String,
    schedules: BTreeMap<String, String>,
    /// By job: the schedule that is waited for, and since when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    waiting: BTreeMap<String, (String, i64)>,
}

impl Member {
    pub fn new(
        at: StoreNow,
        schedules: &[(JobName, Fingerprint)],
        contested: &[Contested],
        zones: &str,
    ) -> Self {
        Self {
            at,
            left: false,
            schedules: schedules.iter().cloned().collect(),
            waiting: earliest(contested.iter().map(|one| one.own.clone())),
            zones: zones.to_owned(),
        }
    }

    pub fn withdrawn(at: StoreNow) -> Self {
        Self { at, left: true, schedules: BTreeMap::new(), waiting: Vec::new(), zones: String::new() }
    }

    pub fn encode(&self) -> Vec<u8> {
        let schedules = self.schedules.iter().map(|(job, schedule)| (job.to_string(), schedule.to_string()));
        let text = Text {
            at: self.at.0,
            left: self.left,
            zones: self.zones.clone(),
            schedules: schedules.collect(),
            waiting: self
                .waiting
                .iter()
                .map(|one| (one.job.to_string(), (one.schedule.to_string(), one.since.0)))
                .collect(),
        };
        serde_json::to_vec(&text).unwrap_or_default()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let text: Text = json::read_json(bytes)?;
        let read = |(job, schedule): (&String, &String)| {
            let job = JobName::new(job).map_err(|error| error.to_string())?;
            let schedule = Fingerprint::parse(schedule).ok_or("no fingerprint of a schedule")?;
            Ok((job, schedule))
        };
        let schedules = text.schedules.iter().map(read).collect::<Result<_, Damage>>()?;
        let waits = |(job, (schedule, since)): (&String, &(String, i64))| {
            let (job, schedule) = read((job, schedule))?;
            Ok(Waiting { job, schedule, since: Millis(*since) })
        };
        let waiting = text.waiting.iter().map(waits).collect::<Result<_, Damage>>()?;
        Ok(Self { at: StoreNow(text.at), left: text.left, schedules, waiting, zones: text.zones })
    }

    /// A beat from the future is one from before the clock was set back: a live instance repeats it soon.
    fn is_older(&self, age: Duration, now: StoreNow) -> bool {
        let limit = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
        now.0.saturating_sub(self.at.0).saturating_abs() > limit
    }

    pub fn is_live(&self, now: StoreNow) -> bool {
        !self.left && !self.is_older(ANNOUNCEMENT_AGE, now)
    }
}

/// Whether nothing is lost with the key.
pub fn is_forgotten(entry: &Entry<Member>, now: StoreNow) -> bool {
    entry.value().is_some_and(|member| member.is_older(FORGOTTEN, now))
}

/// The live ones, as the caller is told of them.
pub fn told<'a>(
    members: impl Iterator<Item = (&'a InstanceId, &'a Entry<Member>)>,
    now: StoreNow,
    known: bool,
    caller: &InstanceId,
    contested: &[Contested],
) -> Members {
    let live: BTreeMap<_, _> = members
        .filter_map(|(instance, entry)| Some((instance, entry.value()?)))
        .filter(|(_, member)| member.is_live(now))
        .collect();
    let zones: BTreeSet<_> = live.values().map(|member| &member.zones).collect();
    let others = || live.iter().filter(|(instance, _)| **instance != caller).map(|(_, member)| member);
    let is_announced =
        |one: &&Contested| others().any(|member| member.schedules.get(&one.own.job) == Some(&one.in_force));
    let announced = contested.iter().filter(is_announced).map(|one| (one.own.job.clone(), one.in_force));
    let waiting = others().flat_map(|member| &member.waiting).filter(|_| !contested.is_empty());
    Members {
        known,
        announced: announced.collect(),
        waiting: earliest(waiting.cloned()),
        zones: zones.into_iter().cloned().collect(),
        instances: live.into_keys().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        nats::cache::Value,
        tests::{PIECES, fuzzing::play, is_one_clear_line},
    };

    const SECOND: i64 = 1_000_000;

    fn instance(text: &str) -> InstanceId {
        InstanceId::new(text).unwrap()
    }

    fn entry(member: Member) -> Entry<Member> {
        Entry { revision: 1, value: Value::Some(member) }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let schedules = [(JobName::new("a.b").unwrap(), Fingerprint(u128::MAX))];
        let own =
            Waiting { job: JobName::new("b").unwrap(), schedule: Fingerprint(3), since: Millis(i64::MIN) };
        let contested = [Contested { in_force: Fingerprint(4), own }];
        for contested in [&contested[..], &[]] {
            let member = Member::new(StoreNow(-5), &schedules, contested, "2026a \"x\"");
            assert_eq!(Member::decode(&member.encode()), Ok(member));
        }
        assert!(Member::decode(b"{}").is_err() && Member::decode(b"").is_err());
    }

    #[test]
    fn who_was_not_heard_of_for_the_age_limit_is_not_told_and_others_schedules_alone_are() {
        let job = |text| JobName::new(text).unwrap();
        let x = [(job("x"), Fingerprint(1))];
        let own = Waiting { job: job("x"), schedule: Fingerprint(2), since: Millis(5) };
        let asks = [Contested { in_force: Fingerprint(1), own: own.clone() }];
        let (a, b, c) = (instance("a"), instance("b"), instance("c"));
        let d = instance("d");
        let entries = [
            (d, entry(Member::withdrawn(StoreNow(30 * SECOND)))),
            (a.clone(), entry(Member::new(StoreNow(0), &x, &[], "old"))),
            (b.clone(), entry(Member::new(StoreNow(SECOND), &x, &asks, "new"))),
            (c.clone(), Entry { revision: 1, value: Value::None }),
        ];
        let told_at = |now, caller: &InstanceId| {
            let entries = entries.iter().map(|(id, entry)| (id, entry));
            told(entries, StoreNow(now), true, caller, &asks)
        };
        let all = told_at(30 * SECOND, &b);
        assert_eq!((all.instances, all.announced), (vec![a.clone(), b.clone()], x.to_vec()));
        assert_eq!((all.waiting, told_at(30 * SECOND, &a).waiting), (vec![], vec![own]));
        assert_eq!(all.zones, ["new", "old"]);
        let later = told_at(30 * SECOND + 1, &b);
        assert_eq!((later.instances, later.announced), (vec![b.clone()], vec![]));
        // The clock was set back by an hour.
        assert!(told_at(-3600 * SECOND, &c).instances.is_empty());
    }

    #[test]
    fn keys_are_removed_long_after_the_last_beat() {
        let member = entry(Member::new(StoreNow(0), &[], &[], ""));
        assert!(!is_forgotten(&member, StoreNow(600 * SECOND)));
        assert!(is_forgotten(&member, StoreNow(600 * SECOND + 1)));
    }

    #[test]
    fn mutations_of_an_announcement_are_a_member_or_a_clear_damage() {
        let schedules = [(JobName::new("job").unwrap(), Fingerprint(u128::MAX / 3))];
        let own = Waiting { job: JobName::new("job").unwrap(), schedule: Fingerprint(3), since: Millis(1) };
        let contested = [Contested { in_force: Fingerprint(4), own }];
        let texts =
            [Member::new(StoreNow(5), &schedules, &contested, "UTC"), Member::withdrawn(StoreNow(i64::MAX))];
        let texts = texts.map(|member| member.encode());
        play(
            20_000,
            |random| random.bytes(&texts, &PIECES),
            |bytes| match Member::decode(&bytes.0) {
                Ok(member) => {
                    for now in [i64::MIN, 0, i64::MAX] {
                        let _ = member.is_live(StoreNow(now));
                    }
                    assert_eq!(Member::decode(&member.encode()), Ok(member));
                    true
                }
                Err(damage) => {
                    assert!(is_one_clear_line(&damage), "{damage}");
                    false
                }
            },
        );
    }
}
