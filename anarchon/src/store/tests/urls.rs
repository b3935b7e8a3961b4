//! Whatever a URL says, it is a store or one clear error, and a secret in it stays one.

use super::{
    fuzzing::{Random, play},
    is_one_clear_line,
};
use crate::store::connect::connect;

/// The place of a secret, moved about with all else.
const PLACE: char = '§';
const SECRET: &str = "geheim";

const URLS: [&str; 62] = [
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
];

const PIECES: [&str; 49] = [
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
                // What was percent-encoded is shown decoded by some, and the host of a parameter before the path.
                Ok(again) => {
                    assert!(again.describe() == shown || url.contains(['%', '=']), "of {shown}: {again:?}")
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

/// Whether what stands between the two is a secret beyond doubt: in the place of a password, of a token of NATS, in a parameter
/// that is called like one or behind such a parameter.
fn holds_secret(before: &str, after: &str) -> bool {
    const NAMES: [&str; 4] = ["pass", "pwd", "secret", "token"];
    let start = before.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let mut parameters = before.split('?').skip(1).flat_map(|part| part.split(['&', ';', '#']));
    let named = |parameter: &str| {
        let name = parameter.split_once('=').map(|(name, _)| name.to_ascii_lowercase());
        name.is_some_and(|name| NAMES.iter().any(|word| name.contains(word)))
    };
    if parameters.any(named) {
        return true;
    }
    if start == "sqlite" || start == "memory" && !after.contains('@') {
        return false;
    }
    let Some((_, login)) = before.split_once("://") else {
        return after.contains('@') && before.contains(':');
    };
    let is_behind_user = login.contains(':') || ["nats", "tls"].contains(&&*start);
    let has_no_at = !login.contains('@') && !after.contains('@');
    let is_like_a_port = login.contains(':') && !login.contains(['/', '?', '#', ',', '[']);
    is_behind_user && after.contains('@') || has_no_at && is_like_a_port
}
