//! Registering, announcing, and which schedule is in force while versions overlap.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use super::{
    Action, Announcement, At, Call, Engine, Fingerprint, InstanceId, Job, JobName, JobSpec, Members, Millis,
    Phase, Registered, Report, Timer, backoff, calls::Sent, due,
};
use crate::{
    clock::Mono,
    protocol::{Contested, Record, Replace, Waiting},
    store::{ANNOUNCEMENT_AGE, StoreError},
};

/// Between two beats: often enough that several may fail before the announcement is too old.
const BEAT: Duration = Duration::from_secs(20);
/// Between two beats while another schedule is in force.
const CONTESTED_BEAT: Duration = Duration::from_secs(10);
/// The least between two beats.
const LEAST_BEAT: Duration = Duration::from_secs(1);
/// The least between two registrations of records that were lost.
const LEAST_REGISTER: Duration = Duration::from_millis(100);
/// Before a job is registered again that the store refuses by itself.
const REFUSED: Duration = Duration::from_secs(5);
/// From the first record that is found lost to the telling of all that are: the look for them has answered by then.
const LOST: Duration = Duration::from_secs(3);
/// How many contested jobs are looked at after a beat; the others come in turn.
const CONTESTED_LOOKS: usize = 1000;
/// How many of them are named.
const NAMED: usize = 3;
/// How long a beat and a registration may take.
const BEAT_DEADLINE: Duration = Duration::from_secs(3);
const REGISTER_DEADLINE: Duration = Duration::from_secs(10);

/// Whether this instance's schedule of a job is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not registered, or the store has lost the record.
    New,
    InForce,
    /// Another one is.
    Stale(Fingerprint),
}

#[derive(Debug)]
pub(super) struct Deploy {
    pub(super) beat_due: bool,
    pub(super) instances: Vec<InstanceId>,
    announced: bool,
    beat_in_flight: bool,
    beat_failures: u32,
    last_beat: Option<Mono>,
    /// When the store was last seen to have lost data; what was sent before says nothing.
    lost_at: Mono,
    /// Whose records were found lost, and not told yet.
    lost: BTreeSet<usize>,
    /// Until then the others may not have announced themselves anew.
    no_replace_before: Mono,
    known_once: bool,
    zones: Vec<String>,
    stale: BTreeSet<usize>,
    to_register: BTreeSet<usize>,
    /// Those that the store refuses by themselves.
    refused: BTreeSet<usize>,
    register_in_flight: bool,
    register_failures: u32,
    register_not_before: Mono,
    /// By job: the last store time at which the own schedule was in force, else that of the first registration; or the earlier one
    /// of another instance that waits for the same schedule.
    since: Vec<Option<Millis>>,
    /// By job: the schedule to replace at the next registration.
    replace: BTreeMap<usize, Fingerprint>,
}

impl Deploy {
    pub(super) fn new(jobs: usize) -> Self {
        Self {
            beat_due: false,
            instances: Vec::new(),
            announced: false,
            beat_in_flight: false,
            beat_failures: 0,
            last_beat: None,
            lost_at: Mono(0),
            lost: BTreeSet::new(),
            no_replace_before: Mono(0),
            known_once: false,
            zones: Vec::new(),
            stale: BTreeSet::new(),
            to_register: (0..jobs).collect(),
            refused: BTreeSet::new(),
            register_in_flight: false,
            register_failures: 0,
            register_not_before: Mono(0),
            since: vec![None; jobs],
            replace: BTreeMap::new(),
        }
    }

    pub(super) fn is_beat_in_flight(&self) -> bool {
        self.beat_in_flight
    }
}

impl Engine {
    /// Announces this instance before whatever is registered next.
    pub(super) fn announce_anew(&mut self, now: Mono) {
        self.deploy.announced = false;
        self.deploy.lost_at = now;
        self.deploy.beat_due = self.has_beat();
    }

    pub(super) fn send_beat(&mut self, now: Mono) {
        match self.phase {
            Phase::Starting | Phase::Up | Phase::Draining => {}
            Phase::New | Phase::Leaving | Phase::Stopped => return,
        }
        if self.deploy.beat_in_flight || !std::mem::take(&mut self.deploy.beat_due) {
            return;
        }
        let contested: Vec<(usize, Fingerprint)> = self
            .deploy
            .stale
            .iter()
            .filter_map(|&job| match self.jobs[job].standing {
                Standing::Stale(in_force) => Some((job, in_force)),
                Standing::New | Standing::InForce => None,
            })
            .collect();
        let told = |&(job, in_force): &(usize, Fingerprint)| {
            let spec = &self.jobs[job].spec;
            let since = self.deploy.since[job]?;
            let own = Waiting { job: spec.name.clone(), schedule: spec.fingerprint, since };
            Some(Contested { in_force, own })
        };
        let announcement = Announcement::Present {
            instance: self.settings.instance.clone(),
            schedules: self.schedules(),
            zones: self.settings.zones.clone(),
            contested: contested.iter().filter_map(told).collect(),
        };
        self.deploy.beat_in_flight = true;
        self.deploy.last_beat = Some(now);
        self.call(Call::Beat(announcement), Sent::Beat { contested }, BEAT_DEADLINE);
    }

    /// Sorted by job. Made anew for each beat: kept, it would be of use once in 20 s.
    fn schedules(&self) -> Vec<(JobName, Fingerprint)> {
        let jobs = self.jobs.iter().map(|job| &job.spec);
        let mut schedules: Vec<_> = jobs.map(|job| (job.name.clone(), job.fingerprint)).collect();
        schedules.sort_unstable();
        schedules
    }

    pub(super) fn beat_answered(
        &mut self,
        answer: Result<(Members, At), StoreError>,
        contested: &[(usize, Fingerprint)],
        now: Mono,
    ) {
        self.deploy.beat_in_flight = false;
        let (members, at) = match answer {
            Ok(answer) => answer,
            Err(_) => {
                let wait = backoff::store_delay(self.deploy.beat_failures, self.random.f64());
                self.deploy.beat_failures = self.deploy.beat_failures.saturating_add(1);
                return self.timers.set(Timer::Beat, now.plus(wait));
            }
        };
        self.deploy.beat_failures = 0;
        if !self.has_beat() {
            return;
        }
        if at.sent >= self.deploy.lost_at {
            self.deploy.announced = true;
        } else {
            self.deploy.beat_due = true;
        }
        self.timers.set(Timer::Beat, now.plus(if contested.is_empty() { BEAT } else { CONTESTED_BEAT }));
        if !members.known && std::mem::replace(&mut self.deploy.known_once, true) {
            // The store has lost the announcements, or this instance was away: the others may be there all the same.
            self.deploy.no_replace_before = now.plus(ANNOUNCEMENT_AGE);
            self.beat_soon(now);
        }
        self.deploy.known_once = true;
        self.compare_zones(&members.zones);
        self.wait_since(contested, &members.waiting);
        if members.known && now >= self.deploy.no_replace_before {
            let announced: HashSet<_> = members.announced.iter().collect();
            for &(job, in_force) in contested {
                let gone = !announced.contains(&(self.jobs[job].spec.name.clone(), in_force));
                if gone && self.jobs[job].standing == Standing::Stale(in_force) {
                    self.deploy.replace.insert(job, in_force);
                    self.deploy.to_register.insert(job);
                }
            }
        }
        // Somebody else may have put the own schedule in force.
        for &(job, _) in contested.iter().take(CONTESTED_LOOKS) {
            self.want_look(job, now);
        }
        self.deploy.instances = members.instances;
        if members.known {
            self.sweep_in_time(now);
        }
        if self.refusals.is_doubtful() {
            // What was refused while this beat was on its way.
            self.beat_soon(now);
        }
    }

    /// What another instance has waited for longer counts from its beginning, whoever puts it in force, and also when that one ends
    /// before.
    fn wait_since(&mut self, contested: &[(usize, Fingerprint)], waiting: &[Waiting]) {
        let waiting: HashMap<_, _> =
            waiting.iter().map(|one| ((&one.job, one.schedule), one.since)).collect();
        for &(job, _) in contested {
            let Job { spec, standing: Standing::Stale(_), .. } = &self.jobs[job] else { continue };
            if let (Some(own), Some(others)) =
                (&mut self.deploy.since[job], waiting.get(&(&spec.name, spec.fingerprint)))
            {
                *own = (*own).min(*others);
            }
        }
    }

    /// A beat is always a write, also where nothing is announced by it; one that failed is repeated by itself.
    pub(super) fn try_to_write(&mut self, now: Mono) {
        if self.deploy.beat_failures == 0 {
            self.beat_soon(now);
        }
    }

    fn beat_soon(&mut self, now: Mono) {
        let at = self.deploy.last_beat.map_or(now, |last| last.plus(LEAST_BEAT).max(now));
        self.timers.advance(Timer::Beat, at);
    }

    fn compare_zones(&mut self, zones: &[String]) {
        let others: Vec<String> = zones.iter().filter(|z| **z != self.settings.zones).cloned().collect();
        if others != self.deploy.zones {
            self.deploy.zones.clone_from(&others);
            if !others.is_empty() {
                self.report(Report::ZonesDiffer { own: self.settings.zones.clone(), others });
            }
        }
    }

    pub(super) fn send_registers(&mut self, now: Mono) {
        match self.phase {
            Phase::Starting | Phase::Up => {}
            Phase::New | Phase::Draining | Phase::Leaving | Phase::Stopped => return,
        }
        if self.phase == Phase::Starting
            && self.jobs.is_empty()
            && (self.deploy.announced || !self.has_beat())
        {
            return self.up(now);
        }
        if self.deploy.to_register.is_empty()
            || self.deploy.register_in_flight
            || (self.has_beat() && !self.deploy.announced)
        {
            return;
        }
        if now < self.deploy.register_not_before {
            return self.timers.set(Timer::Register, self.deploy.register_not_before);
        }
        if !self.has_beat() && self.clock.estimate(now).is_none() {
            return self.ask_time(now);
        }
        let jobs: Vec<usize> = std::mem::take(&mut self.deploy.to_register).into_iter().collect();
        let specs = jobs.iter().map(|&job| self.job_spec(job, now)).collect();
        self.deploy.register_in_flight = true;
        self.call(Call::Register(specs), Sent::Register(jobs), REGISTER_DEADLINE);
    }

    /// Any answer tells the store's time, which the next occurrence is reckoned from.
    fn ask_time(&mut self, now: Mono) {
        let Some(&job) = self.deploy.to_register.first() else { return };
        if !std::mem::replace(&mut self.jobs[job].looking, true) {
            self.deploy.register_not_before = now.plus(LEAST_REGISTER);
            let names = vec![self.jobs[job].spec.name.clone()];
            self.call(Call::Inspect(names), Sent::Inspect(vec![job]), REGISTER_DEADLINE);
        }
    }

    fn job_spec(&self, job: usize, now: Mono) -> JobSpec {
        let replace = match (self.deploy.replace.get(&job), self.deploy.since[job]) {
            (Some(&old), Some(since)) => Some(Replace { old, since }),
            (Some(_) | None, _) => None,
        };
        JobSpec {
            job: self.jobs[job].spec.name.clone(),
            schedule: self.jobs[job].spec.fingerprint,
            by: self.settings.instance.clone(),
            replace,
            next: if self.has_beat() { None } else { self.next_occurrence(job, now) },
        }
    }

    fn next_occurrence(&self, job: usize, now: Mono) -> Option<Millis> {
        due::next(&self.jobs[job].spec.schedule, self.clock.estimate(now)?.millis())
    }

    pub(super) fn registers_answered(
        &mut self,
        jobs: &[usize],
        answers: impl Iterator<Item = Result<(Registered, At), StoreError>>,
        now: Mono,
    ) {
        self.deploy.register_in_flight = false;
        let mut failed = false;
        for (&job, answer) in jobs.iter().zip(answers) {
            match answer {
                Err(error) if self.jobs[job].refused.contains(&error) => {
                    self.deploy.refused.insert(job);
                    self.timers.advance(Timer::Refused, now.plus(REFUSED));
                }
                Err(_) => {
                    failed = true;
                    self.deploy.to_register.insert(job);
                }
                Ok((Registered::Created(record), at)) => {
                    self.forget(job);
                    self.put_in_force(job, &record, at, now);
                }
                Ok((Registered::InForce(record), at)) => self.put_in_force(job, &record, at, now),
                Ok((Registered::Stale(record), at)) => {
                    self.deploy.replace.remove(&job);
                    self.deploy.since[job].get_or_insert(at.store.millis());
                    self.became_stale(job, record.schedule, now);
                }
            }
        }
        let wait = if failed {
            let wait = backoff::store_delay(self.deploy.register_failures, self.random.f64());
            self.deploy.register_failures = self.deploy.register_failures.saturating_add(1);
            wait
        } else {
            self.deploy.register_failures = 0;
            LEAST_REGISTER
        };
        self.deploy.register_not_before = now.plus(wait);
        if self.phase == Phase::Starting && self.deploy.to_register.is_empty() {
            self.up(now);
        }
    }

    /// Somebody may have mended their records.
    pub(super) fn register_refused(&mut self) {
        self.deploy.to_register.append(&mut self.deploy.refused);
    }

    fn up(&mut self, now: Mono) {
        self.phase = Phase::Up;
        self.actions.push_back(Action::Ready);
        self.start_sweeping(now);
    }

    fn put_in_force(&mut self, job: usize, record: &Record, at: At, now: Mono) {
        self.deploy.replace.remove(&job);
        self.deploy.stale.remove(&job);
        match std::mem::replace(&mut self.jobs[job].standing, Standing::InForce) {
            // Up to where the store has decided is where this instance begins.
            Standing::New => self.jobs[job].decided = record.decided,
            Standing::InForce => {}
            Standing::Stale(old) => {
                self.jobs[job].decided = record.decided;
                self.report(Report::ScheduleInForce { job: self.jobs[job].spec.name.clone(), old });
            }
        }
        self.saw_in_force(job, at);
        self.absorb(job, record, at, now);
        self.arm(job);
        self.want_claim(job);
    }

    pub(super) fn saw_in_force(&mut self, job: usize, at: At) {
        self.deploy.since[job] = Some(at.store.millis());
    }

    pub(super) fn became_stale(&mut self, job: usize, in_force: Fingerprint, now: Mono) {
        let known = &mut self.jobs[job];
        if known.standing == Standing::Stale(in_force) {
            return;
        }
        if known.spec.fingerprint == in_force {
            // It is the own one after all: only a registration says from where on.
            self.deploy.to_register.insert(job);
            return;
        }
        known.standing = Standing::Stale(in_force);
        known.trigger = None;
        known.due = false;
        self.unwatch(job);
        self.disarm(job);
        self.deploy.stale.insert(job);
        let (name, is_announced) = (self.jobs[job].spec.name.clone(), self.has_beat());
        self.report(Report::StaleSchedule { job: name, in_force, is_announced });
        if self.has_beat() {
            self.beat_soon(now);
        }
    }

    /// Compares the schedule of a record with the own one.
    pub(super) fn check_schedule(&mut self, job: usize, record: &Record, at: At, now: Mono) {
        let known = &self.jobs[job];
        if at.sent < known.seen {
            return;
        }
        let same = record.schedule == known.spec.fingerprint;
        match known.standing {
            Standing::New => {}
            Standing::InForce if same => self.saw_in_force(job, at),
            Standing::InForce => self.became_stale(job, record.schedule, now),
            Standing::Stale(_) => {
                self.became_stale(job, record.schedule, now);
                self.replace_abandoned(job, record, at);
            }
        }
    }

    /// Without announcements: a schedule whose next occurrence nobody has claimed within the window has no instance left.
    fn replace_abandoned(&mut self, job: usize, record: &Record, at: At) {
        let Job { spec, standing: Standing::Stale(in_force), .. } = &self.jobs[job] else { return };
        if self.has_beat() || record.schedule != *in_force {
            return;
        }
        let is_abandoned = record.next.is_none_or(|next| {
            at.store.millis() > next.plus(due::window(&spec.schedule, &spec.policy, next))
        });
        if is_abandoned {
            self.deploy.replace.insert(job, *in_force);
            self.deploy.to_register.insert(job);
        }
    }

    /// The store has no record of the job any more.
    pub(super) fn record_lost(&mut self, job: usize, now: Mono) {
        match self.jobs[job].standing {
            Standing::New => return,
            Standing::InForce | Standing::Stale(_) => {}
        }
        if self.deploy.lost.is_empty() {
            self.timers.set(Timer::Lost, now.plus(LOST));
        }
        // Where one is gone, more may be.
        self.look_for_lost(now);
        self.deploy.lost.insert(job);
        self.jobs[job].standing = Standing::New;
        self.jobs[job].due = false;
        self.forget(job);
        self.disarm(job);
        self.deploy.stale.remove(&job);
        self.deploy.replace.remove(&job);
        self.deploy.to_register.insert(job);
        if self.deploy.announced {
            self.announce_anew(now);
        }
    }
    /// One line for all records that were lost together.
    pub(super) fn tell_lost(&mut self) {
        let lost = std::mem::take(&mut self.deploy.lost);
        if !lost.is_empty() {
            let first = lost.iter().take(NAMED).map(|&job| self.jobs[job].spec.name.clone()).collect();
            self.report(Report::RecordsLost { jobs: lost.len(), first });
        }
    }
}
