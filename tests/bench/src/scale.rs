//! Many more instances and jobs than fit on a machine: what the calls of each kind take a real store is measured, and what many
//! instances ask of it is simulated.

use std::{sync::Arc, time::Duration};

use anarchon_bench::{board, instance::Kind as Instances};
use tokio::runtime::Runtime;

use crate::{
    child::{Scheduler, Work},
    claims::{self, Client, Rate, Turn},
    occurrences,
    page::Table,
    simulation::{Costs, Kind, Outcome, Shape, simulate},
    stores::Started,
};

const COSTS: [&str; 11] = [
    "store",
    "a call µs",
    "won and ended",
    "lost",
    "looked at",
    "an announcement",
    "each instance told of",
    "way",
    "own time for a claim",
    "looks of a namespace, at most %",
    "N whose announcements do",
];

const CHECK: [&str; 6] =
    ["store", "*jitter", "late p50 ms, measured", "simulated", "p99 ms, measured", "simulated"];

const SCALE: [&str; 14] = [
    "store",
    "instances",
    "jobs",
    "namespaces",
    "each every s",
    "*due",
    "*jitter",
    "claims/s",
    "looks/s",
    "busy %",
    "late p50 ms",
    "p99",
    "within 1 s %",
    "*at half of its time",
];

/// Those whose instances look at records as the simulation does.
pub const STORES: [&str; 3] = ["redis", "valkey", "postgres"];

/// Measures, compares with real processes, and simulates: three tables.
pub fn play(stores: &[&'static str], scheduler: Scheduler, seconds: usize, tables: &mut [Table; 3]) {
    let [costs, check, scale] = tables;
    costs.head(&COSTS, 1);
    let runtime = Runtime::new().expect("a runtime");
    let mut measured = Vec::new();
    for store in stores {
        let line = |table: &mut Table| {
            let mut costs = measure(&runtime, store, seconds as f64, table);
            let (real, own) = real(store, scheduler, seconds, table);
            costs.own = own;
            (format!("{store} | {}", cells_of(&costs)), (*store, costs, real))
        };
        measured.extend(costs.play(store, line));
    }
    println!();
    check.head(&CHECK, 1);
    for (store, costs, real) in &measured {
        for (jitter, real) in [false, true].into_iter().zip(real) {
            let simulated = outcome(&Shape { jitter, ..COMPARED }, costs);
            let cells = [0.5, 0.99].map(|part| {
                let real = real.percentile(part) as f64 / 1e3;
                format!("{real:.1} | {:.1}", simulated.percentile(part) * 1e3)
            });
            check.line(format_args!("{store} | {} | {}", occurrences::word(jitter), cells.join(" | ")));
        }
    }
    println!();
    scale.head(&SCALE, 1);
    for (store, costs, _) in &measured {
        for shape in shapes() {
            scale.line(format_args!("{store} | {}", line(&shape, costs)));
        }
    }
}

/// As many as a small machine takes, with jobs that are due each second.
const COMPARED: Shape =
    Shape { instances: 3, jobs: 1000, namespaces: 1, period: 1.0, jitter: false, together: true };

/// How late real processes are, without jitter and with it; and the CPU seconds of an instance for each claim.
fn real(
    store: &'static str,
    scheduler: Scheduler,
    seconds: usize,
    table: &mut Table,
) -> ([board::Seen; 2], f64) {
    let Shape { jobs, instances, .. } = COMPARED;
    let mut own = 0.0;
    let seen = [false, true].map(|jitter| {
        let work = Work { scheduler, jobs, seconds: seconds.max(10), jitter, kind: Instances::Busy };
        let (seen, cpu) = occurrences::seen(work, store, instances, table);
        if !jitter {
            own = cpu / (jobs * instances * work.seconds) as f64;
        }
        seen
    });
    (seen, own)
}

/// Ever more of them, with jobs that are due each minute or each hour: at last 10,000 instances with 10,000 jobs, as one namespace and as a
/// thousand.
fn shapes() -> Vec<Shape> {
    let minute =
        Shape { instances: 10, jobs: 1000, namespaces: 1, period: 60.0, jitter: true, together: true };
    let hour = |shape: Shape| Shape { period: 3600.0, ..shape };
    let hundred = Shape { instances: 100, ..minute };
    let thousand = Shape { instances: 1000, ..minute };
    let all = Shape { instances: 10_000, jobs: 10_000, ..minute };
    vec![
        minute,
        hour(minute),
        hundred,
        Shape { jitter: false, ..hundred },
        Shape { together: false, ..hundred },
        hour(hundred),
        thousand,
        hour(thousand),
        all,
        hour(all),
        all.split(1000),
        hour(all.split(1000)),
        Shape { jitter: false, ..all.split(1000) },
        Shape { together: false, ..all.split(1000) },
    ]
}

/// Several minutes, each with a luck of its own.
fn outcome(shape: &Shape, costs: &Costs) -> Outcome {
    let mut all = Outcome::default();
    for seed in 1..=3 {
        all.add(simulate(shape, costs, seed));
    }
    all
}

fn line(shape: &Shape, costs: &Costs) -> String {
    // One that cannot keep up falls behind without end: how fast, the closed form says.
    let simulated = (shape.least(costs) <= 1.0).then(|| outcome(shape, costs));
    let busy = simulated.as_ref().map_or(shape.least(costs), |outcome| outcome.busy(shape));
    let looks = simulated.as_ref().map_or(shape.looks(), |outcome| outcome.looks(shape));
    let late = match simulated.filter(|_| busy <= 1.0) {
        Some(outcome) => format!(
            "{:.0} | {:.1} | {:.1} | {:.1}",
            busy * 100.0,
            outcome.percentile(0.5) * 1e3,
            outcome.percentile(0.99) * 1e3,
            outcome.within(1.0) * 100.0
        ),
        None => format!("{:.0}: too much | {:.1} s more each second | – | 0", busy * 100.0, busy - 1.0),
    };
    format!(
        "{} | {} | {} | {} | {} | {} | {:.0} | {looks:.0} | {late} | {}",
        shape.instances * shape.namespaces,
        shape.jobs * shape.namespaces,
        shape.namespaces,
        shape.period,
        if shape.together { "together" } else { "spread" },
        occurrences::word(shape.jitter),
        shape.claims(),
        takes(shape, busy, costs)
    )
}

/// A server that is busy for longer has no room for a bad moment.
const HALF: f64 = 0.5;
/// Fewer of them are no service that survives two.
const LEAST_INSTANCES: usize = 3;

/// What keeps each server busy for half of its time: as many namespaces as it takes on one server, or more servers for those that there
/// are.
fn takes(shape: &Shape, busy: f64, costs: &Costs) -> String {
    let servers = |busy: f64| (busy / HALF).ceil();
    if busy <= HALF {
        return "it is".to_owned();
    }
    if shape.namespaces > 1 {
        return format!("{:.0} servers", servers(busy));
    }
    let most = (shape.instances / LEAST_INSTANCES).min(shape.jobs);
    match (2..=most).find(|&namespaces| shape.split(namespaces).most(costs) <= HALF) {
        Some(namespaces) => format!("{namespaces} namespaces"),
        None => {
            let busy = shape.split(most).most(costs);
            format!("{most} namespaces on {:.0} servers", servers(busy))
        }
    }
}

fn cells_of(costs: &Costs) -> String {
    let micros = |seconds: f64| format!("{:.1}", seconds * 1e6);
    let shape = |instances, jobs| Shape { instances, jobs, ..COMPARED };
    let looks = Costs { beat: Kind::default(), ..*costs };
    let announcements = Costs { looked: Kind::default(), ..*costs };
    // More than ten look less often, and more than a thousand in turn.
    let looks = shape(10, 1000).steady(&looks) * 100.0;
    let instances = largest(|n| shape(n, 1).steady(&announcements) <= HALF);
    format!(
        "{} | {} | {} | {} | {} | {} | {} | {} | {looks:.1} | {instances}",
        micros(costs.lost.call),
        micros(costs.won.item + costs.finished.item),
        micros(costs.lost.item),
        micros(costs.looked.item),
        micros(costs.beat.call),
        micros(costs.beat.item),
        micros(costs.way),
        micros(costs.own),
    )
}

/// The largest number for which this holds, of those that are worth a look; it holds for all that are less.
fn largest(holds: impl Fn(usize) -> bool) -> usize {
    let (mut good, mut bad) = (0, 1 << 24);
    while bad - good > 1 {
        let middle = usize::midpoint(good, bad);
        if holds(middle) { good = middle } else { bad = middle }
    }
    good
}

/// As many as keep a server busy.
const CLIENTS: usize = 16;
/// Instances that only announce themselves.
const CROWD: usize = 400;

/// Seconds of a call with one item and with a hundred, of each kind, where many clients keep the store busy.
fn measure(runtime: &Runtime, store: &str, seconds: f64, table: &mut Table) -> Costs {
    let [one, hundred] = [1, 100].map(|batch| {
        let started = Started::new(store);
        table.made_with(&started.version());
        let clients = runtime.block_on(claims::connect(started.url(), CLIENTS, batch));
        Calls::of(&clients, batch, seconds, runtime)
    });
    let started = Started::new(store);
    let clients = runtime.block_on(claims::connect(started.url(), 1, 1));
    let alone = Calls::of(&clients, 1, seconds, runtime);
    let clients = runtime.block_on(claims::connect(started.url(), CLIENTS, 1));
    let few = beat(&clients, seconds, runtime);
    runtime.block_on(clients[0].crowd(CROWD));
    let many = beat(&clients, seconds.min(LASTING.as_secs_f64()), runtime);
    Costs {
        won: kind((1, one.won), (100, hundred.won)),
        lost: kind((1, one.lost), (100, hundred.lost)),
        finished: kind((1, one.finished), (100, hundred.finished)),
        looked: kind((1, one.looked), (100, hundred.looked)),
        beat: kind((CLIENTS, few), (CLIENTS + CROWD, many)),
        way: (alone.lost - one.lost).max(0.0),
        own: 0.0,
    }
}

/// An announcement counts for 30 s.
const LASTING: Duration = Duration::from_secs(20);

/// From the seconds of a call with few items and of one with many.
fn kind((few, seconds): (usize, f64), (many, longer): (usize, f64)) -> Kind {
    let item = ((longer - seconds) / (many as f64 - few as f64)).max(0.0);
    Kind { call: (seconds - few as f64 * item).max(0.0), item }
}

/// Seconds of the store for a call of each kind.
struct Calls {
    won: f64,
    lost: f64,
    finished: f64,
    looked: f64,
}

impl Calls {
    fn of(clients: &[Arc<Client>], batch: usize, seconds: f64, runtime: &Runtime) -> Self {
        let mut rates: [Rate; 4] = Default::default();
        while rates[0].seconds() < seconds {
            runtime.block_on(claims::all(clients, Turn::Begin));
            let turns = [Turn::Win, Turn::Lose, Turn::Look, Turn::Finish(batch)];
            for (rate, turn) in rates.iter_mut().zip(turns) {
                rate.add(&runtime.block_on(claims::all(clients, turn)));
            }
        }
        let [won, lost, looked, finished] = rates.map(|rate| batch as f64 / rate.a_second());
        Self { won, lost, finished, looked }
    }
}

/// Seconds of the store for an announcement.
fn beat(clients: &[Arc<Client>], seconds: f64, runtime: &Runtime) -> f64 {
    let mut rate = Rate::default();
    while rate.seconds() < seconds {
        rate.add(&runtime.block_on(claims::all(clients, Turn::Beat)));
    }
    1.0 / rate.a_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 µs a call, 10 a record.
    fn costs() -> Costs {
        let kind = Kind { call: 100e-6, item: 10e-6 };
        Costs {
            won: kind,
            lost: kind,
            finished: kind,
            looked: kind,
            beat: Kind { call: 100e-6, item: 1e-6 },
            way: 0.0,
            own: 0.0,
        }
    }

    #[test]
    fn a_line_through_two_points() {
        assert_eq!(kind((1, 3.0), (101, 203.0)), Kind { call: 1.0, item: 2.0 });
        // Neither is less than nothing, whatever was measured.
        assert_eq!(kind((1, 3.0), (101, 2.0)), Kind { call: 3.0, item: 0.0 });
        assert_eq!(kind((1, 1.0), (101, 301.0)), Kind { call: 0.0, item: 3.0 });
    }

    #[test]
    fn half_of_the_time_is_what_the_looks_or_the_announcements_take() {
        // Ten times 1,000 records in 10.1 ms each 5 s; N/20 · (100 + N) µs.
        let cells = cells_of(&costs());
        assert_eq!(cells, "100.0 | 20.0 | 10.0 | 10.0 | 100.0 | 1.0 | 0.0 | 0.0 | 2.0 | 3112");
    }

    #[test]
    fn too_much_says_how_fast_it_falls_behind_and_what_would_do() {
        let line = line(&shapes()[8], &costs());
        // 0.02 s for looks, 17.5 for claims in full calls, 5.05 for announcements.
        let right = "1666667 | 2000 | 2257: too much | 21.6 s more each second | – | 0 | 834 namespaces";
        assert!(line.ends_with(right), "{line}");
    }

    #[test]
    fn what_fits_is_simulated() {
        let line = line(&shapes()[0], &costs());
        let cells: Vec<&str> = line.split(" | ").collect();
        assert_eq!(cells[..7], ["10", "1000", "1", "60", "together", "default", "167"]);
        assert_eq!(cells[cells.len() - 2..], ["100.0", "it is"]);
    }

    #[test]
    fn namespaces_that_there_are_go_to_more_servers() {
        let split = shapes()[10];
        assert_eq!(takes(&split, 1.7, &costs()), "4 servers");
        assert_eq!(takes(&split, 0.4, &costs()), "it is");
    }
}
