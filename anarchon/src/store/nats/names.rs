//! How names become those of buckets and keys.

use crate::protocol::{InstanceId, JobName, Namespace};

/// The key of the beats that tell the server's time; its value is read by nobody.
pub const CLOCK: &str = "clock";

/// The bucket of a namespace. Names of buckets have no dots: one is written `_d`, and `_` is written `__`.
pub fn bucket(namespace: &Namespace) -> String {
    let mut name = String::from("anarchon_");
    for c in namespace.as_str().chars() {
        match c {
            '_' => name.push_str("__"),
            '.' => name.push_str("_d"),
            c => name.push(c),
        }
    }
    name
}

/// The key of a job, behind the bucket's. A dot parts subjects, so one in a name is written `=`, which no name has.
pub fn of_job(job: &JobName) -> String {
    format!("job.{}", job.as_str().replace('.', "="))
}

/// The key of an instance's announcement.
pub fn of_member(instance: &InstanceId) -> String {
    format!("beat.{}", instance.as_str().replace('.', "="))
}

/// The job of a key, if it is one of a job.
pub fn job(key: &str) -> Option<JobName> {
    JobName::new(&decoded(key.strip_prefix("job.")?)?).ok()
}

/// The instance of a key, if it is an announcement.
pub fn member(key: &str) -> Option<InstanceId> {
    InstanceId::new(&decoded(key.strip_prefix("beat.")?)?).ok()
}

fn decoded(name: &str) -> Option<String> {
    (!name.contains('.')).then(|| name.replace('=', "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_keys_and_come_back() {
        for text in ["job", "a.b", ".", "..", "job.", "-_=".replace('=', ".").as_str()] {
            let name = JobName::new(text).unwrap();
            assert_eq!(job(&of_job(&name)), Some(name.clone()), "{text}");
            let id = InstanceId::new(text).unwrap();
            assert_eq!(member(&of_member(&id)), Some(id), "{text}");
        }
        assert_eq!((job("beat.a"), member("job.a"), job("job.a.b")), (None, None, None));
    }

    #[test]
    fn no_two_namespaces_share_a_bucket() {
        let texts = ["a.b", "a_b", "a_db", "a_.b", "a._b", "a__b", "a_d", "a.", "a-b", "A.b"];
        let mut buckets: Vec<_> = texts.map(|text| bucket(&Namespace::new(text).unwrap())).into();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        assert!(buckets.iter().all(|bucket| bucket.chars().all(allowed)), "{buckets:?}");
        buckets.sort();
        buckets.dedup();
        assert_eq!(buckets.len(), texts.len());
        // A stream's name may have 255 bytes.
        assert!(bucket(&Namespace::new(&"_".repeat(100)).unwrap()).len() + "KV_".len() <= 255);
    }
}
