//! What befalls instances, store and clocks.

use std::collections::HashMap;

use anarchon::{
    engine::Event,
    protocol::{Control, ControlAction, JobName, Record},
    store::ANNOUNCEMENT_AGE,
};

use super::{Back, Ev, World};
use crate::{
    plan::{Fault, Kind, SECOND},
    site::Server,
};

impl World {
    pub(super) fn fault(&mut self, fault: &Fault) {
        self.log(|| format!("fault: {fault:?}"));
        match *fault {
            Fault::Kill(i) => self.kill(i),
            Fault::Freeze(i, long) => {
                if self.instances[i].engine.is_some() && !self.instances[i].frozen {
                    self.instances[i].frozen = true;
                    if let Some((site, _)) = &self.remote {
                        site.tasks.freeze(i);
                    }
                    let event = Ev::Thaw(i, self.instances[i].epoch);
                    let at = (self.time + long).min(self.plan.faulty);
                    self.push(at, event);
                }
            }
            Fault::CutOff(i, long) => self.cut_off(i, self.time + long),
            Fault::Shutdown(i) => self.begin_shutdown(i),
            Fault::StoreDown(long) => {
                self.store_down = true;
                let back = if self.rng.u8(0..3) == 0 { Back::Empty } else { Back::Whole };
                let is_frozen =
                    matches!(back, Back::Whole) && self.plan.kind != Kind::OneMap && self.rng.bool();
                self.set_server(if is_frozen { Server::Frozen } else { Server::Down });
                let at = (self.time + long).min(self.plan.faulty);
                self.push(at, Ev::StoreUp(back));
            }
            Fault::FailOver(long, loses) => {
                self.store_down = true;
                self.set_server(Server::Down);
                let at = (self.time + long).min(self.plan.faulty);
                self.push(at, Ev::StoreUp(Back::AsOf(self.time.saturating_sub(loses))));
            }
            Fault::StoreLosesData => self.lose_data(),
            Fault::ClockStep(by) => self.step_clock(by),
            Fault::Deploy(version, pause, by_kill) => {
                let mut at = self.time;
                for i in 0..self.instances.len() {
                    self.instances[i].next_version = version;
                    let epoch = self.instances[i].epoch;
                    self.push(at, if by_kill { Ev::Fault(Fault::Kill(i)) } else { Ev::Stop(i, epoch) });
                    at += pause;
                    if at >= self.plan.faulty {
                        break;
                    }
                }
            }
            Fault::Trigger(j) => self.control(j, ControlAction::Trigger),
            Fault::Pause(j) => self.control(j, ControlAction::Pause),
            Fault::Resume(j) => self.control(j, ControlAction::Resume),
            Fault::Forget(j) => self.control(j, ControlAction::Forget),
            Fault::Cancel(j) => {
                let name = self.plan.versions[0][j].name.clone();
                if let Some(token) = self.record(&name).map(|r| r.token) {
                    self.control(j, ControlAction::Cancel(token));
                }
            }
        }
    }

    fn control(&mut self, j: usize, action: ControlAction) {
        if self.store_down {
            return;
        }
        let job = self.plan.versions[0][j].name.clone();
        let control = Control { job: job.clone(), action };
        if let Some((_, remote)) = &self.remote {
            let up = |i: &usize| self.instances[*i].engine.is_some();
            let all: Vec<usize> = (0..self.instances.len()).filter(up).collect();
            if !all.is_empty() {
                remote.control(all[self.rng.usize(0..all.len())], control);
            }
            return;
        }
        self.store.control(&control, self.time, &mut self.judge);
        let i = self.rng.usize(0..self.instances.len());
        if self.rng.bool() && self.instances[i].engine.is_some() && !self.instances[i].frozen {
            self.handle(i, Event::Changed(job));
        }
    }

    pub(super) fn lose_data(&mut self) {
        self.log(|| "the store loses its data".to_owned());
        match &self.remote {
            Some((_, remote)) => remote.lose_data(),
            None => self.store.lose_data(),
        }
        self.judge.lost(None);
        self.excuses.push(self.time);
    }

    pub(super) fn fail_over(&mut self, time: u64) {
        self.log(|| format!("the store forgets what was written since {:.6}", time as f64 / 1e6));
        if let Some((_, remote)) = &self.remote {
            if !remote.lose_newest(time) {
                return;
            }
            let left: HashMap<JobName, Record> = self.plan.versions[0]
                .iter()
                .filter_map(|job| Some((job.name.clone(), remote.record(&job.name)?)))
                .collect();
            self.judge.failed_over(|job| left.get(job));
        } else {
            self.store.fail_over(time);
            self.judge.failed_over(|job| self.store.record(job));
        }
        self.judge.count("failed over");
        self.excuses.push(self.time);
    }

    pub(super) fn cut_off(&mut self, i: usize, until: u64) {
        self.instances[i].place.cut_off_until = until;
        if let Some((site, _)) = &self.remote {
            site.place(i, |place| place.cut_off_until = until);
        }
    }

    pub(super) fn set_server(&mut self, server: Server) {
        let Some((site, remote)) = &self.remote else { return };
        site.set_server(server);
        if server == Server::Down {
            remote.server_died();
        }
    }

    /// The store's clock is set, or where it has none that of an instance.
    fn step_clock(&mut self, by: i64) {
        if self.plan.kind == Kind::TokenQueue {
            let by = by.clamp(-40 * SECOND as i64, 40 * SECOND as i64);
            let i = self.rng.usize(0..self.instances.len());
            self.set_wall(i, self.instances[i].place.wall + by);
            // What one has seen by its clock, another has not.
            self.excuses.push(self.time);
            self.clock_moved = self.time;
            return;
        }
        // Set back by more than two ages, it takes those announcements for old ones; by less, they live so much longer.
        let age = ANNOUNCEMENT_AGE.as_micros() as u64;
        if self.plan.kind == Kind::CompareAndSwap && by < 0 && by.unsigned_abs() <= 2 * age {
            self.announced_until = self.time + by.unsigned_abs() + age + 12 * SECOND;
        }
        self.store.offset += by;
        if let Some((site, _)) = &self.remote {
            site.offset.set(site.offset.get() + by);
        }
        self.clock_moved = self.time;
        self.judge.clock_set(by, self.time);
        if by > 0 {
            self.set_ahead = Some(self.time);
            self.excuses.push(self.time);
        }
    }

    pub(super) fn set_wall(&mut self, i: usize, wall: i64) {
        self.instances[i].place.wall = wall;
        if let Some((site, _)) = &self.remote {
            site.place(i, |place| place.wall = wall);
        }
    }
}
