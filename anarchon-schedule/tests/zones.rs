//! Zone rules from files come before the embedded ones.
#![cfg(feature = "system-tz")]
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;

use anarchon_schedule::{At, Cron, Spec, Zones};
use chrono::{DateTime, Utc};

#[test]
fn the_rules_of_a_newer_database_win() {
    let (_dir, newer) = newer_athens();
    let spec = Spec::from(Cron::new("0 8 * * *").tz("Europe/Athens"));
    let after = utc("2027-01-20T00:00:00Z");
    assert_eq!(spec.check().unwrap().next_after(after), Some(utc("2027-01-20T06:00:00Z")));
    let (schedule, warnings) = spec.resolve(&newer).unwrap();
    assert_eq!(schedule.next_after(after), Some(utc("2027-01-20T05:00:00Z")));
    assert_eq!(schedule.local(after).to_rfc3339(), "2027-01-20T03:00:00+03:00");
    assert_eq!(warnings, [] as [&str; 0]);
    assert_eq!(schedule.canonical(), spec.check().unwrap().canonical());
    // The footer's rule holds beyond the last change in the file.
    assert_eq!(schedule.next_after(utc("2050-07-01T00:00:00Z")), Some(utc("2050-07-01T06:00:00Z")));
}

#[test]
fn the_version_is_read_from_the_files_where_they_tell() {
    let (dir, newer) = newer_athens();
    assert_eq!(newer.version(), "2099z");
    fs::remove_file(dir.path().join("+VERSION")).unwrap();
    assert_eq!(Zones::from_dir(dir.path()).unwrap().version(), "unknown");
    fs::write(dir.path().join("tzdata.zi"), "# version 2098y\nR d 1916\n").unwrap();
    assert_eq!(Zones::from_dir(dir.path()).unwrap().version(), "2098y");
    assert_eq!(Zones::embedded().version(), "2025b");
}

#[test]
fn a_local_time_that_newer_rules_skip_or_repeat_is_a_warning() {
    let (_dir, newer) = newer_athens();
    let resolve = |text: &str| Spec::from(At::new(text).tz("Europe/Athens")).resolve(&newer);
    let (skipped, warnings) = resolve("2027-01-10T01:30").unwrap();
    assert_eq!(skipped.next_after(utc("2027-01-01T00:00:00Z")), Some(utc("2027-01-09T23:00:00Z")));
    assert_eq!(
        warnings,
        [
            r#"local time "2027-01-10T01:30" does not exist in Europe/Athens by newer zone rules; it runs at 2027-01-10T02:00:00+03:00"#
        ]
    );
    let (repeated, warnings) = resolve("2027-02-10T01:30").unwrap();
    assert_eq!(repeated.next_after(utc("2027-01-01T00:00:00Z")), Some(utc("2027-02-09T22:30:00Z")));
    assert_eq!(warnings.len(), 1);
    // What was wrong when it was built stays an error, and what the newer rules make right is none.
    assert!(Spec::from(At::new("2027-03-28T03:30").tz("Europe/Athens")).check().is_err());
    assert!(resolve("2027-03-28T03:30").is_ok());
}

#[test]
fn a_zone_that_the_files_lack_comes_from_the_embedded_tables_with_a_warning() {
    let (_dir, newer) = newer_athens();
    let spec = Spec::from(Cron::new("0 8 * * *").tz("Asia/Tokyo"));
    let (schedule, warnings) = spec.resolve(&newer).unwrap();
    assert_eq!(schedule.next_after(utc("2027-01-01T00:00:00Z")), Some(utc("2027-01-01T23:00:00Z")));
    assert_eq!(
        warnings,
        [
            r#"zone "Asia/Tokyo" is not in the tz database 2099z; its rules are those of the built-in one, 2025b"#
        ]
    );
    for name in ["europe/athens", "../Europe/Athens", "Europe/Athen", "Europe", "/etc/passwd"] {
        assert!(Spec::from(Cron::new("0 8 * * *").tz(name)).resolve(&newer).is_err(), "{name}");
    }
}

#[test]
fn a_folder_without_zone_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Zones::from_dir(dir.path()).is_err());
    assert!(Zones::from_dir(dir.path().join("missing")).is_err());
}

/// A database with Athens alone, at UTC+3 from 10 January to 10 February 2027 and never again at summer time.
fn newer_athens() -> (tempfile::TempDir, Zones) {
    let dir = tempfile::tempdir().unwrap();
    let changes = [(utc("2027-01-09T23:00:00Z"), 1), (utc("2027-02-09T23:00:00Z"), 0)];
    write_zone(&dir.path().join("Europe/Athens"), &changes, &[7_200, 10_800], "EET-2");
    fs::write(dir.path().join("+VERSION"), "2099z\n").unwrap();
    let zones = Zones::from_dir(dir.path()).unwrap();
    (dir, zones)
}

/// RFC 9636, version 2: an empty block of 32-bit values, then one of 64-bit values and the rule that goes on.
fn write_zone(path: &Path, changes: &[(DateTime<Utc>, u8)], offsets: &[i32], footer: &str) {
    let header = |changes: usize, offsets: usize| {
        let mut bytes = b"TZif2".to_vec();
        bytes.extend([0; 15]);
        for count in [0, 0, 0, changes as u32, offsets as u32, 4] {
            bytes.extend(count.to_be_bytes());
        }
        bytes
    };
    let kind = |offset: i32| [&offset.to_be_bytes()[..], &[0, 0]].concat();
    let mut bytes = header(0, 1);
    bytes.extend(kind(0));
    bytes.extend(b"EET\0");
    bytes.extend(header(changes.len(), offsets.len()));
    changes.iter().for_each(|(at, _)| bytes.extend(at.timestamp().to_be_bytes()));
    bytes.extend(changes.iter().map(|(_, kind)| *kind));
    offsets.iter().for_each(|offset| bytes.extend(kind(*offset)));
    bytes.extend(b"EET\0");
    bytes.extend(format!("\n{footer}\n").bytes());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn utc(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}
