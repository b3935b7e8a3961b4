//! What must hold once no more faults happen, and at the end.

use std::time::Duration;

use anarchon::{
    policy::CatchUp,
    protocol::{JobName, Record, Status},
};

use super::{Ev, World, instances::Instance};
use crate::{
    plan::{Kind, SECOND},
    site::Server,
};

/// How often the quiet-time invariants are judged.
const JUDGED: u64 = SECOND / 4;
/// Faults may leave announcements and leases behind: how long until all must be well.
const SETTLED: u64 = 48 * SECOND;

impl World {
    pub(super) fn become_quiet(&mut self) {
        self.log(|| "quiet from here".to_owned());
        self.quiet = true;
        self.quiet_since = self.time;
        self.store_down = false;
        if let Some((site, _)) = &self.remote {
            site.quiet.set(true);
        }
        self.set_server(Server::Up);
        if self.plan.kind == Kind::TokenQueue {
            // All clocks are set right.
            self.clock_moved = self.time;
            self.excuses.push(self.time);
        }
        for i in 0..self.instances.len() {
            let most = SECOND as i64 / 5;
            self.set_wall(i, self.instances[i].place.wall.clamp(-most, most));
            self.cut_off(i, 0);
            let epoch = self.instances[i].epoch;
            self.thaw(i, epoch);
            if self.instances[i].engine.is_none() {
                let at = self.time + 1_000;
                self.push(at, Ev::Start(i));
            }
        }
        self.push(self.time + JUDGED, Ev::Judge);
    }

    pub(super) fn judge_quiet(&mut self) {
        if self.shut {
            return;
        }
        self.push(self.time + JUDGED, Ev::Judge);
        if self.time < self.quiet_since + SETTLED {
            return;
        }
        self.check_store();
        let now = self.store.now(self.time);
        for j in 0..self.plan.versions[0].len() {
            let name = self.plan.versions[0][j].name.clone();
            let record = self.record(&name);
            let all_there = self.instances.iter().all(|i| i.ready && i.engine.is_some());
            if record.is_some() && !all_there || !self.can_run(&name, record.as_ref()) {
                self.judge.not_quiet(&name);
                continue;
            }
            let (ranks, skew) = (self.instances.len() as u64, self.skew());
            self.judge.quiet(&name, record.as_ref(), now, self.time, ranks, skew);
        }
    }

    /// Whether an instance of the schedule in force has room for a run of the job. With all instances up and none of
    /// that schedule, somebody should have put another in force.
    fn can_run(&mut self, name: &JobName, record: Option<&Record>) -> bool {
        let in_force = record.map(|record| record.schedule);
        let mut of_schedule = false;
        let mut room = false;
        for instance in self.instances.iter().filter(|i| i.engine.is_some() && i.shutting_down.is_none()) {
            let jobs = &self.plan.versions[instance.version];
            let same = jobs.iter().any(|j| j.name == *name && in_force.is_none_or(|f| f == j.fingerprint));
            of_schedule |= same;
            let free = self.plan.concurrency.is_none_or(|limit| instance.handlers.len() < limit);
            let stuck = instance.handlers.values().any(|h| h.name == *name && h.lost);
            room |= same && free && !stuck;
        }
        let waits = match self.plan.kind {
            Kind::OneMap => false,
            Kind::CompareAndSwap => self.time < self.announced_until,
            Kind::TokenQueue => !record.is_some_and(|record| self.is_abandoned(name, record)),
        };
        if !of_schedule && !waits && self.instances.iter().all(|i| i.ready && i.engine.is_some()) {
            self.judge.broke("I7", format!("{name}: the schedule in force is nobody's"));
        }
        room
    }

    /// Whether nobody can have the schedule in force any more, where nothing but its next occurrence tells.
    fn is_abandoned(&self, name: &JobName, record: &Record) -> bool {
        let windows =
            self.plan.versions.iter().flatten().filter(|job| job.name == *name).map(|job| {
                match job.policy.catch_up {
                    CatchUp::Window(window) => window,
                    CatchUp::None => Duration::from_secs(10),
                }
            });
        let window = windows.max().unwrap_or_default();
        record.next.is_none_or(|next| {
            self.store.now(self.time).millis() > next.plus(window + Duration::from_secs(10) + 2 * self.skew())
        })
    }

    pub(super) fn at_the_end(&mut self) {
        if self.judge.broken.is_some() {
            return;
        }
        for (i, instance) in self.instances.iter().enumerate() {
            if instance.engine.is_some() && instance.handlers.is_empty() {
                let what = format!("i{i} has not stopped: {:?}", instance.engine);
                return self.judge.broke("shutdown", what);
            }
        }
        let records =
            self.plan.versions[0].iter().filter_map(|j| self.record(&j.name).map(|r| (j.name.clone(), r)));
        for (name, record) in records.collect::<Vec<_>>() {
            // One that died long before is followed once its lease is over, by whatever clock: in quiet times that is judged.
            let by_the_last = |(i, instance): (usize, &Instance)| {
                record.holder.as_str() == format!("i{i}-{}", instance.epoch - 1)
            };
            let held = record.status == Status::Running && self.instances.iter().enumerate().any(by_the_last);
            if held
                && self.instances.iter().all(|i| i.engine.is_none())
                && record.until.0 * 1000 > self.store.now(self.time).0
            {
                let what = format!("{name} is held by an instance that has stopped: {record:?}");
                return self.judge.broke("shutdown", what);
            }
        }
    }
}
