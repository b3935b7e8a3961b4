//! What the bucket holds, as a watch tells it: every key with its revision.

use std::collections::HashMap;

use super::{
    members::Member,
    names,
    value::{Damage, Kept},
};
use crate::protocol::{InstanceId, JobName, Record, Status};

/// All keys of a bucket.
#[derive(Debug, Default)]
pub struct Cache {
    jobs: HashMap<JobName, Entry<Kept>>,
    members: HashMap<InstanceId, Entry<Member>>,
    newest: u64,
}

/// One key.
#[derive(Debug, Clone)]
pub struct Entry<T> {
    /// What a write has to name; 0 where there never was a value.
    pub revision: u64,
    pub value: Value<T>,
}

#[derive(Debug, Clone)]
pub enum Value<T> {
    /// Deleted, or never there.
    None,
    Some(T),
    /// Not written by this program.
    Damaged(Damage),
}

impl<T> Entry<T> {
    fn absent() -> Self {
        Self { revision: 0, value: Value::None }
    }

    pub fn value(&self) -> Option<&T> {
        match &self.value {
            Value::Some(value) => Some(value),
            Value::None | Value::Damaged(_) => None,
        }
    }
}

/// What a message of the watch is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Job(JobName),
    Member(InstanceId),
    /// A beat for the clock, or a key that is not ours.
    Nothing,
}

impl Cache {
    /// Takes in a message: `key` as it stands behind the bucket's, `None` for a deletion.
    pub fn hear(&mut self, key: &str, revision: u64, payload: Option<&[u8]>) -> Told {
        self.newest = self.newest.max(revision);
        if let Some(job) = names::job(key) {
            put(&mut self.jobs, &job, revision, payload.map(Kept::decode));
            return Told::Job(job);
        }
        if let Some(instance) = names::member(key) {
            put(&mut self.members, &instance, revision, payload.map(Member::decode));
            return Told::Member(instance);
        }
        Told::Nothing
    }

    /// Takes in a write of our own. False if there is a newer one already.
    pub fn wrote_job(&mut self, job: &JobName, revision: u64, kept: Option<Kept>) -> bool {
        self.newest = self.newest.max(revision);
        put(&mut self.jobs, job, revision, kept.map(Ok));
        self.jobs.get(job).is_some_and(|entry| entry.revision == revision)
    }

    /// Takes in a write of our own.
    pub fn wrote_member(&mut self, instance: &InstanceId, revision: u64, member: Option<Member>) {
        self.newest = self.newest.max(revision);
        put(&mut self.members, instance, revision, member.map(Ok));
    }

    /// The highest revision of all that was heard or written: the server has come so far, unless it has lost what was newest.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    pub fn job(&self, job: &JobName) -> Entry<Kept> {
        self.jobs.get(job).cloned().unwrap_or_else(Entry::absent)
    }

    pub fn record(&self, job: &JobName) -> Option<&Record> {
        Some(&self.jobs.get(job)?.value()?.record)
    }

    pub fn member(&self, instance: &InstanceId) -> Entry<Member> {
        self.members.get(instance).cloned().unwrap_or_else(Entry::absent)
    }

    pub fn members(&self) -> impl Iterator<Item = (&InstanceId, &Entry<Member>)> {
        self.members.iter()
    }

    pub fn drop_member(&mut self, instance: &InstanceId) {
        self.members.remove(instance);
    }
}

/// Writes come back by their replies and by the watch, in any order.
fn put<K: Clone + Eq + std::hash::Hash, T>(
    entries: &mut HashMap<K, Entry<T>>,
    key: &K,
    revision: u64,
    value: Option<Result<T, Damage>>,
) {
    let entry = entries.entry(key.clone()).or_insert_with(Entry::absent);
    if revision > entry.revision {
        let value = match value {
            None => Value::None,
            Some(Ok(value)) => Value::Some(value),
            Some(Err(damage)) => Value::Damaged(damage),
        };
        *entry = Entry { revision, value };
    }
}

/// Whether others should look: a renewal is no news, what waits for a run is.
pub fn is_news(before: Option<&Record>, after: Option<&Record>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return before != after };
    let orders = |record: &Record| (record.manual_asked, record.paused, record.cancel, record.schedule);
    let waits =
        after.status == Status::Waiting && (before.status, before.until) != (after.status, after.until);
    orders(before) != orders(after) || waits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Millis, Token};

    fn job() -> JobName {
        JobName::new("a.b").unwrap()
    }

    fn kept(decided: i64) -> Kept {
        let record = Record { decided: Millis(decided), ..crate::store::json::tests::record() };
        Kept::following(None, record, None, None, 1)
    }

    #[test]
    fn an_older_revision_never_takes_the_place_of_a_newer_one() {
        let mut cache = Cache::default();
        assert_eq!((cache.job(&job()).revision, cache.record(&job())), (0, None));
        cache.wrote_job(&job(), 7, Some(kept(7)));
        assert_eq!(cache.hear("job.a=b", 5, Some(&kept(5).encode(usize::MAX))), Told::Job(job()));
        assert_eq!(cache.record(&job()).unwrap().decided, Millis(7));
        assert!(cache.wrote_job(&job(), 7, Some(kept(7))) && !cache.wrote_job(&job(), 6, Some(kept(6))));
        assert_eq!(cache.newest(), 7, "known by the reply alone");
        cache.hear("job.a=b", 8, Some(&kept(8).encode(usize::MAX)));
        assert_eq!((cache.job(&job()).revision, cache.record(&job()).unwrap().decided), (8, Millis(8)));
    }

    #[test]
    fn a_deleted_key_keeps_its_revision() {
        let mut cache = Cache::default();
        cache.hear("job.a=b", 3, Some(&kept(3).encode(usize::MAX)));
        cache.hear("job.a=b", 4, None);
        let entry = cache.job(&job());
        assert_eq!((entry.revision, entry.value().is_none()), (4, true));
    }

    #[test]
    fn keys_of_others_and_damage_hurt_nobody() {
        let mut cache = Cache::default();
        for key in ["clock", "job.", "job.a.b", "beat.", "", "job.a b", "x"] {
            assert_eq!(cache.hear(key, 1, Some(b"x")), Told::Nothing, "{key}");
        }
        cache.hear("job.a=b", 1, Some(b"no record"));
        assert!(matches!(cache.job(&job()).value, Value::Damaged(_)));
    }

    #[test]
    fn only_what_others_wait_for_is_news() {
        let record = kept(1).record;
        let running = Record { status: Status::Running, token: Token(1), ..record.clone() };
        let renewed = Record { until: Millis(9), ..running.clone() };
        let waiting = Record { status: Status::Waiting, ..running.clone() };
        assert!(!is_news(Some(&running), Some(&renewed)));
        assert!(!is_news(Some(&record), Some(&running)));
        assert!(is_news(Some(&running), Some(&waiting)));
        assert!(is_news(Some(&running), Some(&Record { paused: true, ..running.clone() })));
        assert!(is_news(Some(&running), Some(&Record { manual_asked: 1, ..running.clone() })));
        assert!(is_news(None, Some(&record)) && is_news(Some(&record), None) && !is_news(None, None));
    }
}
