//! Makes the plan of a seed that broke something smaller, for as long as it still breaks the same.

use crate::{
    mutation::Mutation,
    plan::{Fault, Handlers, Net, Plan, SECOND},
    world::World,
};

/// How many plans are tried: some seconds.
const TRIES: usize = 3000;

/// The smallest plan found that breaks the invariant which `plan` breaks, and how it is told. None if it breaks nothing.
pub(crate) fn shrink(plan: &Plan, mutation: Option<Mutation>) -> Option<(Plan, String)> {
    let told = broken(plan, mutation)?;
    let name = invariant(&told).to_owned();
    let mut smallest = (plan.clone(), told);
    let mut tries = 0;
    while tries < TRIES {
        let smaller = candidates(&smallest.0).into_iter().find_map(|plan| {
            tries += 1;
            let told = broken(&plan, mutation).filter(|told| invariant(told) == name)?;
            Some((plan, told))
        });
        match smaller {
            Some(smaller) => smallest = smaller,
            None => break,
        }
    }
    Some(smallest)
}

fn broken(plan: &Plan, mutation: Option<Mutation>) -> Option<String> {
    World::new(plan.clone(), mutation, false).run().broken
}

/// The name that stands before what happened.
pub(crate) fn invariant(told: &str) -> &str {
    told.split(':').next().unwrap_or(told)
}

/// Plans that are a step smaller, the largest steps first.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Plan)| {
        let mut smaller = plan.clone();
        change(&mut smaller);
        all.push(smaller);
    };
    if plan.faults.len() > 2 {
        let half = plan.faults.len() / 2;
        add(&|plan| plan.faults.truncate(half));
        add(&|plan| drop(plan.faults.drain(..half)));
    }
    if plan.instances > 1 {
        add(&|plan| with_instances(plan, plan.instances.div_ceil(2)));
        add(&|plan| with_instances(plan, plan.instances - 1));
    }
    let jobs = plan.versions[0].len();
    for gone in (0..jobs).filter(|_| jobs > 1) {
        add(&|plan| without_job(plan, gone));
    }
    for at in 0..plan.faults.len() {
        add(&|plan| {
            plan.faults.remove(at);
        });
    }
    let last = plan.faults.last().map_or(0, |(at, _)| *at);
    if last + 2 * SECOND < plan.faulty {
        add(&|plan| plan.faulty = last + SECOND);
    }
    if plan.concurrency.is_some() {
        add(&|plan| plan.concurrency = None);
    }
    let chances: [fn(&mut Net) -> &mut f64; 5] = [
        |net| &mut net.lost_request,
        |net| &mut net.lost_reply,
        |net| &mut net.duplicate,
        |net| &mut net.delayed,
        |net| &mut net.bad_item,
    ];
    for chance in chances.into_iter().filter(|chance| *chance(&mut plan.net.clone()) > 0.0) {
        add(&|plan| *chance(&mut plan.net) = 0.0);
    }
    let chances: [fn(&mut Handlers) -> &mut f64; 4] = [
        |handlers| &mut handlers.error,
        |handlers| &mut handlers.blocks,
        |handlers| &mut handlers.ignores_cancel,
        |handlers| &mut handlers.kills,
    ];
    for chance in chances.into_iter().filter(|chance| *chance(&mut plan.handlers.clone()) > 0.0) {
        add(&|plan| *chance(&mut plan.handlers) = 0.0);
    }
    all
}

fn with_instances(plan: &mut Plan, instances: usize) {
    plan.instances = instances;
    plan.faults.retain(|(_, fault)| match fault {
        Fault::Kill(i) | Fault::Freeze(i, _) | Fault::CutOff(i, _) | Fault::Shutdown(i) => *i < instances,
        _ => true,
    });
}

fn without_job(plan: &mut Plan, gone: usize) {
    for version in &mut plan.versions {
        version.remove(gone);
    }
    plan.faults.retain_mut(|(_, fault)| match fault {
        Fault::Trigger(j) | Fault::Pause(j) | Fault::Resume(j) | Fault::Cancel(j) | Fault::Forget(j) => {
            let stays = *j != gone;
            *j -= usize::from(*j > gone);
            stays
        }
        _ => true,
    });
}
