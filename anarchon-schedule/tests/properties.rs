//! What holds for every schedule in every zone, and a slow model of Debian's cron that knows nothing of our code.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anarchon_schedule::{At, Cron, Every, Schedule, Spec, Tz, Zones};
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike, Utc};

const SPECS: [&str; 6] = [
    "30 2 * * *",
    "*/20 * * * 1-5",
    "0 0-3 L,15W * 5#2",
    "45 23,0,1 1,15 * *",
    "0 */3 29 2 *",
    "* 2 * 3,10 0L",
];

/// The zones that are odd in some way: half hours, two hours, midnight, a whole day, Ramadan.
const ODD_ZONES: [Tz; 13] = [
    Tz::UTC,
    Tz::Europe__Athens,
    Tz::America__New_York,
    Tz::Australia__Lord_Howe,
    Tz::Antarctica__Troll,
    Tz::Antarctica__Casey,
    Tz::Africa__Cairo,
    Tz::Africa__Casablanca,
    Tz::Asia__Beirut,
    Tz::Asia__Gaza,
    Tz::America__Scoresbysund,
    Tz::Pacific__Apia,
    Tz::Pacific__Chatham,
];

#[test]
fn next_and_latest_agree_in_every_zone_and_every_hour_of_2024_to_2029() {
    let hours = utc(2024, 1, 1).timestamp() / 3_600..utc(2030, 1, 1).timestamp() / 3_600;
    in_every_zone(|zone| {
        for expr in SPECS {
            let schedule = cron(expr, zone);
            sweep(&schedule, hours.clone().filter_map(|hour| DateTime::from_timestamp(hour * 3_600, 0)));
        }
    });
}

#[test]
fn the_zone_table_tells_what_chrono_tz_tells_in_every_hour_of_2024_to_2029_and_every_day_since_1900() {
    let recent = (utc(2024, 1, 1).timestamp()..utc(2030, 1, 1).timestamp()).step_by(3_600);
    let all = (utc(1900, 1, 1).timestamp()..utc(2100, 1, 1).timestamp()).step_by(86_400);
    in_every_zone(|zone| {
        let schedule = cron("0 0 * * *", zone);
        for t in recent.clone().chain(all.clone()).filter_map(|t| DateTime::from_timestamp(t, 0)) {
            let theirs = zone.offset_from_utc_datetime(&t.naive_utc()).fix();
            assert_eq!(*schedule.local(t).offset(), theirs, "{zone} at {t}");
        }
    });
}

#[test]
fn intervals_and_instants_keep_the_same_promises() {
    let hours = || (0..52_608).map(|hour| utc(2024, 1, 1) + TimeDelta::hours(hour));
    for (interval, offset) in
        [("100ms", "0s"), ("7s", "3s"), ("1h30m", "17m"), ("1d", "2h"), ("1w", "6d"), ("900d", "899d")]
    {
        sweep(&Spec::from(Every::new(interval).offset(offset)).check().unwrap(), hours());
    }
    let at = At::new("2025-01-01T00:00")
        .and("2025-07-01T12:30:00.250Z")
        .and("2024-02-29T00:00")
        .tz(Tz::Asia__Kathmandu);
    sweep(&Spec::from(at).check().unwrap(), hours());
}

#[test]
fn a_slow_model_of_debians_cron_finds_the_same_runs() {
    let exprs = [
        "* * * * *",
        "*/7 1-4 * * *",
        "30 2 * * *",
        "0,30 0-3 * * *",
        "*/30 0-5 * * *",
        "15 * * * *",
        "5 */2 * * *",
        "10 2,3 * * 0",
        "0 0 L * *",
        "59 23 LW * *",
        "0 12 15W * *",
        "1 1 1W,31W * *",
        "0 3 * * 0L",
        "30 1 * * 5#1,7#5",
        "0 0 13 * 5",
        "0 0 */13 * 5",
        "0 2 1-7 * */7",
        "0 4 L-3 * *",
        "20 2 29 2 *",
        "0 0-23/5 L,1 3,10 1",
        "30/10 2 * mar,OCT sun",
        "* 2 * * *",
        "0 0-23 * * *",
        "*/60 3 * * *",
    ];
    // A year of usual changes, Casey's three hours forward and back, and Apia's lost day of December 2011.
    let times = [
        (utc(2024, 1, 1), utc(2025, 1, 1)),
        (utc(2020, 9, 1), utc(2021, 4, 1)),
        (utc(2011, 9, 1), utc(2012, 4, 10)),
    ];
    let pairs: Vec<_> =
        ODD_ZONES.iter().flat_map(|zone| times.map(|(from, until)| (*zone, from, until))).collect();
    spread(&pairs, |(zone, from, until)| {
        let local = model::local_minutes(*zone, *from, *until);
        for expr in exprs {
            let expected = model::runs(expr, &local, *from);
            let schedule = cron(expr, *zone);
            let found = std::iter::successors(schedule.next_after(*from), |t| schedule.next_after(*t));
            let found: Vec<_> = found.take_while(|t| t <= until).collect();
            let first_wrong = expected.iter().zip(&found).find(|(a, b)| a != b);
            assert_eq!(
                expected.len(),
                found.len(),
                "{expr} in {zone} from {from}: first difference {first_wrong:?}"
            );
            assert_eq!(first_wrong, None, "{expr} in {zone} from {from}");
        }
    });
}

#[test]
fn fields_of_seconds_step_through_a_minute() {
    let schedule = cron("10-20/5,59 30 2 * * *", Tz::Europe__Athens);
    let times: Vec<_> =
        std::iter::successors(schedule.next_after(utc(2024, 6, 1)), |t| schedule.next_after(*t))
            .take(5)
            .map(|t| t.format("%dT%H:%M:%S").to_string())
            .collect();
    assert_eq!(times, ["01T23:30:10", "01T23:30:15", "01T23:30:20", "01T23:30:59", "02T23:30:10"]);
}

#[test]
fn seconds_in_a_gap_are_one_run_and_in_a_repeated_hour_one_minute() {
    let schedule = cron("* 30 2 * * *", Tz::America__New_York);
    let gap = schedule.next_after("2026-03-08T00:00:00Z".parse().unwrap()).unwrap();
    assert_eq!(gap.to_rfc3339(), "2026-03-08T07:00:00+00:00");
    assert_eq!(schedule.next_after(gap).unwrap().to_rfc3339(), "2026-03-09T06:30:00+00:00");
    let schedule = cron("* 30 1 * * *", Tz::America__New_York);
    let all = std::iter::successors(schedule.next_after("2026-11-01T00:00:00Z".parse().unwrap()), |t| {
        schedule.next_after(*t)
    });
    assert_eq!(all.take_while(|t| *t < "2026-11-02T00:00:00Z".parse::<DateTime<Utc>>().unwrap()).count(), 60);
}

#[test]
fn extreme_instants_neither_panic_nor_hang() {
    let specs = [
        Spec::from(Every::new("100ms")),
        Spec::from(Every::new("365000d").offset("1ms")),
        Spec::from(At::new("2027-01-01T00:00").tz("Asia/Tokyo")),
        Spec::from(At::new("0001-01-01T00:00:00Z").and("9999-12-31T23:59:59Z")),
        Spec::from(Cron::new("* * * * * *").tz("Asia/Tokyo")),
        Spec::from(Cron::new("0 0 29 2 *").tz("America/New_York")),
        Spec::from(Cron::new("0 0 29 2 */7").tz("America/New_York")),
        Spec::from(Cron::new("0 0 0 1 1 ? 1990").dialect("quartz")),
        Spec::from(Cron::new("0 0 0 1 1 ? 2100").dialect("quartz").tz("Asia/Tokyo")),
    ];
    let step = TimeDelta::nanoseconds(1);
    for schedule in specs.map(|spec| spec.check().unwrap()) {
        for edge in [
            DateTime::<Utc>::MIN_UTC,
            DateTime::<Utc>::MAX_UTC,
            DateTime::UNIX_EPOCH,
            utc(-9_999, 3, 1),
            utc(99_999, 3, 1),
        ] {
            let near = [
                edge.checked_sub_signed(TimeDelta::days(1)),
                edge.checked_sub_signed(step),
                Some(edge),
                edge.checked_add_signed(step),
            ];
            for t in near.into_iter().flatten() {
                assert!(schedule.next_after(t).is_none_or(|next| next > t), "{schedule} after {t}");
                assert!(
                    schedule.latest_at_or_before(t).is_none_or(|latest| latest <= t),
                    "{schedule} before {t}"
                );
                let _ = format!("{:?}", schedule.local(t));
            }
        }
    }
}

#[test]
fn a_year_that_is_over_has_no_next_and_its_last_run_is_still_found() {
    let schedule =
        Spec::from(Cron::new("0 0 12 ? * MON-FRI 2015-2016,2020").dialect("quartz")).check().unwrap();
    assert_eq!(schedule.next_after(utc(2021, 1, 1)), None);
    assert_eq!(schedule.next_after(utc(2016, 12, 31)), Some(utc(2020, 1, 1) + TimeDelta::hours(12)));
    assert_eq!(schedule.latest_at_or_before(utc(2026, 1, 1)), Some(utc(2020, 12, 31) + TimeDelta::hours(12)));
    assert_eq!(schedule.latest_at_or_before(utc(2018, 1, 1)), Some(utc(2016, 12, 30) + TimeDelta::hours(12)));
    assert_eq!(schedule.latest_at_or_before(utc(2014, 1, 1)), None);
}

/// Walks through ascending instants: next is later and never goes back, and latest is its inverse.
fn sweep(schedule: &Schedule, instants: impl Iterator<Item = DateTime<Utc>>) {
    let mut before: Option<Option<DateTime<Utc>>> = None;
    for t in instants {
        let next = schedule.next_after(t);
        let latest = schedule.latest_at_or_before(t);
        assert!(next.is_none_or(|next| next > t), "{schedule} after {t}");
        assert!(latest.is_none_or(|latest| latest <= t), "{schedule} before {t}");
        if let Some(before) = before {
            match before {
                Some(due) if due > t => assert_eq!(next, before, "{schedule} loses {due} at {t}"),
                Some(due) => {
                    assert!(latest.is_some_and(|latest| latest >= due), "{schedule} forgets {due} at {t}")
                }
                None => assert_eq!(next, None, "{schedule} begins again after {t}"),
            }
        }
        if before != Some(next) {
            // Once per occurrence is enough; between two of them nothing changes.
            if let Some(next) = next {
                assert_eq!(schedule.latest_at_or_before(next), Some(next), "{schedule}");
                let just_before = next - TimeDelta::nanoseconds(1);
                assert_eq!(schedule.next_after(just_before), Some(next), "{schedule}");
                assert_eq!(schedule.latest_at_or_before(just_before), latest, "{schedule} before {next}");
            }
            if let Some(latest) = latest {
                assert_eq!(schedule.next_after(latest), next, "{schedule} after {latest}");
            }
        }
        before = Some(next);
    }
}

fn in_every_zone(check: impl Fn(Tz) + Sync) {
    spread(&chrono_tz_zones(), |zone| check(*zone));
}

fn chrono_tz_zones() -> Vec<Tz> {
    let zones = chrono_tz::TZ_VARIANTS.to_vec();
    assert!(zones.len() > 590);
    zones
}

fn spread<T: Sync>(items: &[T], check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(item);
                }
            });
        }
    });
}

fn cron(expr: &str, zone: Tz) -> Schedule {
    Spec::from(Cron::new(expr).tz(zone)).resolve(&Zones::embedded()).unwrap().0
}

fn utc(year: i32, month: u32, day: u32) -> DateTime<Utc> {
    NaiveDate::from_ymd_opt(year, month, day).unwrap().and_hms_opt(0, 0, 0).unwrap().and_utc()
}

/// Debian's `cron.c` in slow motion: wake each minute, compare local time with the latest local minute served, and
/// match each field of the text anew.
mod model {
    use super::*;

    /// What the clock on the wall says at `from` and each minute after it.
    pub(crate) fn local_minutes(zone: Tz, from: DateTime<Utc>, until: DateTime<Utc>) -> Vec<NaiveDateTime> {
        let minutes = 0..=(until - from).num_minutes();
        minutes
            .map(|n| zone.from_utc_datetime(&(from + TimeDelta::minutes(n)).naive_utc()).naive_local())
            .collect()
    }

    pub(crate) fn runs(expr: &str, local: &[NaiveDateTime], from: DateTime<Utc>) -> Vec<DateTime<Utc>> {
        let job = Job::new(expr);
        let wild = expr.split(' ').take(2).any(|field| field.starts_with('*'));
        let mut runs = Vec::new();
        let mut day = None;
        let mut served = local[0];
        for (n, now) in (0..).zip(local).skip(1) {
            let jump = (*now - served).num_minutes();
            let due = match jump {
                _ if wild => job.fits(*now, &mut day),
                2..=180 => (1..=jump).any(|minute| job.fits(served + TimeDelta::minutes(minute), &mut day)),
                -179..=0 => false,
                _ => job.fits(*now, &mut day),
            };
            if !(-179..=0).contains(&jump) {
                served = *now;
            }
            if due {
                runs.push(from + TimeDelta::minutes(n));
            }
        }
        runs
    }

    struct Job {
        minutes: [bool; 60],
        hours: [bool; 24],
        expr: Vec<String>,
    }

    impl Job {
        fn new(expr: &str) -> Self {
            let expr: Vec<_> = expr.to_lowercase().split(' ').map(str::to_owned).collect();
            let minutes = std::array::from_fn(|n| plain(&expr[0], n as u32, 59, &[]));
            let hours = std::array::from_fn(|n| plain(&expr[1], n as u32, 23, &[]));
            Self { minutes, hours, expr }
        }

        fn fits(&self, t: NaiveDateTime, day: &mut Option<(NaiveDate, bool)>) -> bool {
            if !self.minutes[t.minute() as usize] || !self.hours[t.hour() as usize] {
                return false;
            }
            match day {
                Some((day, fits)) if *day == t.date() => *fits,
                _ => {
                    let fits = self.fits_day(t.date());
                    *day = Some((t.date(), fits));
                    fits
                }
            }
        }

        fn fits_day(&self, day: NaiveDate) -> bool {
            let [_, _, dom, month, dow] = self.expr.as_slice() else { panic!("five fields") };
            let names = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
            if !plain(
                month,
                day.month(),
                12,
                &names.map(|name| (name, 1 + names.iter().position(|n| *n == name).unwrap() as u32)),
            ) {
                return false;
            }
            let of_month = dom.split(',').any(|item| month_day(item, day));
            let of_week = dow.split(',').any(|item| week_day(item, day));
            if dom.starts_with('*') || dow.starts_with('*') {
                of_month && of_week
            } else {
                of_month || of_week
            }
        }
    }

    fn month_day(item: &str, day: NaiveDate) -> bool {
        let month_days: Vec<_> = (1..=31).filter_map(|n| day.with_day(n)).collect();
        let last = *month_days.last().unwrap();
        let working = |day: &NaiveDate| day.weekday().number_from_monday() <= 5;
        if item == "l" {
            day == last
        } else if item == "lw" {
            Some(&day) == month_days.iter().rev().find(|day| working(day))
        } else if let Some(before) = item.strip_prefix("l-") {
            (last - day).num_days() == before.parse::<i64>().unwrap()
        } else if let Some(wanted) = item.strip_suffix('w') {
            let Some(wanted) = day.with_day(wanted.parse().unwrap()) else { return false };
            Some(&day)
                == month_days
                    .iter()
                    .filter(|day| working(day))
                    .min_by_key(|day| (**day - wanted).num_days().abs())
        } else {
            plain(item, day.day(), 31, &[])
        }
    }

    fn week_day(item: &str, day: NaiveDate) -> bool {
        let names = [("sun", 0), ("mon", 1), ("tue", 2), ("wed", 3), ("thu", 4), ("fri", 5), ("sat", 6)];
        let today = day.weekday().num_days_from_sunday();
        let is = |text: &str| plain(text, today, 7, &names) || today == 0 && plain(text, 7, 7, &names);
        if let Some((weekday, n)) = item.split_once('#') {
            is(weekday) && (day.day() - 1) / 7 + 1 == n.parse::<u32>().unwrap()
        } else if let Some(weekday) = item.strip_suffix('l') {
            is(weekday) && (day + TimeDelta::days(7)).month() != day.month()
        } else {
            is(item)
        }
    }

    /// Whether a number is in a list of plain items.
    fn plain(field: &str, number: u32, high: u32, names: &[(&str, u32)]) -> bool {
        let value = |text: &str| {
            names
                .iter()
                .find(|(name, _)| *name == text)
                .map_or_else(|| text.parse().unwrap(), |(_, value)| *value)
        };
        field.split(',').any(|item| {
            let (range, step) = item
                .split_once('/')
                .map_or((item, None), |(range, step)| (range, Some(step.parse::<u32>().unwrap())));
            let low = if high == 31 || high == 12 { 1 } else { 0 };
            let (from, to) = match range.split_once('-') {
                _ if range == "*" => (low, high),
                Some((from, to)) => (value(from), value(to)),
                None if step.is_some() => (value(range), high),
                None => (value(range), value(range)),
            };
            (from..=to).contains(&number) && (number - from).is_multiple_of(step.unwrap_or(1))
        })
    }
}
