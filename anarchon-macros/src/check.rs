//! Rules that need more than one item.

use std::collections::HashMap;

use proc_macro2::Ident;

use crate::diagnostics::Diagnostics;
use crate::model::{Jobs, Method, Name};

/// Takes the jobs of a method at fault out of the model.
pub(crate) fn check(jobs: &mut Jobs, errors: &mut Diagnostics) {
    if jobs.methods.is_empty() {
        errors.at(
            &jobs.self_type,
            "no method of this block has a schedule; put `#[every(…)]`, `#[cron(…)]` or `#[at(…)]` on one, or remove \
             `#[jobs]`",
        );
    }
    for method in &mut jobs.methods {
        if nameless(method, errors) {
            method.jobs.clear();
            method.names.clear();
        }
    }
    duplicates(jobs, errors);
}

/// One message a method, at the first schedule that needs a name.
fn nameless(method: &Method, errors: &mut Diagnostics) -> bool {
    let count = method.markers.len();
    if count < 2 {
        return false;
    }
    let is_nameless = |name: &Option<Name>| name.as_ref().is_some_and(|name| !name.is_given);
    let first = method.markers.iter().zip(&method.names).find(|(_, name)| is_nameless(name));
    if let Some((marker, _)) = first {
        let name = &method.name;
        let message = format!(
            "`{name}` has {count} schedules, and each is a job of its own; give each its `name = \"…\"`"
        );
        errors.at(marker, message);
    }
    first.is_some()
}

/// Methods under `cfg` are left out: two of them may share a name, one for each platform.
fn duplicates(jobs: &mut Jobs, errors: &mut Diagnostics) {
    let mut seen: HashMap<String, Ident> = HashMap::new();
    for method in jobs.methods.iter_mut().filter(|method| method.cfgs.is_empty()) {
        for Name { full, place, .. } in method.names.iter().flatten() {
            if let Some(first) = seen.get(full) {
                let message = format!(
                    "two jobs are named \"{full}\", the other one is on `{first}`; rename one: `name = \"…\"`"
                );
                errors.at(place, message);
                method.jobs.clear();
            } else {
                seen.insert(full.clone(), method.name.clone());
            }
        }
    }
}
