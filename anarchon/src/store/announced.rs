//! What an instance announces, as a text in which a store can search.

use crate::protocol::{Contested, Fingerprint, JobName, Millis, Waiting};

/// A line for each schedule that is waited for, an empty line, and a line for each schedule. So each of the latter has a line break
/// before it and after it, and can be searched for as a whole.
pub(super) fn text(schedules: &[(JobName, Fingerprint)], contested: &[Contested]) -> String {
    let waiting = contested.iter().map(|Contested { own, .. }| {
        let Waiting { job, schedule, since } = own;
        format!("{job} {schedule} {}\n", since.0)
    });
    let schedules = schedules.iter().map(|(job, schedule)| format!("{job} {schedule}\n"));
    waiting.chain(["\n".to_owned()]).chain(schedules).collect()
}

/// What to search for: whether somebody has the schedule that is in force.
pub(super) fn needle(contested: &Contested) -> String {
    format!("\n{} {}\n", contested.own.job, contested.in_force)
}

/// Reads the lines before the empty one. What cannot be read says nothing: it costs its writer a part of the time that it waited.
pub(super) fn waiting(lines: &str) -> impl Iterator<Item = Waiting> {
    lines.lines().filter_map(|line| {
        let mut words = line.rsplitn(3, ' ');
        let since = Millis(words.next()?.parse().ok()?);
        let schedule = Fingerprint::parse(words.next()?)?;
        Some(Waiting { job: JobName::new(words.next()?).ok()?, schedule, since })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(job: &str, since: i64) -> Waiting {
        Waiting { job: JobName::new(job).unwrap(), schedule: Fingerprint(7), since: Millis(since) }
    }

    #[test]
    fn what_is_waited_for_stands_before_the_schedules_and_is_read_again() {
        let [a, b] = [own("a", 1_700_000_000_000), own("b.c", -5)];
        let contested = [&a, &b].map(|own| Contested { in_force: Fingerprint(8), own: own.clone() });
        let schedules = [&a, &b].map(|own| (own.job.clone(), own.schedule));
        let text = text(&schedules, &contested);
        let (head, rest) = text.split_once("\n\n").unwrap();
        assert_eq!(waiting(head).collect::<Vec<_>>(), [a, b]);
        assert_eq!(waiting(rest).count(), 0);
    }

    #[test]
    fn a_schedule_is_found_as_a_whole_line_and_not_where_it_is_waited_for() {
        let contested = |job, in_force| Contested { in_force: Fingerprint(in_force), own: own(job, 1) };
        let has = [(JobName::new("job").unwrap(), Fingerprint(7))];
        for waits in [vec![], vec![contested("job", 8), contested("j", 9)]] {
            let text = text(&has, &waits);
            let finds = |job, in_force| text.contains(&needle(&contested(job, in_force)));
            assert!(finds("job", 7), "{text:?}");
            assert!(!finds("job", 8) && !finds("j", 7) && !finds("ob", 7) && !finds("j", 9), "{text:?}");
        }
    }

    #[test]
    fn lines_of_others_are_passed_over() {
        assert_eq!(waiting("x\n\na b\na b 5\n a 7 1\njob 7 x").count(), 0);
        assert_eq!(waiting("").count(), 0);
    }
}
