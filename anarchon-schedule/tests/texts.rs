//! What schedules say: messages about mistakes, explanations, the canonical text.

use std::time::Duration;

use anarchon_schedule::{At, Cron, Every, QuartzSchedule, Spec, Tz, Where, Zones, parse_duration};
use chrono::{DateTime, Utc};

fn message(spec: impl Into<Spec>) -> String {
    let errors = spec.into().check().expect_err("is accepted");
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn words(spec: impl Into<Spec>) -> String {
    spec.into().check().expect("is refused").to_string()
}

fn canonical(spec: impl Into<Spec>) -> String {
    spec.into().check().expect("is refused").canonical()
}

#[test]
fn a_mistake_in_a_cron_expression_is_named_with_its_mend() {
    for (expr, expected) in [
        ("60 8 * * *", r#"minute "60" is out of range 0–59 in "60 8 * * *"; write 0 to 59"#),
        ("0 0 0 * *", r#"day of month "0" is out of range 1–31 in "0 0 0 * *"; write 1 to 31"#),
        ("*/0 * * * *", r#"minute step "0" is zero in "*/0 * * * *"; write a step of 1 or more"#),
        ("", r#"the cron expression is empty; write 5 fields such as "0 8 * * 1-5""#),
        ("1,,2 * * * *", r#"minute "" is empty in "1,,2 * * * *"; remove the comma, or write a value"#),
        ("@every 5m", r#""@every 5m" is no cron schedule; use an interval instead: every("5m")"#),
        (
            "@reboot",
            r#""@reboot" is no cron schedule; a job that runs once across all instances has no reboot; call the function when the program starts"#,
        ),
        ("@dayly", r#""@dayly" is no cron schedule; did you mean "@daily""#),
        (
            "0 8 * * 1-5 Europe/Athens",
            r#"zone "Europe/Athens" stands in cron expression "0 8 * * 1-5 Europe/Athens"; write "0 8 * * 1-5" and set tz = "Europe/Athens""#,
        ),
        (
            "CRON_TZ=Europe/Athens 0 8 * * *",
            r#"zone "CRON_TZ=Europe/Athens" stands in cron expression "CRON_TZ=Europe/Athens 0 8 * * *"; write "0 8 * * *" and set tz = "Europe/Athens""#,
        ),
        (
            "0 0 30 2 *",
            r#"the date in cron expression "0 0 30 2 *" never comes; write a day that one of the months has"#,
        ),
        (
            "0 0 8 * * 1-5 2027",
            r#"cron expression "0 0 8 * * 1-5 2027" has 7 fields, not 5 or 6; leave the year out, or set dialect = "quartz" if that is how it is meant"#,
        ),
        ("5-1 * * * *", r#"minute "5-1" is a reversed range in "5-1 * * * *"; write 5-59,0-1"#),
        (
            "0 0 * * fri-sun",
            r#"day of week "fri-sun" is a reversed range in "0 0 * * fri-sun"; Sunday at the end is 7: write 5-7"#,
        ),
        ("0 0 * * sat-mon", r#"day of week "sat-mon" is a reversed range in "0 0 * * sat-mon"; write 6,0-1"#),
        ("0 0 * * monday", r#"day of week "monday" is no name in "0 0 * * monday"; did you mean "MON""#),
        (
            "0 0 ? * 1",
            r#"day of month "?" is for quartz in "0 0 ? * 1"; write "*", or set dialect = "quartz""#,
        ),
        (
            "0 0 * * L",
            r#"day of week "L" names no day in "0 0 * * L"; write the day before L, such as 5L for the last Friday"#,
        ),
        (
            "0 0 1-15W * *",
            r#"day of month "1-15W" is no single day in "0 0 1-15W * *"; write one day before W, such as 15W"#,
        ),
        (
            "0 0 * * 5#6",
            r##"week "6" is out of range 1–5 in "0 0 * * 5#6"; write #1 to #5, or L for the last, such as 5L"##,
        ),
        (
            "*5 * * * *",
            r#"minute "*5" mixes * with something else in "*5 * * * *"; write "*", or "*/n" for every n-th"#,
        ),
    ] {
        assert_eq!(message(Cron::new(expr)), expected);
    }
}

#[test]
fn all_mistakes_are_told_at_once_each_with_its_bytes() {
    let errors = Spec::from(Cron::new("60 8 * 13 *").tz("Europe/Athen")).check().unwrap_err();
    let places: Vec<_> = errors.iter().map(|error| (error.option(), error.range())).collect();
    assert_eq!(places, [(Where::Schedule, 0..2), (Where::Schedule, 7..9), (Where::Tz, 0..12)]);
    let errors =
        Spec::from(At::new("2027-01-01T00:00Z").and("2027-13-01T00:00Z").and("x")).check().unwrap_err();
    let places: Vec<_> = errors.iter().map(|error| (error.index(), error.range())).collect();
    assert_eq!(places, [(1, 0..10), (2, 0..1)]);
}

#[test]
fn dates_that_never_come_are_refused_and_rare_ones_are_not() {
    for expr in
        ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 4,6,9,11 *", "0 0 L-30 2 *", "0 0 31W 6 *", "0 0 30,31 2 */2"]
    {
        assert!(message(Cron::new(expr)).contains("never comes"), "{expr}");
    }
    for expr in ["0 0 0 30 2 ?", "0 0 0 29 2 ? 2025", "0 0 0 29 2 SUN 2024,2028"] {
        assert!(message(Cron::new(expr).dialect("quartz")).contains("never comes"), "{expr}");
    }
    for expr in ["0 0 29 2 *", "0 0 29 2 */7", "0 0 30 2 1", "0 0 31 4 5#5", "0 0 L-28 2 *", "0 0 * 2 0#5"] {
        words(Cron::new(expr));
    }
}

#[test]
fn a_zone_or_dialect_that_is_not_known_is_answered_with_the_nearest() {
    let zone = |name: &str| message(Cron::new("0 8 * * *").tz(name));
    assert_eq!(zone("Europe/Athen"), r#"unknown time zone "Europe/Athen"; did you mean "Europe/Athens""#);
    assert_eq!(zone("New York"), r#"unknown time zone "New York"; did you mean "America/New_York""#);
    assert_eq!(
        zone("Mars/Base"),
        r#"unknown time zone "Mars/Base"; write an IANA name such as "Europe/Athens" or "UTC""#
    );
    let dialect = |name: &str| message(Cron::new("0 8 * * *").dialect(name));
    assert_eq!(dialect("quarz"), r#"unknown cron dialect "quarz"; did you mean "quartz""#);
}

#[test]
fn quartz_texts_keep_their_meaning_and_their_parsers_message() {
    assert_eq!(
        words(Cron::new("0 0 8 ? * 2-6").dialect("quartz").tz(Tz::Europe__Athens)),
        "at 08:00, Monday to Friday, Europe/Athens"
    );
    let parsed: QuartzSchedule = "0 0 8 ? * MON-FRI".parse().unwrap();
    assert_eq!(canonical(Cron::from(parsed)), canonical(Cron::new("0 8 * * 1-5")));
    assert_eq!(
        words(Cron::new("0 0 0 13 * 6 2026-2028").dialect("quartz")),
        "at 00:00, on the 13th if that is Friday, in 2026 to 2028, UTC"
    );
    assert_eq!(
        message(Cron::new("0 8 * * *").dialect("quartz")),
        r#"quartz expression "0 8 * * *" has 5 fields, not 6 or 7; put the seconds in front, or remove dialect = "quartz""#
    );
    assert!(message(Cron::new("61 0 0 * * *").dialect("quartz")).contains("Seconds must be less than 59"));
}

#[test]
fn a_mistake_in_a_duration_is_named_with_its_mend() {
    for (text, expected) in [
        ("10", r#"duration "10" has no unit; write "10s" for seconds, or use ms, m, h, d, w"#),
        ("0s", r#"interval "0s" is zero; write "100ms" or longer"#),
        ("50ms", r#"interval "50ms" is shorter than 100ms; write "100ms" or longer"#),
        ("1h 30m", r#"unknown unit "h " in duration "1h 30m"; write "1h30m""#),
        (
            "30m1h",
            r#"unit "h" stands after "m" in duration "30m1h"; put the larger unit first, as in "1h30m""#,
        ),
        ("5min", r#"unknown unit "min" in duration "5min"; write "5m""#),
        ("-5s", r#""-" cannot stand here in duration "-5s"; write it without a sign"#),
        ("18446744073709551616s", r#"duration "18446744073709551616s" is too long; write a shorter one"#),
        ("99999w", r#"interval "99999w" is longer than 1000 years; write a shorter one"#),
    ] {
        assert_eq!(message(Every::new(text)), expected);
    }
    let late = Spec::from(Every::new("10s").offset("10s")).check().unwrap_err();
    assert_eq!(late[0].option(), Where::Offset);
    assert_eq!(
        late[0].to_string(),
        r#"offset "10s" is not less than the interval "10s"; write an offset from 0 to just under "10s""#
    );
    assert!(message(Every::new(Duration::from_micros(100_500))).contains("whole number of milliseconds"));
}

#[test]
fn durations_add_up() {
    for (text, millis) in [
        ("250ms", 250),
        ("10s", 10_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("1d", 86_400_000),
        ("1w2d3h4m5s6ms", 788_645_006),
        ("0s", 0),
    ] {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)));
    }
}

#[test]
fn a_mistake_in_an_instant_is_named_with_its_mend() {
    for (text, expected) in [
        (
            "2027-01-01T00:00",
            r#"local time "2027-01-01T00:00" has no zone; set tz, or add the offset, as in "2027-01-01T00:00Z" for UTC"#,
        ),
        ("2027-01-01", r#""2027-01-01" has no time; write "2027-01-01T00:00""#),
        (
            "2027-02-29T00:00Z",
            r#""2027-02-29" is no date in "2027-02-29T00:00Z"; write a day that the month has"#,
        ),
        (
            "2027-01-01T24:00Z",
            r#""24:00" is no time of day in "2027-01-01T24:00Z"; write 00:00 to 23:59, seconds up to 59"#,
        ),
        (
            "2027-01-01T00:00+25:00",
            r#""+25:00" is no offset in "2027-01-01T00:00+25:00"; write Z, or hours and minutes such as +02:00"#,
        ),
    ] {
        assert_eq!(message(At::new(text)), expected);
    }
    let athens = |text: &str| message(At::new(text).tz("Europe/Athens"));
    assert_eq!(
        athens("2027-03-28T03:30"),
        r#"local time "2027-03-28T03:30" does not exist in Europe/Athens; the clocks go forward then; the first time after is "2027-03-28T04:00:00+03:00""#
    );
    assert_eq!(
        athens("2027-10-31T03:30"),
        r#"local time "2027-10-31T03:30" comes twice in Europe/Athens; write which: "2027-10-31T03:30:00+03:00" or "2027-10-31T03:30:00+02:00""#
    );
}

#[test]
fn a_schedule_explains_itself() {
    for (expr, expected) in [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("*/25 * * * *", "at minutes 0, 25 and 50"),
        ("30 * * * *", "every hour at minute 30"),
        ("0 * * * *", "every hour"),
        ("0 8 * * 1-5", "at 08:00, Monday to Friday"),
        ("0 8,12,18 * * *", "at 08:00, 12:00 and 18:00"),
        ("*/15 9-17 * * MON-FRI", "every 15 minutes from 09:00 to 17:59, Monday to Friday"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("15 */2 * * *", "every 2 hours from 00:15"),
        ("7 1,2,3,5,8,9,10 * * *", "hourly at 01:07 to 03:07, 05:07 and 08:07 to 10:07"),
        ("0 0 1,15 * *", "at 00:00, on the 1st and 15th"),
        ("0 0 13 * 5", "at 00:00, on the 13th and also Friday"),
        ("0 0 */2 * 5", "at 00:00, on every 2nd day from the 1st if that is Friday"),
        ("0 0 L * *", "at 00:00, on the last day of the month"),
        ("0 0 LW,15W * *", "at 00:00, on the weekday nearest the 15th and the last weekday of the month"),
        ("0 0 L-3 * *", "at 00:00, on the day 3 days before the last of the month"),
        ("0 0 * * 5L", "at 00:00, the last Friday of the month"),
        ("0 0 * * 5#2,1", "at 00:00, Monday and the second Friday of the month"),
        ("0 0 1 1-3,6 *", "at 00:00, on the 1st, in January to March and June"),
        ("@weekly", "at 00:00, Sunday"),
        ("* * * * * *", "every second"),
        ("30 0 8 * * *", "at 08:00:30"),
        ("*/2 30 8 * * *", "every 2 seconds of minute 30 from 08:00 to 08:59"),
        ("5 * * * * *", "every minute at second 5"),
        ("10 5 * * * *", "every hour at minute 5, second 10"),
        ("0 0 1-31 * *", "at 00:00"),
    ] {
        assert_eq!(words(Cron::new(expr)), format!("{expected}, UTC"), "{expr}");
    }
    for (interval, offset, expected) in [
        ("10s", "0s", "every 10 seconds"),
        ("1h", "5m", "every hour, offset by 5 minutes"),
        ("1h30m", "0s", "every 1 hour 30 minutes"),
        ("1d", "8h30m", "every day, at 08:30 UTC"),
        ("1w", "4d9h", "every week, Monday 09:00 UTC"),
    ] {
        assert_eq!(words(Every::new(interval).offset(offset)), expected);
    }
    assert_eq!(words(At::new("2027-01-01T00:00").tz("Europe/Athens")), "at 2027-01-01 00:00, Europe/Athens");
    assert_eq!(
        words(At::new("2027-01-01T00:00Z").and("2027-01-01T00:00:05+02:00")),
        "at 2027-01-01 00:00:05 +02:00 and 2027-01-01 00:00 UTC"
    );
}

#[test]
fn what_means_the_same_has_one_canonical_text() {
    for (one, other) in [
        ("0 8 * * MON-FRI", "0 8 * * 1-5"),
        ("0 8 * * 0", "0 0 8 * * sun"),
        ("0 0 * * 7", "@weekly"),
        ("@midnight", "@DAILY"),
        ("0 0 1-31 * 5", "0 0 * * *"),
        ("0 0 1/1 * 5", "0 0 * * 0-7"),
        ("*/15 * * * *", "0,15,30,45 * * * *"),
        ("0 0 1,L * 5", "0 0 L,1 * fri,5#2"),
    ] {
        assert_eq!(canonical(Cron::new(one)), canonical(Cron::new(other)), "{one} and {other}");
    }
    let athens = |expr: &str| canonical(Cron::new(expr).tz("Europe/Athens"));
    assert_ne!(athens("* * * * *"), athens("0-59 0-23 * * *"), "they differ when the clocks change");
    assert_ne!(athens("0 8 * * *"), canonical(Cron::new("0 8 * * *")));
    assert_ne!(athens("0 0 13 * 5"), athens("0 0 */13 * 5"));
    assert_eq!(canonical(Every::new("15s")), canonical(Every::new("15000ms")));
    assert_ne!(canonical(Every::new("15s")), canonical(Every::new("15s").offset("1s")));
    assert_eq!(canonical(At::new("2027-01-01T02:00+02:00")), canonical(At::new("2027-01-01T00:00:00Z")));
}

#[test]
fn the_canonical_text_is_the_one_of_the_first_release() {
    assert_eq!(canonical(Every::new("1h").offset("5m")), "every 3600000ms offset 300000ms");
    assert_eq!(
        canonical(Cron::new("0 8 L * 1-5").tz("Europe/Athens")),
        "cron 1 1 100 0/1/0/0 1ffe 3e/0/0/0/0/0/0/0 either fixed Europe/Athens"
    );
    assert_eq!(
        canonical(At::new("2027-01-01T00:00").tz("Europe/Athens")),
        "at 2027-01-01T00:00:00.000[Europe/Athens]"
    );
}

#[test]
fn local_time_is_told_in_the_schedules_zone() {
    let t: DateTime<Utc> = "2027-07-01T12:00:00Z".parse().unwrap();
    let local = |spec: Spec| spec.resolve(&Zones::embedded()).unwrap().0.local(t).to_rfc3339();
    assert_eq!(local(Every::new("1h").into()), "2027-07-01T12:00:00+00:00");
    assert_eq!(local(Cron::new("0 8 * * *").tz("Europe/Athens").into()), "2027-07-01T15:00:00+03:00");
    assert_eq!(local(At::new("2027-07-01T17:30:00+05:30").into()), "2027-07-01T17:30:00+05:30");
    assert_eq!(local(At::new("2027-07-01T21:00").tz("Asia/Tokyo").into()), "2027-07-01T21:00:00+09:00");
}
