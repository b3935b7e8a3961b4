//! Instances announce themselves, beat and leave.

use std::time::Duration;

use super::subject::{OTHER_SCHEDULE, SCHEDULE, Subject, contested, instance, name, pause};
use crate::{
    protocol::{Announcement, Contested, Fingerprint, InstanceId, JobName, Members, Millis, Waiting},
    store::{ANNOUNCEMENT_AGE, Stamped},
};

type Schedules<'a> = &'a [(&'a str, Fingerprint)];

fn owned(schedules: Schedules<'_>) -> Vec<(JobName, Fingerprint)> {
    schedules.iter().map(|(job, schedule)| (name(job), *schedule)).collect()
}

fn present(id: &str, zones: &str, schedules: Schedules<'_>, asked: Schedules<'_>) -> Announcement {
    Announcement::Present {
        instance: instance(id),
        schedules: owned(schedules),
        zones: zones.to_owned(),
        contested: asked.iter().map(|(job, in_force)| contested(job, *in_force)).collect(),
    }
}

fn withdrawn(id: &str) -> Announcement {
    Announcement::Withdrawn { instance: instance(id) }
}

async fn beat(t: &Subject, announcement: &Announcement) -> Stamped<Members> {
    t.store.beat(announcement).await.unwrap()
}

fn ids(texts: &[&str]) -> Vec<InstanceId> {
    texts.iter().map(|text| instance(text)).collect()
}

/// What a store that has no announcements has to say to one: it takes writes.
pub(super) async fn a_beat_tells_of_nobody(t: &Subject) {
    for _ in 0..2 {
        let told = beat(t, &present("a", "2026a", &[], &[])).await.value;
        assert_eq!(told, Members::default(), "declared as not there, and still");
    }
}

pub(super) async fn an_instance_is_known_from_its_second_beat_on(t: Subject) {
    if !t.guarantees.beat {
        return a_beat_tells_of_nobody(&t).await;
    }
    let a = present("a", "2026a", &[], &[]);
    let first = beat(&t, &a).await.value;
    assert_eq!((first.known, first.instances), (false, ids(&["a"])));
    let second = beat(&t, &a).await.value;
    assert_eq!((second.known, second.instances), (true, ids(&["a"])));
}

pub(super) async fn the_members_are_told_sorted_and_once(t: Subject) {
    if !t.guarantees.beat {
        return a_beat_tells_of_nobody(&t).await;
    }
    let other = t.handle().await;
    for (id, zones) in [("c", "2026a"), ("a", "unknown"), ("B", "2025c")] {
        beat(&t, &present(id, zones, &[], &[])).await;
        other.beat(&present(id, zones, &[], &[])).await.unwrap();
    }
    let members = other.beat(&present("b", "2026a", &[], &[])).await.unwrap().value;
    assert_eq!(members.instances, ids(&["B", "a", "b", "c"]), "sorted by bytes");
    assert_eq!(members.zones, ["2025c", "2026a", "unknown"]);
}

pub(super) async fn a_schedule_is_announced_while_another_instance_has_it(t: Subject) {
    if !t.guarantees.beat {
        return a_beat_tells_of_nobody(&t).await;
    }
    let both = [("x", SCHEDULE), ("y", SCHEDULE)];
    beat(&t, &present("a", "", &both, &[])).await;
    let asked = [("y", SCHEDULE), ("x", OTHER_SCHEDULE), ("z", SCHEDULE), ("x", SCHEDULE)];
    let asking = present("b", "", &[("z", SCHEDULE), ("x", OTHER_SCHEDULE)], &asked);
    let mut announced = beat(&t, &asking).await.value.announced;
    announced.sort();
    assert_eq!(announced, owned(&[("x", SCHEDULE), ("y", SCHEDULE)]), "others' alone, of those asked for");
    // The next announcement takes the place of the one before.
    beat(&t, &present("a", "", &[("y", SCHEDULE)], &[])).await;
    assert_eq!(beat(&t, &asking).await.value.announced, owned(&[("y", SCHEDULE)]));
}

pub(super) async fn a_schedule_that_others_wait_for_is_told_with_the_earliest_time(t: Subject) {
    if !t.guarantees.beat {
        return a_beat_tells_of_nobody(&t).await;
    }
    // Of today: no number of them fits into 32 bits.
    let at = |since: i64| Millis(1_800_000_000_000 + since);
    let waits = |job, schedule, since| Waiting { job: name(job), schedule, since: at(since) };
    let present = |id: &str, waiting: &[Waiting]| Announcement::Present {
        instance: instance(id),
        schedules: waiting.iter().map(|one| (one.job.clone(), one.schedule)).collect(),
        zones: "2026a".to_owned(),
        contested: waiting
            .iter()
            .map(|own| Contested { in_force: Fingerprint(own.schedule.0 ^ 2), own: own.clone() })
            .collect(),
    };
    let told = async |id: &str, waiting: &[Waiting]| beat(&t, &present(id, waiting)).await.value.waiting;
    let (a, b) = ([waits("x", SCHEDULE, 200)], [waits("x", SCHEDULE, 100), waits("y", OTHER_SCHEDULE, 300)]);
    assert_eq!(told("a", &a).await, [], "its own is nothing new to it");
    assert_eq!(told("b", &b).await, a);
    let mut asking = [waits("x", OTHER_SCHEDULE, 0)];
    assert_eq!(told("c", &asking).await, b, "each once, with the earliest time");
    assert_eq!(told("c", &[]).await, [], "who waits for nothing asks for nothing");
    // The next announcement takes the place of the one before.
    beat(&t, &present("b", &b[1..])).await;
    assert_eq!(told("c", &asking).await, [&a[..], &b[1..]].concat());
    beat(&t, &withdrawn("a")).await;
    asking[0].since = at(-1);
    assert_eq!(told("c", &asking).await, b[1..]);
    assert_eq!(told("b", &b).await, asking, "another schedule of the same job is told as what it is");
}

pub(super) async fn who_withdraws_is_gone_at_once(t: Subject) {
    if !t.guarantees.beat {
        return a_beat_tells_of_nobody(&t).await;
    }
    let contested = [("x", SCHEDULE)];
    beat(&t, &present("a", "2026a", &contested, &[])).await;
    let asking = present("b", "2026b", &[], &contested);
    assert_eq!(beat(&t, &asking).await.value.announced, owned(&contested));
    assert_eq!(beat(&t, &withdrawn("a")).await.value.instances, ids(&["b"]));
    let members = beat(&t, &asking).await.value;
    assert_eq!((members.instances, members.announced), (ids(&["b"]), vec![]));
    assert_eq!(members.zones, ["2026b"]);
    // Twice, and of somebody who never was: no error.
    beat(&t, &withdrawn("a")).await;
    beat(&t, &withdrawn("nobody")).await;
    assert!(!beat(&t, &present("a", "2026a", &[], &[])).await.value.known);
}

pub(super) async fn who_does_not_beat_is_gone_after_the_age_limit_and_not_before(t: Subject) {
    if !t.guarantees.beat {
        return a_beat_tells_of_nobody(&t).await;
    }
    let contested = [("x", SCHEDULE)];
    let last = beat(&t, &present("a", "2026a", &contested, &[])).await.now;
    let asking = present("b", "2026b", &[], &contested);
    let limit = i64::try_from(ANNOUNCEMENT_AGE.as_micros()).unwrap();
    // Not `until`: this is the one condition that takes longer.
    loop {
        let Stamped { value: members, now } = beat(&t, &asking).await;
        let age = now.0 - last.0;
        let gone = members.instances == ids(&["b"]);
        assert_eq!(gone, members.announced.is_empty(), "its schedules go with it");
        assert_eq!(gone, age > limit, "age {age} µs");
        if gone {
            break;
        }
        pause(Duration::from_millis(200)).await;
    }
    assert!(!beat(&t, &present("a", "2026a", &[], &[])).await.value.known);
}
