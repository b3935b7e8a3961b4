//! Many engines on the pure protocol in virtual time, with seeded faults; the invariants of the protocol are judged
//! after each step.
//!
//! `ANARCHON_SEEDS=20000` plays more seeds, `ANARCHON_SEED=17` one of them and prints what happened.

#[path = "simulation/judge.rs"]
mod judge;
#[path = "simulation/plan.rs"]
mod plan;
#[path = "simulation/store.rs"]
mod store;
#[path = "simulation/world.rs"]
mod world;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use plan::Plan;
use world::{Outcome, World};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn play(plan: Plan) -> Outcome {
    World::new(plan, None, false).run()
}

/// Plays a broken seed again with its history.
fn explain(plan: Plan, mutation: Option<store::Mutation>) -> String {
    let seed = plan.seed;
    let outcome = World::new(plan.clone(), mutation, true).run();
    let mut text = format!("{plan:#?}\n");
    let from = outcome.history.len().saturating_sub(400);
    for line in &outcome.history[from..] {
        text.push_str(line);
        text.push('\n');
    }
    let broken = outcome.broken.unwrap_or_else(|| "nothing this time".to_owned());
    format!("{text}seed {seed} broke {broken}\nreplay: ANARCHON_SEED={seed} cargo test -p anarchon-tests --test simulation seeds")
}

#[test]
fn seeds() {
    if let Some(seed) = number("ANARCHON_SEED") {
        let text = explain(Plan::of(seed), None);
        assert!(text.contains("broke nothing"), "{text}");
        return;
    }
    let from = number("ANARCHON_FROM").unwrap_or(0);
    let to = from + number("ANARCHON_SEEDS").unwrap_or(3000);
    let next = AtomicU64::new(from);
    let broken = Mutex::new(BTreeMap::new());
    let counts = Mutex::new(BTreeMap::<&str, u64>::new());
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to || broken.lock().unwrap().len() >= 20 {
                        break;
                    }
                    let outcome = play(Plan::of(seed));
                    if let Some(what) = outcome.broken {
                        broken.lock().unwrap().insert(seed, what);
                    }
                    let mut counts = counts.lock().unwrap();
                    for (what, n) in outcome.counts {
                        *counts.entry(what).or_default() += n;
                    }
                }
            });
        }
    });
    println!("{} seeds: {:#?}", to - from, counts.lock().unwrap());
    let broken = broken.into_inner().unwrap();
    if let Some((&seed, _)) = broken.first_key_value() {
        let list: Vec<String> = broken.iter().map(|(s, w)| format!("{s}: {:.300}", w)).collect();
        panic!("{}\n{}", explain(Plan::of(seed), None), list.join("\n"));
    }
}
