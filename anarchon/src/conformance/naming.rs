//! Names and namespaces keep records apart.

use super::subject::{Job, LONG, OTHER_SCHEDULE, Subject, contested, instance, name};
use crate::protocol::{
    Announcement, ControlAction, InstanceId, JobName, JobSpec, Namespace, Outcome, Registered, Status,
};

pub(super) async fn names_at_the_length_limit_keep_their_records_apart(t: Subject) {
    let stem = "n".repeat(99);
    let (first, second) = (t.job(&format!("{stem}1")).await, t.job(&format!("{stem}2")).await);
    let holder = InstanceId::new(&"i".repeat(100)).unwrap();
    let at = first.due().await;
    let claim = crate::protocol::Claim { holder: holder.clone(), ..first.ask_planned(at) };
    first.award(&claim).await;
    assert_eq!(first.record().await.holder, holder);
    assert_eq!(second.record().await.status, Status::Idle);

    let namespaces = [format!("{}1", "s".repeat(99)), format!("{}2", "s".repeat(99))];
    for namespace in namespaces.map(|text| Namespace::new(&text).unwrap()) {
        let job = Job { store: t.handle_in(&namespace).await, name: first.name.clone() };
        let created = job.register(&job.spec()).await;
        assert!(matches!(created, Registered::Created(_)), "{created:?}");
        job.obey(ControlAction::Forget).await;
    }
}

pub(super) async fn names_that_differ_in_case_or_in_a_mark_are_different(t: Subject) {
    let texts = ["job", "Job", "JOB", "j-ob", "j_ob", "j.ob", "job.", "-job", ".", "..", "_", "0", "00"];
    let mut jobs = Vec::new();
    for text in texts {
        jobs.push(t.job(text).await);
    }
    for (n, job) in jobs.iter().enumerate() {
        job.obey(ControlAction::Trigger).await;
        for (other, job) in jobs.iter().enumerate() {
            let asked = job.record().await.manual_asked;
            assert_eq!(asked, u64::from(other <= n), "job {} after a trigger of {}", job.name, texts[n]);
        }
    }
}

pub(super) async fn namespaces_are_apart(t: Subject) {
    // A store that joins the two names with a mark that is allowed in them would mix these up.
    let text = t.namespace.as_str();
    let pairs = [
        (format!("{text}.a"), "b"),
        (text.to_owned(), "a.b"),
        (format!("{text}.a.b"), "c"),
        (format!("{text}-a"), "b"),
    ];
    let mut jobs = Vec::new();
    for (namespace, job) in &pairs {
        let store = t.handle_in(&Namespace::new(namespace).unwrap()).await;
        let job = Job { store, name: name(job) };
        let created = job.register(&job.spec()).await;
        assert!(matches!(created, Registered::Created(_)), "{namespace} {}: {created:?}", job.name);
        jobs.push(job);
    }
    let award = jobs[0].start(LONG).await;
    jobs[0].close(award.token, Outcome::Succeeded).await;
    for job in &jobs[1..] {
        let snapshot = job.snapshot().await;
        assert_eq!((snapshot.record.status, snapshot.history.len()), (Status::Idle, 0), "{}", job.name);
    }
    jobs[1].obey(ControlAction::Forget).await;
    for job in [&jobs[0], &jobs[2], &jobs[3]] {
        assert!(job.inspect(0).await.value.is_some(), "{} was forgotten with another", job.name);
    }
    assert_eq!(jobs[0].history().await.len(), 1);
}

pub(super) async fn the_same_job_in_two_namespaces_is_two_jobs(t: Subject) {
    let here = t.job("job").await;
    let elsewhere = Namespace::new(&format!("{}-too", t.namespace)).unwrap();
    let there = Job { store: t.handle_in(&elsewhere).await, name: here.name.clone() };
    assert_eq!(there.inspect(0).await.value, None);
    let spec = JobSpec { schedule: OTHER_SCHEDULE, ..there.spec() };
    assert!(matches!(there.register(&spec).await, Registered::Created(_)));
    here.start(LONG).await;
    assert_eq!(there.record().await.status, Status::Idle);
}

pub(super) async fn instances_of_other_namespaces_are_not_members(t: Subject) {
    if !t.guarantees.beat {
        return super::members::a_beat_tells_of_nobody(&t).await;
    }
    let elsewhere = t.handle_in(&Namespace::new(&format!("{}-too", t.namespace)).unwrap()).await;
    let present = |id: &str| Announcement::Present {
        instance: instance(id),
        schedules: vec![(JobName::new("job").unwrap(), OTHER_SCHEDULE)],
        zones: id.to_owned(),
        contested: vec![contested("job", OTHER_SCHEDULE)],
    };
    t.store.beat(&present("here")).await.unwrap();
    let there = elsewhere.beat(&present("there")).await.unwrap().value;
    assert_eq!(there.instances, [instance("there")]);
    assert_eq!((there.announced, there.zones), (vec![], vec!["there".to_owned()]));
}
