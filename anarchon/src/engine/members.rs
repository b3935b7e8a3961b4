//! Who of the known instances asks first.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::protocol::{InstanceId, JobName};

/// The place of `me` among the instances that may take the job over, from 0: a rendezvous hash, so that each job has
/// its own order and all instances agree on it. The holder of the lease that ended is not waited for.
pub(super) fn rank(job: &JobName, me: &InstanceId, holder: &InstanceId, instances: &[InstanceId]) -> u32 {
    let mine = weight(job, me);
    let before = instances.iter().filter(|i| *i != me && *i != holder && weight(job, i) > mine).count();
    u32::try_from(before).unwrap_or(u32::MAX)
}

/// The same in every build and on every machine.
fn weight<'a>(job: &JobName, instance: &'a InstanceId) -> (u64, &'a str) {
    let mut hash = SipHasher24::new();
    hash.write(job.as_str().as_bytes());
    hash.write(&[0]);
    hash.write(instance.as_str().as_bytes());
    (hash.finish(), instance.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> InstanceId {
        InstanceId::new(text).unwrap()
    }

    #[test]
    fn each_instance_has_a_place_of_its_own() {
        let all: Vec<InstanceId> = (0..5).map(|i| id(&format!("i{i}"))).collect();
        let job = JobName::new("sync").unwrap();
        let mut ranks: Vec<u32> = all.iter().map(|me| rank(&job, me, &id("gone"), &all)).collect();
        ranks.sort_unstable();
        assert_eq!(ranks, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn the_first_is_not_the_same_for_all_jobs() {
        let all: Vec<InstanceId> = (0..5).map(|i| id(&format!("i{i}"))).collect();
        let first = |n: u32| {
            let job = JobName::new(&format!("job-{n}")).unwrap();
            (0..5).find(|&i| rank(&job, &all[i], &id("gone"), &all) == 0)
        };
        let mut firsts: Vec<_> = (0..100).filter_map(first).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_dead_holder_is_not_waited_for() {
        let all = [id("a"), id("b")];
        let job = JobName::new("sync").unwrap();
        assert_eq!(rank(&job, &id("a"), &id("b"), &all), 0);
        assert_eq!(rank(&job, &id("b"), &id("a"), &all), 0);
    }

    #[test]
    fn an_instance_that_knows_nobody_is_first() {
        assert_eq!(rank(&JobName::new("sync").unwrap(), &id("a"), &id("b"), &[]), 0);
    }
}
