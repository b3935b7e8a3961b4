//! Many engines on the pure protocol in virtual time, with seeded faults, on each kind of store; the invariants of the
//! protocol are judged after each step: on one map, and on models of the clients of NATS and RabbitMQ with their servers.
//!
//! `ANARCHON_SEEDS=1000000` plays more seeds, from `ANARCHON_FROM` on. `ANARCHON_SEED=17` plays one, and prints the smallest
//! course that breaks the same, if it breaks anything. `seeds::token_queue` as a filter plays them on that kind alone.

#[path = "simulation/compare_and_swap/mod.rs"]
mod compare_and_swap;
#[path = "simulation/hostile.rs"]
mod hostile;
#[path = "simulation/judge.rs"]
mod judge;
#[path = "simulation/mutation.rs"]
mod mutation;
#[path = "simulation/plan.rs"]
mod plan;
#[path = "simulation/shrink.rs"]
mod shrink;
#[path = "simulation/site.rs"]
mod site;
#[path = "simulation/store.rs"]
mod store;
#[path = "simulation/tasks.rs"]
mod tasks;
#[path = "simulation/token_queue/mod.rs"]
mod token_queue;
#[path = "simulation/world/mod.rs"]
mod world;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mutation::Mutation;
use plan::{Fault, Kind, Plan, SECOND};
use world::{Outcome, World};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name} is {text:?}: {error}")))
}

fn play(plan: Plan, mutation: Option<Mutation>) -> Outcome {
    World::new(plan, mutation, false).run()
}

/// Plays a broken plan again, as small as it can be made, with its history.
fn explain(plan: &Plan, mutation: Option<Mutation>) -> String {
    let Some((smallest, told)) = shrink::shrink(plan, mutation) else { return "broke nothing".to_owned() };
    let history = World::new(smallest.clone(), mutation, true).run().history.join("\n");
    format!("{smallest:#?}\n{history}\nbroke {told}")
}

mod seeds {
    use super::*;

    #[test]
    fn one_map() {
        all(Kind::OneMap, "one_map", 20_000);
    }

    #[test]
    fn compare_and_swap() {
        all(Kind::CompareAndSwap, "compare_and_swap", 1_500);
    }

    #[test]
    fn token_queue() {
        all(Kind::TokenQueue, "token_queue", 3_000);
    }

    /// How to see it again: shrinking is as repeatable as the course itself.
    fn replay(name: &str, seed: u64) -> String {
        format!("ANARCHON_SEED={seed} cargo test -p anarchon-tests --test simulation seeds::{name}")
    }

    fn all(kind: Kind, name: &str, usual: u64) {
        if let Some(seed) = number("ANARCHON_SEED") {
            if play(Plan::of(kind, seed), None).broken.is_some() {
                panic!("{}", explain(&Plan::of(kind, seed), None));
            }
            return;
        }
        let from = number("ANARCHON_FROM").unwrap_or(0);
        let to = from + number("ANARCHON_SEEDS").unwrap_or(usual);
        let next = AtomicU64::new(from);
        let broken = Mutex::new(BTreeMap::new());
        let counts = Mutex::new(BTreeMap::<&str, u64>::new());
        let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= to || broken.lock().expect("no course panics").len() >= 20 {
                            break;
                        }
                        let outcome = play(Plan::of(kind, seed), None);
                        if let Some(what) = outcome.broken {
                            broken.lock().expect("no course panics").insert(seed, what);
                        }
                        let mut counts = counts.lock().expect("no course panics");
                        for (what, n) in outcome.counts {
                            *counts.entry(what).or_default() += n;
                        }
                    }
                });
            }
        });
        println!("{kind:?}, {} seeds: {:#?}", to - from, counts.lock().expect("no course panics"));
        let broken = broken.into_inner().expect("no course panics");
        if let Some((&seed, _)) = broken.first_key_value() {
            let list: Vec<String> = broken.iter().map(|(s, w)| format!("{s}: {w:.300}")).collect();
            let told = explain(&Plan::of(kind, seed), None);
            panic!("{told}\n{}\nreplay: {}", list.join("\n"), replay(name, seed));
        }
    }
}

/// Each invariant can fail: a rule broken on purpose breaks it at the seed given, or at one of the next.
#[test]
fn every_broken_rule_is_noticed() {
    use Mutation as M;
    noticed(
        Kind::OneMap,
        &[
            (M::LeaseProtectsNobody, "I1", 0),
            (M::AttemptStands, "I2", 0),
            (M::TokenStands, "I3", 0),
            (M::DecidedFollows, "I4", 0),
            (M::FinishedIsTakenOver, "I5", 0),
            (M::EarlyWins, "I6", 0),
            (M::NoWindow, "I6", 0),
            (M::NothingIsDecided, "I7", 0),
            (M::SkipIsForgotten, "I8", 0),
            (M::OldestFirst, "I9", 0),
            (M::NoDrop, "I10", 0),
            (M::StaleHolderWrites, "I11", 0),
            (M::FinishCountsTwice, "I12", 0),
            (M::NonceIsIgnored, "I12", 0),
            (M::EveryScheduleClaims, "I13", 200),
            (M::BadItemFailsAll, "I14", 0),
            (M::HistoryGrows, "I15", 0),
            (M::CrashesDoNotCount, "I16", 0),
            (M::PauseIsIgnored, "I17", 0),
            (M::TriggerComesBack, "I18", 0),
            (M::CancelIsForgotten, "I19", 750),
            (M::NoTakeover, "I20", 0),
            (M::NothingExpires, "I21", 2300),
        ],
    );
}

/// What a compare-and-swap needs beside the rules of all stores.
#[test]
fn every_broken_rule_of_a_compare_and_swap_is_noticed() {
    use Mutation as M;
    noticed(
        Kind::CompareAndSwap,
        &[
            (M::NoRevisionCheck, "I1", 0),
            (M::LostBucketIsTheSame, "I4", 30),
            (M::LeaseEndsByUntil, "I1", 1000),
            (M::VoidIsIgnored, "I21", 0),
            (M::OrderRevivesVoid, "I21", 0),
        ],
    );
}

/// What a token queue needs beside the rules of all stores.
#[test]
fn every_broken_rule_of_a_token_queue_is_noticed() {
    use Mutation as M;
    noticed(
        Kind::TokenQueue,
        &[
            (M::SignBeforeAward, "I7", 0),
            (M::BrokenBirthStays, "I7", 0),
            (M::MissesAddUp, "start", 0),
            (M::TokenComesBackLate, "I20", 0),
            (M::TwoTokens, "I9", 0),
            (M::TakeoverBeforeUntil, "I1", 60),
            (M::SkipsAreForgotten, "I8", 100),
        ],
    );
}

/// How many seeds are tried: so many more than are needed that another draw somewhere does not matter.
const TRIED: u64 = 600;

fn noticed(kind: Kind, all: &[(Mutation, &str, u64)]) {
    let mut missed = Vec::new();
    for &(mutation, invariant, from) in all {
        let mut seen = BTreeMap::<String, u64>::new();
        let seed = (from..from + TRIED).find(|&seed| {
            let mut plan = Plan::of(kind, seed);
            match mutation {
                Mutation::CrashesDoNotCount => plan.handlers.kills = 0.9,
                // Long ways, and connections that end on them.
                Mutation::SignBeforeAward => (plan.net.latency, plan.net.lost_request) = (SECOND / 4, 0.2),
                Mutation::LostBucketIsTheSame => {
                    // Again and again, so that revisions are low and meet.
                    plan.faults = (1..15).map(|n| (n * 4 * SECOND, Fault::StoreLosesData)).collect();
                    (plan.faulty, plan.handlers.longest) = (60 * SECOND, 40 * SECOND);
                }
                Mutation::OrderRevivesVoid => {
                    // Claims of all lie in the network for longer than their leases, and orders come right after them.
                    (plan.instances, plan.faulty) = (2, 60 * SECOND);
                    let jobs = plan.versions[0].len();
                    plan.versions
                        .iter_mut()
                        .flatten()
                        .for_each(|job| job.policy.lease = Duration::from_secs(5));
                    let cuts =
                        (1..5).flat_map(|n| [0, 1].map(|i| (n * 13 * SECOND, Fault::CutOff(i, 9 * SECOND))));
                    let orders = (1..240).map(|n| (n * SECOND / 4, Fault::Trigger(n as usize % jobs)));
                    plan.faults = cuts.chain(orders).collect();
                    plan.faults.sort_by_key(|(at, _)| *at);
                }
                _ => {}
            }
            let broken = play(plan, Some(mutation)).broken;
            let name = broken.as_deref().map_or("nothing", shrink::invariant).to_owned();
            let right = name == invariant;
            *seen.entry(name).or_default() += 1;
            right
        });
        println!("{mutation:?}: {invariant} at seed {seed:?} {seen:?}");
        if seed.is_none() {
            missed.push(format!("{mutation:?} never broke {invariant}, only {seen:?}"));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// What is printed of a broken seed is small, breaks the same, and is the same each time.
#[test]
fn a_broken_seed_is_told_by_the_smallest_course_that_breaks_the_same() {
    let mutation = Some(Mutation::StaleHolderWrites);
    let broken = |seed: &u64| play(Plan::of(Kind::OneMap, *seed), mutation).broken;
    let seeds: Vec<u64> = (0..1000).filter(|seed| broken(seed).is_some()).take(3).collect();
    assert_eq!(seeds.len(), 3);
    for seed in seeds {
        let plan = Plan::of(Kind::OneMap, seed);
        let (smallest, told) = shrink::shrink(&plan, mutation).unwrap();
        let before = broken(&seed).unwrap();
        assert_eq!(shrink::invariant(&told), shrink::invariant(&before));
        let size = |plan: &Plan| (plan.faults.len(), plan.instances, plan.versions[0].len());
        let (less, all) = (size(&smallest), size(&plan));
        assert!(less.0 <= all.0 && less.1 <= all.1 && less.2 <= all.2, "{less:?} {all:?}");
        // Nothing that is left can be taken away.
        for at in 0..smallest.faults.len() {
            let mut without = smallest.clone();
            without.faults.remove(at);
            let after = World::new(without, mutation, false).run().broken;
            assert_ne!(after.as_deref().map(shrink::invariant), Some(shrink::invariant(&told)));
        }
        let text = explain(&plan, mutation);
        assert!(text.ends_with(&format!("broke {told}")), "{told}");
        assert_eq!(text, explain(&plan, mutation));
    }
    assert!(shrink::shrink(&Plan::of(Kind::OneMap, 0), None).is_none());
}

/// No answer of a store stops the engine, makes it panic, or makes it ask without pause.
#[test]
fn a_store_that_answers_anything_does_no_harm() {
    for seed in 0..500 {
        let calls = hostile::play(seed);
        assert!(calls < 6000, "seed {seed}: {calls} calls in a minute");
    }
}

fn named(name: &str, schedule: &str) -> anarchon::engine::EngineJob {
    plan::job(name, schedule, anarchon::policy::Policy::default())
}

fn played(plan: &Plan) -> Outcome {
    let outcome = World::new(plan.clone(), None, false).run();
    assert!(outcome.broken.is_none(), "{}", explain(plan, None));
    outcome
}

#[test]
fn an_idle_instance_asks_the_store_at_most_15_times_a_minute() {
    let outcome = played(&Plan::calm(1, vec![vec![named("yearly", "0 0 1 7 *")]], 1));
    let minute = |at: u64| outcome.calls.iter().filter(|(t, ..)| (at..at + 60 * SECOND).contains(t)).count();
    assert!(minute(10 * SECOND) <= 15, "{}", minute(10 * SECOND));
    assert!(minute(65 * SECOND) <= 15, "{}", minute(65 * SECOND));
}

#[test]
fn a_dead_holder_is_taken_over_half_a_second_after_its_lease() {
    for seed in 0..20 {
        let mut plan = Plan::calm(seed, vec![vec![named("long", "30s")]], 2);
        plan.handlers.longest = 300 * SECOND;
        plan.faults = vec![(40 * SECOND, Fault::Kill(0)), (40 * SECOND, Fault::Kill(1))];
        // Who does not hold it dies as well, in half of the seeds: then the next process takes over when it is there.
        plan.faults.truncate(1 + usize::from(seed % 2 == 0));
        let outcome = played(&plan);
        let again = outcome.starts.iter().find(|(.., award, _)| award.attempt == 2);
        if let Some((at, ..)) = again {
            // The last renewal was at most a third of a lease before the death.
            assert!(*at <= (40 + 30) * SECOND + SECOND / 2 + 10_000, "seed {seed}: {at}");
            assert!(*at >= (40 + 20) * SECOND, "seed {seed}: {at}");
        }
    }
}

#[test]
fn after_a_downtime_the_newest_missed_occurrence_runs_once() {
    let mut plan = Plan::calm(3, vec![vec![named("often", "10s")]], 3);
    plan.handlers.longest = 1000;
    plan.faults = vec![(15 * SECOND, Fault::StoreDown(37 * SECOND))];
    let outcome = played(&plan);
    let late: Vec<_> = outcome.starts.iter().filter(|(.., catch_up)| *catch_up).collect();
    assert_eq!(late.len(), 1, "{:#?} {:?}", outcome.starts, outcome.reports);
    // It is back at 52 s; a call that hangs and the pause after it take less than 8 s together.
    assert!((52 * SECOND..60 * SECOND).contains(&late[0].0), "{late:?}");
}

#[test]
fn an_update_and_a_roll_back_hand_the_schedule_over_within_seconds() {
    for (by_kill, longest_gap) in [(false, 15), (true, 47)] {
        let versions = vec![vec![named("job", "5s")], vec![named("job", "3s")]];
        let mut plan = Plan::calm(5, versions, 3);
        plan.faulty = 200 * SECOND;
        plan.handlers.longest = 1000;
        plan.faults = vec![
            (20 * SECOND, Fault::Deploy(1, 5 * SECOND, by_kill)),
            (110 * SECOND, Fault::Deploy(0, 5 * SECOND, by_kill)),
        ];
        let outcome = played(&plan);
        let times: Vec<u64> = outcome.starts.iter().map(|(at, ..)| *at).collect();
        let gap = times.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
        assert!(gap <= longest_gap * SECOND, "by kill {by_kill}: {gap}");
        assert_eq!(outcome.counts.get("schedule taken over"), Some(&2), "{:?}", outcome.counts);
    }
}

#[test]
fn a_run_that_is_cut_short_by_a_shutdown_goes_on_elsewhere_within_a_second() {
    let mut seen = 0;
    for seed in 0..20 {
        let mut plan = Plan::calm(seed, vec![vec![named("long", "30s")]], 2);
        plan.handlers.longest = 1000 * SECOND;
        plan.faults = vec![(45 * SECOND, Fault::Shutdown(0))];
        let outcome = played(&plan);
        let again = outcome.starts.iter().find(|(.., award, _)| award.attempt == 2).map(|(at, ..)| *at);
        // 5 s of drain, at most 2 s until the handler is dropped; later ones are of the end of the simulation.
        if let Some(at) = again.filter(|at| *at < 60 * SECOND) {
            seen += 1;
            assert!(at <= (45 + 5 + 2 + 1) * SECOND + 200_000, "seed {seed}: {at}");
        }
    }
    assert!(seen > 3, "{seen}");
}
