//! What a store does for many instances: a queue that serves one call after another, on a clock of its own. The calls leave as those of the
//! engine do.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Seconds of the store for each call of a kind, and for each item in it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Kind {
    pub call: f64,
    pub item: f64,
}

impl Kind {
    pub fn of(self, items: usize) -> f64 {
        self.call + self.item * items as f64
    }
}

/// What a store takes for what it is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Costs {
    pub won: Kind,
    pub lost: Kind,
    pub finished: Kind,
    pub looked: Kind,
    /// An announcement; its items are the instances that it is told of.
    pub beat: Kind,
    /// What a call takes beside that and keeps nobody else waiting.
    pub way: f64,
    /// What an instance takes itself for each claim: half of it before the call leaves, half of it before the run begins.
    pub own: f64,
}

/// Who asks, and how often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Of each namespace, as are the jobs.
    pub instances: usize,
    pub jobs: usize,
    pub namespaces: usize,
    /// Of each job, in seconds.
    pub period: f64,
    /// The default one, or none.
    pub jitter: bool,
    /// Whether all jobs are due at one moment, or evenly spread over the period.
    pub together: bool,
}

// As in the engine, in seconds.
const LONGEST_JITTER: f64 = 0.5;
const TURN: f64 = 5.0;
const BEAT: f64 = 20.0;
const WATCHED: f64 = 1.0;
const CLAIMS_TOGETHER: f64 = 0.25;
const FINISHES_TOGETHER: f64 = 0.1;
// As there too.
const CALLS: usize = 10;
const BATCH: usize = 200;
const LOOKS: usize = 1000;
const ENOUGH: usize = 10;

impl Shape {
    fn all_instances(&self) -> f64 {
        (self.instances * self.namespaces) as f64
    }

    fn jitter(&self) -> f64 {
        if self.jitter { LONGEST_JITTER.min(self.period / 10.0) } else { 0.0 }
    }

    /// Occurrences a second.
    pub fn occurrences(&self) -> f64 {
        (self.jobs * self.namespaces) as f64 / self.period
    }

    /// Claims a second.
    pub fn claims(&self) -> f64 {
        self.occurrences() * self.instances as f64
    }

    /// Records that are looked at in a second, but for those of runs that go on.
    pub fn looks(&self) -> f64 {
        self.all_instances() * self.turn() as f64 / self.between_turns()
    }

    /// Records that an instance looks at in a turn.
    fn turn(&self) -> usize {
        self.jobs.min(LOOKS)
    }

    /// Seconds between two turns of an instance.
    fn between_turns(&self) -> f64 {
        TURN * self.instances.div_ceil(ENOUGH) as f64
    }

    /// The part of its time that the store takes for looks and announcements.
    pub fn steady(&self, costs: &Costs) -> f64 {
        let looks = costs.looked.of(self.turn()) / self.between_turns();
        self.all_instances() * (looks + costs.beat.of(self.instances) / BEAT)
    }

    /// The part for claims and ends, if each instance sends so many calls with claims whenever its jobs are due.
    fn claimed(&self, costs: &Costs, calls: f64) -> f64 {
        let lost = (self.claims() - self.occurrences()) * costs.lost.item;
        let won = self.occurrences() * (costs.won.item + costs.finished.item);
        lost + won + self.all_instances() / self.period * calls * costs.lost.call
    }

    /// The least part of its time that all of it takes: full calls.
    pub fn least(&self, costs: &Costs) -> f64 {
        self.steady(costs) + self.claimed(costs, self.jobs as f64 / BATCH as f64)
    }

    /// About the most: a call leaves as soon as the one before is back.
    pub fn most(&self, costs: &Costs) -> f64 {
        let room = if self.together { self.jitter() } else { self.period };
        let one_by_one = room / (costs.way + costs.lost.of(1));
        let full = self.jobs as f64 / BATCH as f64;
        self.steady(costs) + self.claimed(costs, one_by_one.min(self.jobs as f64).max(full))
    }

    /// The same instances and jobs in so many namespaces, each with as many of both as the others.
    pub fn split(&self, namespaces: usize) -> Self {
        let instances = (self.instances * self.namespaces).div_ceil(namespaces);
        let jobs = (self.jobs * self.namespaces).div_ceil(namespaces);
        Self { instances, jobs, namespaces, ..*self }
    }
}

/// The items of each call.
fn calls(items: usize, most: usize) -> impl Iterator<Item = usize> {
    (0..items).step_by(most).map(move |from| most.min(items - from))
}

/// What came of it.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// Of each occurrence, from its time to the beginning of its run, in seconds; sorted.
    pub late: Vec<f64>,
    /// Seconds of the store for claims, ends, and looks at runs that went on: of all occurrences together.
    claimed: f64,
    /// Seconds of the store for all else, and of the simulated time.
    other: f64,
    time: f64,
    /// Records of runs that went on that were looked at.
    watched: usize,
    /// Seconds that the store is behind at the end.
    pub behind: f64,
}

impl Outcome {
    /// Takes in another one of the same shape.
    pub fn add(&mut self, other: Self) {
        self.late.extend(other.late);
        self.late.sort_by(f64::total_cmp);
        self.claimed += other.claimed;
        self.other += other.other;
        self.time += other.time;
        self.watched += other.watched;
        self.behind = self.behind.max(other.behind);
    }

    /// The part of its time that the store takes, if it goes on like this.
    pub fn busy(&self, shape: &Shape) -> f64 {
        self.claimed / self.late.len() as f64 * shape.occurrences() + self.other / self.time
    }

    /// Records that are looked at in a second.
    pub fn looks(&self, shape: &Shape) -> f64 {
        shape.looks() + self.watched as f64 / self.late.len() as f64 * shape.occurrences()
    }

    pub fn percentile(&self, part: f64) -> f64 {
        let at = (self.late.len() as f64 * part).ceil() as usize;
        self.late.get(at.max(1) - 1).copied().unwrap_or_default()
    }

    /// The part of the occurrences that begin within this time.
    pub fn within(&self, seconds: f64) -> f64 {
        self.late.partition_point(|late| *late <= seconds) as f64 / self.late.len() as f64
    }
}

/// One server without priorities: what comes first is served first.
#[derive(Debug, Default)]
struct Queue {
    free: Nanos,
}

impl Queue {
    /// When it has served what comes now.
    fn serve(&mut self, now: Nanos, seconds: f64) -> Nanos {
        self.free = self.free.max(now) + nanos(seconds);
        self.free
    }
}

/// So that times have an order, and equal ones are equal.
type Nanos = u64;

fn nanos(seconds: f64) -> Nanos {
    (seconds * 1e9).round() as Nanos
}

/// SplitMix64: the same everywhere for the same seed.
struct Random(u64);

impl Random {
    /// From 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as f64 / 2f64.powi(64)
    }
}

/// Of an instance, or of a call of it that is back; told in the order of their times.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Something to claim may be due.
    Due,
    /// A call with so many claims, from this one of the plan on.
    Leaves(usize, usize),
    /// With how many claims, and what comes of it.
    Back(usize, Claimed),
    Claimed(Claimed),
    FinishesDue,
    Finished,
    /// Looks at what ran elsewhere.
    Watch,
    Turn,
    Beat,
}

/// The occurrences that a call won, and how many were still running elsewhere.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claimed(Vec<usize>, usize);

#[derive(Debug, Default)]
struct Instance {
    /// What it does itself: one thing after another.
    own: Queue,
    /// What it will claim, and when: its jitter is drawn.
    plan: Vec<(Nanos, usize)>,
    next: usize,
    in_flight: usize,
    overfull: bool,
    last: Option<Nanos>,
    woken: Option<Nanos>,
    finishes_in_flight: usize,
    last_finish: Option<Nanos>,
    /// Of those that ended.
    to_finish: Vec<usize>,
    watched: usize,
}

#[derive(Debug, Default, Clone)]
struct Occurrence {
    due: Nanos,
    is_won: bool,
    began: Option<Nanos>,
    /// The call that ends it has left.
    is_ended: bool,
}

/// Long enough for the looks to be under way, for the occurrences, and for what they leave to do.
const BEFORE: f64 = 5.0;
const LOOKED_AT: f64 = 60.0;
const AFTER: f64 = 10.0;

/// Plays a minute and some seconds around it: all occurrences of it if jobs are due that often, else those of one moment.
pub fn simulate(shape: &Shape, costs: &Costs, seed: u64) -> Outcome {
    let mut world = World::new(shape, costs, seed);
    let end = nanos(BEFORE + LOOKED_AT + AFTER);
    while let Some(Reverse((now, _, instance, event))) = world.events.pop() {
        if now > end {
            break;
        }
        world.play(now, instance, event);
    }
    let mut outcome = world.outcome;
    outcome.time = BEFORE + LOOKED_AT + AFTER;
    outcome.behind = world.queue.free.saturating_sub(end) as f64 / 1e9;
    // One that did not begin is at least that late.
    let late = |one: &Occurrence| (one.began.unwrap_or(end).saturating_sub(one.due)) as f64 / 1e9;
    outcome.late = world.occurrences.iter().map(late).collect();
    outcome.late.sort_by(f64::total_cmp);
    outcome
}

struct World {
    shape: Shape,
    costs: Costs,
    queue: Queue,
    occurrences: Vec<Occurrence>,
    instances: Vec<Instance>,
    events: BinaryHeap<Reverse<(Nanos, u64, usize, Event)>>,
    told: u64,
    outcome: Outcome,
}

impl World {
    fn new(shape: &Shape, costs: &Costs, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut world = Self {
            shape: *shape,
            costs: *costs,
            queue: Queue::default(),
            occurrences: Vec::new(),
            instances: Vec::new(),
            events: BinaryHeap::new(),
            told: 0,
            outcome: Outcome::default(),
        };
        for _ in 0..shape.namespaces {
            let first = world.occurrences.len();
            for job in 0..shape.jobs {
                let part = if shape.together { 0.0 } else { job as f64 / shape.jobs as f64 };
                let times = (0..).map(|n| (f64::from(n) + part) * shape.period);
                world.occurrences.extend(
                    times
                        .take_while(|at| *at < LOOKED_AT)
                        .map(|at| Occurrence { due: nanos(BEFORE + at), ..Occurrence::default() }),
                );
            }
            for _ in 0..shape.instances {
                let due = world.occurrences.iter().enumerate().skip(first);
                let mut plan: Vec<(Nanos, usize)> = due
                    .map(|(which, one)| (one.due + nanos(shape.jitter() * random.next()), which))
                    .collect();
                plan.sort_unstable();
                let instance = world.instances.len();
                if let Some((at, _)) = plan.first() {
                    world.tell(*at, instance, Event::Due);
                }
                world.instances.push(Instance { plan, ..Instance::default() });
                world.tell(nanos(shape.between_turns() * random.next()), instance, Event::Turn);
                world.tell(nanos(BEAT * random.next()), instance, Event::Beat);
            }
        }
        world
    }

    fn tell(&mut self, at: Nanos, instance: usize, event: Event) {
        self.told += 1;
        self.events.push(Reverse((at, self.told, instance, event)));
    }

    fn play(&mut self, now: Nanos, instance: usize, event: Event) {
        match event {
            Event::Due => {
                self.instances[instance].woken = None;
                self.send_claims(now, instance);
            }
            Event::Leaves(from, items) => self.claim(now, instance, from, items),
            Event::Back(items, claimed) => {
                let at = self.instances[instance].own.serve(now, self.costs.own / 2.0 * items as f64);
                self.tell(at, instance, Event::Claimed(claimed));
            }
            Event::Claimed(Claimed(won, running)) => {
                let one = &mut self.instances[instance];
                one.in_flight -= 1;
                let begins_to_watch = one.watched == 0 && running > 0;
                one.watched += running;
                // A handler takes no time.
                one.to_finish.extend(&won);
                for which in won {
                    self.occurrences[which].began = Some(now);
                }
                if begins_to_watch {
                    self.tell(now + nanos(WATCHED), instance, Event::Watch);
                }
                self.send_finishes(now, instance);
                self.send_claims(now, instance);
            }
            Event::FinishesDue => self.send_finishes(now, instance),
            Event::Finished => {
                self.instances[instance].finishes_in_flight -= 1;
                self.send_finishes(now, instance);
            }
            Event::Watch => {
                let watched = std::mem::take(&mut self.instances[instance].watched);
                self.outcome.watched += watched;
                self.outcome.claimed += self.look(now, watched);
            }
            Event::Turn => {
                self.outcome.other += self.look(now, self.shape.turn());
                self.tell(now + nanos(self.shape.between_turns()), instance, Event::Turn);
            }
            Event::Beat => {
                let seconds = self.costs.beat.of(self.shape.instances);
                self.queue.serve(now, seconds);
                self.outcome.other += seconds;
                self.tell(now + nanos(BEAT), instance, Event::Beat);
            }
        }
    }

    /// Looks at so many records, and says what that takes.
    fn look(&mut self, now: Nanos, records: usize) -> f64 {
        let seconds = calls(records, LOOKS).map(|items| self.costs.looked.of(items)).sum();
        self.queue.serve(now, seconds);
        seconds
    }

    fn send_claims(&mut self, now: Nanos, instance: usize) {
        let one = &self.instances[instance];
        let together = one.last.map(|last| last + nanos(CLAIMS_TOGETHER)).filter(|at| now < *at);
        let ready = one.plan[one.next..].partition_point(|(at, _)| *at <= now);
        let mut left = ready;
        if ready > 0
            && one.in_flight > 0
            && !one.overfull
            && let Some(together) = together
        {
            return self.wake(together, instance);
        }
        let mut sent = 0;
        while left > 0 && (self.instances[instance].in_flight < CALLS || together.is_none() && sent == 0) {
            let items = left.min(BATCH);
            let one = &mut self.instances[instance];
            let from = one.next;
            one.next += items;
            one.in_flight += 1;
            one.last = Some(now);
            let at = one.own.serve(now, self.costs.own / 2.0 * items as f64);
            self.tell(at, instance, Event::Leaves(from, items));
            left -= items;
            sent += 1;
        }
        let one = &mut self.instances[instance];
        one.overfull = one.in_flight >= CALLS && left > 0;
        if one.overfull {
            let at = one.last.unwrap_or(now) + nanos(CLAIMS_TOGETHER);
            return self.wake(at.max(now + 1), instance);
        }
        if let Some((at, _)) = one.plan.get(one.next) {
            let at = *at;
            self.wake(at, instance);
        }
    }

    fn wake(&mut self, at: Nanos, instance: usize) {
        let woken = &mut self.instances[instance].woken;
        if woken.is_none_or(|woken| at < woken) {
            *woken = Some(at);
            self.tell(at, instance, Event::Due);
        }
    }

    /// One call. As the store serves in the order in which calls leave, it is known by then who wins.
    fn claim(&mut self, now: Nanos, instance: usize, from: usize, items: usize) {
        let claims = &self.instances[instance].plan[from..from + items];
        let (mut won, mut running) = (Vec::new(), 0);
        for (_, which) in claims {
            let occurrence = &mut self.occurrences[*which];
            if !std::mem::replace(&mut occurrence.is_won, true) {
                won.push(*which);
            } else if !occurrence.is_ended {
                running += 1;
            }
        }
        let Costs { won: win, lost: lose, way, .. } = self.costs;
        // Who wins nothing writes nothing.
        let call = if won.is_empty() { lose.call } else { win.call.max(lose.call) };
        let seconds = call + win.item * won.len() as f64 + lose.item * (items - won.len()) as f64;
        self.outcome.claimed += seconds;
        let served = self.queue.serve(now, seconds);
        self.tell(served + nanos(way), instance, Event::Back(items, Claimed(won, running)));
    }

    fn send_finishes(&mut self, now: Nanos, instance: usize) {
        let one = &mut self.instances[instance];
        if one.to_finish.is_empty() {
            return;
        }
        if one.finishes_in_flight > 0
            && let Some(together) =
                one.last_finish.map(|last| last + nanos(FINISHES_TOGETHER)).filter(|at| now < *at)
        {
            return self.tell(together, instance, Event::FinishesDue);
        }
        one.last_finish = Some(now);
        let ended = std::mem::take(&mut one.to_finish);
        for ended in ended.chunks(BATCH) {
            for which in ended {
                self.occurrences[*which].is_ended = true;
            }
            let seconds = self.costs.finished.of(ended.len());
            self.outcome.claimed += seconds;
            let served = self.queue.serve(now, seconds);
            self.instances[instance].finishes_in_flight += 1;
            self.tell(served + nanos(self.costs.way), instance, Event::Finished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Shape =
        Shape { instances: 1, jobs: 1, namespaces: 1, period: 3600.0, jitter: false, together: true };

    /// Nothing but claims and ends, in ms.
    fn ms(call: f64, won: f64, lost: f64) -> Costs {
        let kind = |item: f64| Kind { call: call / 1e3, item: item / 1e3 };
        Costs { won: kind(won), lost: kind(lost), finished: kind(0.0), ..Costs::default() }
    }

    fn is_near(value: f64, right: f64, error: f64) -> bool {
        (value - right).abs() <= right.abs() * error
    }

    #[test]
    fn the_queue_waits_as_long_as_the_formula_for_one_server_of_equal_services() {
        for load in [0.3, 0.5, 0.8] {
            let (mut queue, mut random, service) = (Queue::default(), Random(7), 1e-3);
            let (mut at, mut waited, calls) = (0.0, 0.0, 1_000_000);
            for _ in 0..calls {
                at += -(1.0 - random.next()).ln() * service / load;
                let served = queue.serve(nanos(at), service);
                waited += (served - nanos(at)) as f64 / 1e9 - service;
            }
            let right = load / (2.0 * (1.0 - load)) * service;
            assert!(is_near(waited / f64::from(calls), right, 0.03), "{waited} at {load}, not {right}");
        }
    }

    #[test]
    fn one_claim_is_as_late_as_it_takes() {
        let costs = Costs { way: 0.5e-3, ..ms(1.0, 2.0, 0.1) };
        let outcome = simulate(&ALONE, &costs, 1);
        assert_eq!(outcome.late, [3.5e-3]);
        // The claim, and the end of it.
        assert!(is_near(outcome.claimed, 4e-3, 1e-9), "{outcome:?}");
    }

    #[test]
    fn calls_are_served_one_after_another_and_the_first_wins() {
        // Three calls of 200, 200 and 100 of the first instance, and then those of the second.
        let shape = Shape { instances: 2, jobs: 500, ..ALONE };
        let outcome = simulate(&shape, &ms(10.0, 1.0, 0.5), 1);
        let late = |from: usize| outcome.late[from];
        assert!([0, 199].map(late) == [0.21; 2] && [200, 399].map(late) == [0.42; 2]);
        assert!([400, 499].map(late) == [0.53; 2], "{:?}", outcome.late);
        // Those of the second left before any of it had ended, so that it looks again.
        assert_eq!(outcome.watched, 500);
        // Six calls with claims, and three that end; what is looked at again costs nothing here.
        assert!(is_near(outcome.claimed, 9.0 * 10e-3 + 500.0 * 1.5e-3, 1e-9), "{}", outcome.claimed);
    }

    #[test]
    fn an_instance_takes_its_own_time_before_a_call_and_behind_it() {
        // Two calls, each 1 ms to send and 1 ms to take in; the second leaves before the reply to the first is looked at.
        let costs = Costs { own: 1e-5, ..Costs::default() };
        let outcome = simulate(&Shape { jobs: 400, ..ALONE }, &costs, 1);
        assert_eq!([0, 199, 200, 399].map(|at| outcome.late[at]), [3e-3, 3e-3, 4e-3, 4e-3]);
    }

    #[test]
    fn the_first_of_many_that_draw_a_jitter_is_early() {
        // The least of n draws is 1 / (n + 1) of the longest in the mean.
        let shape = Shape { instances: 9, jobs: 20_000, jitter: true, ..ALONE };
        let outcome = simulate(&shape, &Costs::default(), 3);
        let mean = outcome.late.iter().sum::<f64>() / outcome.late.len() as f64;
        assert!(is_near(mean, 0.05, 0.05), "{mean}");
    }

    #[test]
    fn what_is_due_beyond_ten_calls_leaves_with_the_replies() {
        let outcome = simulate(&Shape { jobs: 2600, ..ALONE }, &ms(1.0, 0.0, 0.0), 1);
        // The eleventh leaves as the first is back, behind nine others; ends of runs are served between them.
        assert!(outcome.late[1999] <= 0.0101 && outcome.late[2000] >= 0.0109, "{:?}", outcome.late[2000]);
        assert!(outcome.late[2599] < 0.03);
    }

    #[test]
    fn looks_and_announcements_take_what_the_closed_form_says() {
        let shape = Shape { instances: 40, jobs: 1500, period: 60.0, jitter: true, ..ALONE };
        let costs = Costs {
            looked: Kind { call: 1e-4, item: 1e-6 },
            beat: Kind { call: 2e-4, item: 1e-5 },
            ..ms(0.0, 0.0, 0.0)
        };
        // A thousand records in turn, each 20 s where forty look.
        let right = 40.0 * (1e-4 + 1e-3) / 20.0 + 40.0 * (2e-4 + 4e-4) / 20.0;
        assert!(is_near(shape.steady(&costs), right, 1e-9));
        let outcome = simulate(&shape, &costs, 1);
        assert!(is_near(outcome.other / outcome.time, right, 0.05), "{outcome:?}", outcome = outcome.other);
    }

    #[test]
    fn the_closed_forms_enclose_what_is_simulated() {
        let costs = Costs { looked: Kind { call: 1e-4, item: 1e-6 }, way: 1e-4, ..ms(0.1, 0.1, 0.05) };
        for together in [true, false] {
            let shape = Shape { instances: 10, jobs: 300, period: 30.0, jitter: true, together, ..ALONE };
            let busy = simulate(&shape, &costs, 5).busy(&shape);
            let (least, most) = (shape.least(&costs), shape.most(&costs));
            assert!(least <= busy * 1.02 && busy <= most * 1.1, "{least} {busy} {most}");
        }
    }

    #[test]
    fn one_that_is_asked_for_too_much_falls_behind_by_the_rest_each_second() {
        let shape = Shape { instances: 10, jobs: 100, jitter: true, ..ALONE };
        let costs = Costs { looked: Kind { call: 0.0, item: 1e-2 }, ..ms(0.0, 0.0, 0.0) };
        assert!(is_near(shape.least(&costs), 2.0, 1e-9));
        let outcome = simulate(&shape, &costs, 1);
        // The runs last as long as their ends wait, so that all others look at them again.
        let right = (2.0 - 1.0) * outcome.time + outcome.watched as f64 * 1e-2;
        assert!(is_near(outcome.behind, right, 0.02), "{} and not {right}", outcome.behind);
    }

    #[test]
    fn spread_jobs_wait_for_nobody() {
        let shape = Shape { instances: 3, jobs: 600, period: 60.0, together: false, ..ALONE };
        let outcome = simulate(&shape, &ms(1.0, 1.0, 1.0), 1);
        assert_eq!(outcome.late.len(), 600);
        assert!(is_near(outcome.percentile(0.99), 2e-3, 1e-9), "{}", outcome.percentile(0.99));
        assert_eq!(outcome.within(0.001), 0.0);
        assert_eq!(outcome.within(0.002), 1.0);
    }

    #[test]
    fn namespaces_share_the_server_and_nothing_else() {
        let shape = Shape { instances: 10, jobs: 10, ..ALONE };
        let split = Shape { instances: 100, jobs: 100, ..ALONE }.split(10);
        assert_eq!(split, Shape { namespaces: 10, ..shape });
        assert_eq!(split.looks(), 100.0 * 100.0 / 10.0 / 5.0);
        let outcome = simulate(&split, &ms(1.0, 1.0, 0.0), 1);
        assert_eq!(outcome.late.len(), 100);
        // The tenth namespace's first instance waits for nine calls that win, and for the nine that lose in each.
        assert!(outcome.percentile(1.0) >= 9.0 * (11e-3 + 9e-3), "{:?}", outcome.late);
    }

    #[test]
    fn the_same_seed_plays_the_same() {
        let shape = Shape { instances: 5, jobs: 50, period: 10.0, jitter: true, ..ALONE };
        let costs = ms(0.2, 0.1, 0.1);
        assert_eq!(simulate(&shape, &costs, 1), simulate(&shape, &costs, 1));
        assert_ne!(simulate(&shape, &costs, 1).late, simulate(&shape, &costs, 2).late);
    }

    #[test]
    fn two_windows_count_as_one_of_twice_the_length() {
        let shape = Shape { instances: 5, jobs: 50, period: 10.0, jitter: true, ..ALONE };
        let costs = ms(0.2, 0.1, 0.1);
        let mut both = simulate(&shape, &costs, 1);
        let once = both.busy(&shape);
        both.add(simulate(&shape, &costs, 1));
        assert!(is_near(both.busy(&shape), once, 1e-9));
        assert_eq!(both.late.len(), 2 * 6 * 50);
    }
}
