use std::ops::Range;
use std::time::Duration;

use crate::error::ParseError;

/// No option of a job may be longer: 100 years, so that no sum of times overflows, also in microseconds in the floating
/// point numbers of Lua.
pub const LONGEST_OPTION: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Reads a duration such as `250ms`, `10s`, `5m`, `1h30m`, `1d` or `1w`.
///
/// Whole numbers with a unit each, the larger unit first, each unit at most once, no spaces. Units: `w` (7 days),
/// `d` (24 hours), `h`, `m` (minutes), `s`, `ms`.
///
/// # Errors
///
/// A text that is empty, has no unit, a fraction, a sign or an unknown unit, or is longer than [`Duration::MAX`].
///
/// ```
/// use anarchon_schedule::parse_duration;
/// use std::time::Duration;
///
/// assert_eq!(parse_duration("1h30m").unwrap(), Duration::from_secs(5_400));
/// assert_eq!(
///     parse_duration("10").unwrap_err().to_string(),
///     r#"duration "10" has no unit; write "10s" for seconds, or use ms, m, h, d, w"#
/// );
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    if text.trim().is_empty() {
        return Err(ParseError::new(
            0..text.len(),
            "the duration is empty",
            r#"write one such as "10s" or "1h30m""#,
        ));
    }
    let mut total: u64 = 0;
    let mut larger: Option<&Unit> = None;
    let mut at = 0;
    while at < text.len() {
        let (amount, after) = number(text, at)?;
        let (unit, end) = unit(text, at, after)?;
        if let Some(larger) = larger
            && larger.millis <= unit.millis
        {
            return Err(out_of_order(text, after..end, larger, unit));
        }
        total = amount
            .checked_mul(unit.millis)
            .and_then(|millis| total.checked_add(millis))
            .ok_or_else(|| too_long(text, at..end))?;
        larger = Some(unit);
        at = end;
    }
    Ok(Duration::from_millis(total))
}

/// The shortest text that [`parse_duration`] reads as this many milliseconds.
pub(crate) fn format_millis(millis: u64) -> String {
    let mut rest = millis;
    let mut text = String::new();
    for unit in &UNITS {
        // 90 days read better as days than as 12w6d.
        if unit.name == "w" && !rest.is_multiple_of(unit.millis) {
            continue;
        }
        if rest >= unit.millis {
            text.push_str(&format!("{}{}", rest / unit.millis, unit.name));
            rest %= unit.millis;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// The same in words: `1 hour 30 minutes`.
pub(crate) fn words(millis: u64) -> String {
    let mut rest = millis;
    let mut parts = Vec::new();
    for unit in &UNITS {
        if unit.name == "w" && !rest.is_multiple_of(unit.millis) {
            continue;
        }
        let amount = rest / unit.millis;
        if amount > 0 {
            parts.push(format!("{amount} {}{}", unit.word, if amount == 1 { "" } else { "s" }));
            rest %= unit.millis;
        }
    }
    if parts.is_empty() { "0 seconds".to_owned() } else { parts.join(" ") }
}

fn number(text: &str, at: usize) -> Result<(u64, usize), ParseError> {
    let digits = text[at..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        let range = at..next_boundary(text, at);
        let found = &text[range.clone()];
        let mend = match found {
            "-" | "+" => "write it without a sign".to_owned(),
            _ if found.trim().is_empty() => {
                format!("write \"{}\"", text.split_whitespace().collect::<String>())
            }
            _ if text[at..].starts_with(|c: char| c.is_alphabetic()) => {
                r#"put a whole number before the unit, such as "10s""#.to_owned()
            }
            _ => r#"write one such as "10s" or "1h30m""#.to_owned(),
        };
        return Err(ParseError::new(
            range,
            format!("{found:?} cannot stand here in duration {text:?}"),
            mend,
        ));
    }
    let end = at + digits;
    if text[end..].starts_with(['.', ',']) {
        let end = end + 1 + text[end + 1..].bytes().take_while(u8::is_ascii_digit).count();
        return Err(ParseError::new(
            at..end,
            format!("fraction \"{}\" in duration {text:?}", &text[at..end]),
            r#"use a smaller unit: "1h30m" for one and a half hours, "1500ms" for one and a half seconds"#,
        ));
    }
    text[at..end].parse().map(|amount| (amount, end)).map_err(|_| too_long(text, at..end))
}

fn unit(text: &str, number: usize, at: usize) -> Result<(&'static Unit, usize), ParseError> {
    let rest = &text[at..];
    let length = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let name = &rest[..length];
    if let Some(unit) = UNITS.iter().find(|unit| unit.name == name) {
        return Ok((unit, at + length));
    }
    let amount = &text[number..at];
    let range = at..at + length;
    let word = name.trim().to_lowercase();
    if word.is_empty() {
        return Err(ParseError::new(
            number..at,
            format!("duration {text:?} has no unit"),
            format!("write \"{amount}s\" for seconds, or use ms, m, h, d, w"),
        ));
    }
    let together: String = text.split_whitespace().collect();
    let mend = match UNITS.iter().find(|unit| unit.name == word || unit.aliases.contains(&word.as_str())) {
        _ if together != text && parse_duration(&together).is_ok() => format!("write \"{together}\""),
        Some(unit) => format!("write \"{amount}{}\"", unit.name),
        None if ["us", "µs", "ns"].contains(&word.as_str()) => "the finest unit is ms".to_owned(),
        None => "use one of ms, s, m, h, d, w".to_owned(),
    };
    Err(ParseError::new(range, format!("unknown unit {name:?} in duration {text:?}"), mend))
}

fn out_of_order(text: &str, range: Range<usize>, larger: &Unit, unit: &Unit) -> ParseError {
    let (problem, mend) = if larger.name == unit.name {
        (format!("unit \"{}\" stands twice in duration {text:?}", unit.name), "add the two".to_owned())
    } else {
        (
            format!("unit \"{}\" stands after \"{}\" in duration {text:?}", unit.name, larger.name),
            r#"put the larger unit first, as in "1h30m""#.to_owned(),
        )
    };
    ParseError::new(range, problem, mend)
}

fn too_long(text: &str, range: Range<usize>) -> ParseError {
    ParseError::new(range, format!("duration {text:?} is too long"), "write a shorter one")
}

fn next_boundary(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(at, |c| at + c.len_utf8())
}

#[derive(Debug)]
struct Unit {
    name: &'static str,
    word: &'static str,
    millis: u64,
    aliases: &'static [&'static str],
}

const UNITS: [Unit; 6] = [
    Unit { name: "w", word: "week", millis: 604_800_000, aliases: &["wk", "wks", "week", "weeks"] },
    Unit { name: "d", word: "day", millis: 86_400_000, aliases: &["day", "days"] },
    Unit { name: "h", word: "hour", millis: 3_600_000, aliases: &["hr", "hrs", "hour", "hours"] },
    Unit { name: "m", word: "minute", millis: 60_000, aliases: &["min", "mins", "minute", "minutes"] },
    Unit { name: "s", word: "second", millis: 1_000, aliases: &["sec", "secs", "second", "seconds"] },
    Unit {
        name: "ms",
        word: "millisecond",
        millis: 1,
        aliases: &["msec", "msecs", "millis", "millisecond", "milliseconds"],
    },
];
