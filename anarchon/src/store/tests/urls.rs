//! Whatever a URL says, it is a store or one clear error, and a secret in it stays one.

use super::{
    fuzzing::{Random, play},
    is_one_clear_line,
};
use crate::store::connect::connect;

/// The place of a secret, moved about with all else.
const PLACE: char = '§';
const SECRET: &str = "geheim";

const URLS: [&str; 77] = [
    "memory:",
    "memory:u:§@h",
    "sqlite:jobs.db",
    "sqlite::memory:",
    "sqlite:///var/lib/jobs.db?mode=rwc&cache=shared",
    "sqlite:jobs.db?key=§",
    "sqlite://jobs.db?immutable=true&vfs=unix",
    "redis://localhost",
    "redis://u:§@h:6379/0",
    "redis://:§@h/1?protocol=resp2",
    "redis://u:§",
    "rediss://u:§@[::1]:1/2?ca=a.pem&cert=b.pem&key=c.pem",
    "redis+cluster://u:§@one:1,two,[::2]:3",
    "rediss+cluster://one:1,two",
    "redis+sentinel://u:§@one,two:26379/mymaster/3?sentinel_user=s&sentinel_password=§",
    "rediss+sentinel://one/m?sentinel_password=§",
    "valkey://h:1",
    "valkeys://u:§@h?protocol=resp3",
    "valkey+cluster://u:§@one:1,two",
    "valkeys+sentinel://one/my%20master",
    "postgres://u:§@h:5432/db?sslmode=disable",
    "postgresql://u@h/db?password=§&sslmode=verify-full&sslrootcert=ca.pem",
    "postgresql://u@h/db?password=5&sslmode=verify-full§sslrootcert=ca.",
    "postgres://u:\\§",
    "postgres:///db?host=/run/postgresql&user=u",
    "postgres://u:§@%2Frun%2Fpg/db?schema=jobs&listen=true",
    "postgres://h/db?options[search_path]=x&application_name=a",
    "postgres://u:§@h/db?sslcert=c&sslkey=k&hostaddr=127.0.0.1&port=1&dbname=d",
    "postgres://u:§",
    "nats://h",
    "nats://§@h:4222",
    "nats://u:§@one:1,two/",
    "nats://h?creds=a.creds",
    "nats://h?nkey=a.nk&ca=c",
    "tls://u:§@[::1]:5,[::2]?ca=ca.pem&cert=c.pem&key=k.pem",
    "tls://§@h",
    "amqp://u:§@h:5672/vhost",
    "amqp://guest:§@h/a%2Fb?queues=quorum",
    "amqps://u:§@h?ca=a&cert=b&key=c",
    "amqp://u:§",
    "amqp://h?heartbeat=10",
    "mysql://u:§@h/db",
    "mongodb+srv://u:§@h/?retryWrites=true",
    "https://u:§@h/",
    "redis:",
    "redis:h",
    "postgres:",
    "u:§@h:5432/db",
    "§@h",
    "jobs.db",
    "",
    "://",
    "redis://",
    "redis:///",
    "redis://@",
    "redis://:@:/",
    "amqp:///%2f",
    "nats://,",
    "REDIS://u:§@H",
    "Postgres://u:§@H/db",
    "redis://u:p%40§@h",
    "postgres://u:p%2F§@h/db",
    "redis://h?token=§",
    "postgres://h/db?passwd=§&user=u",
    "host=h user=u password=§ dbname=x",
    "Server=h;User Id=u;Password=§",
    "x.redis.cache.windows.net:6380,password=§,ssl=True",
    "postgres://h/db&password=§",
    "nats://h;token=§",
    "amqp://u@h/v,pwd=§",
    "redis://h:6379,password=§",
    "redis://u/§",
    "postgres://h/db?user=u:§",
    "postgres://h/db?p%61ssword=§",
    "redis://h?foo=§",
    "nats://h?jwt=§",
    "sqlite:jobs.db;password=§",
];

const PIECES: [&str; 61] = [
    ":",
    "/",
    "//",
    "://",
    "@",
    "?",
    "&",
    "=",
    ";",
    "#",
    ",",
    "[",
    "]",
    "[::1]",
    "%",
    "%2",
    "%2F",
    "%40",
    "%ff",
    "%00",
    "%0a",
    "+",
    "+cluster",
    "+sentinel",
    "0",
    "65535",
    "65536",
    "-1",
    "99999999999999999999",
    "§",
    ":§",
    ":§@",
    "§@",
    "?password=§",
    "&token=§",
    ";password=§",
    "&password=§",
    ",password=§",
    "#pw=§",
    " password=§",
    "%20password%3D§",
    "?p%61ssword=§",
    "&foo=§",
    "?user=u:§",
    "&seed=§",
    "%3D",
    "%26",
    "/§",
    "é",
    "\u{e9}\u{301}",
    "\0",
    "\n",
    "\t",
    " ",
    "\\",
    "\"",
    "{}",
    "xn--",
    "*",
    "..",
    "\u{202e}",
];

#[test]
fn mutations_of_urls_are_a_store_or_a_clear_error_and_tell_no_secret() {
    for url in URLS {
        check(url);
    }
    play(20_000, |random: &mut Random| random.text(&URLS, &PIECES), |url| check(url));
}

fn check(text: &str) -> bool {
    let url = text.replacen(PLACE, SECRET, 1).replace(PLACE, "other");
    let is_secret = text.split_once(PLACE).is_some_and(|(before, after)| holds_secret(before, after));
    let is_kept = |told: &str| assert!(!is_secret || !told.contains(SECRET), "{told}");
    match connect(&url) {
        Ok(store) => {
            let shown = store.describe();
            is_kept(&shown);
            is_kept(&format!("{store:?}"));
            match connect(&shown) {
                // What was percent-encoded is shown decoded by some, and what a parameter names in its place.
                Ok(again) => {
                    assert!(
                        again.describe() == shown || url.contains(['%', '=', '?']),
                        "of {shown}: {again:?}"
                    )
                }
                Err(error) => assert!(is_clear(&error.to_string(), &url), "of {shown}: {error}"),
            }
            true
        }
        Err(error) => {
            is_kept(&format!("{error} {error:?}"));
            assert!(is_clear(&error.to_string(), &url), "{error}");
            false
        }
    }
}

/// It says what is wrong and the mend.
fn is_clear(error: &str, url: &str) -> bool {
    let room = 400 + 2 * url.len();
    let (first, last) = error.split_at(error.floor_char_boundary(room.min(error.len()) / 2));
    error.len() < room && is_one_clear_line(first) && is_one_clear_line(last) && error.contains("; ")
}

/// Whether what stands between the two is a secret beyond doubt: in the place of a password, of a token of NATS or of a number, in
/// something that is called like a secret, in a parameter behind such a one or that nobody knows, or anywhere in a text of no kind.
fn holds_secret(before: &str, after: &str) -> bool {
    const NAMES: [&str; 8] = ["pass", "pwd", "pw", "secret", "token", "jwt", "seed", "sasl"];
    const KINDS: [&str; 8] = ["amqp", "amqps", "memory", "nats", "postgres", "postgresql", "sqlite", "tls"];
    let start = format!("{before}{PLACE}{after}").split(':').next().unwrap_or_default().to_ascii_lowercase();
    let is_redis = start.starts_with("redis") || start.starts_with("valkey");
    if !is_redis && !KINDS.contains(&&*start) {
        let is_told_as_kind = !before.contains(':') && after.contains("://");
        return !is_told_as_kind && [before, after].concat().contains(['@', '=', ':', ';', ',', ' ']);
    }
    let named = |parameter: &str| {
        let plain = percent_encoding::percent_decode_str(parameter).decode_utf8_lossy();
        let name = plain.split_once('=').map(|(name, _)| name.to_ascii_lowercase());
        name.is_some_and(|name| NAMES.iter().any(|word| name.contains(word)))
    };
    let parameters =
        before.split('?').skip(1).flat_map(|part| part.split(['&', ';', '#'])).collect::<Vec<_>>();
    if parameters.iter().copied().any(named) {
        return true;
    }
    let last = parameters.last().copied().unwrap_or_default();
    let is_unknown = last.starts_with("foo=");
    let is_with_user = last.starts_with("user=") && last.contains(':');
    if is_unknown || is_with_user && start != "sqlite" {
        return true;
    }
    let plain = percent_encoding::percent_decode_str(before).decode_utf8_lossy();
    let mut places = plain.split(|c: char| c.is_whitespace() || "&;#,".contains(c));
    let in_place = places.next_back().is_some_and(|last| !last.contains(['?', '/', '@']) && named(last));
    if in_place && places.next().is_some() {
        return true;
    }
    if start == "sqlite" || start == "memory" && !after.contains('@') {
        return false;
    }
    let Some((_, login)) = before.split_once("://") else {
        return after.contains('@') && before.contains(':');
    };
    let has_a_number = ["nats", "tls"].contains(&&*start) || is_redis && !start.contains("+sentinel");
    if has_a_number && login.contains('/') && !login.contains('?') {
        return true;
    }
    let is_behind_user = login.contains(':') || ["nats", "tls"].contains(&&*start);
    let has_no_at = !login.contains('@') && !after.contains('@');
    let is_like_a_port = login.contains(':') && !login.contains(['/', '?', '#', ',', '[']);
    is_behind_user && after.contains('@') || has_no_at && is_like_a_port
}
