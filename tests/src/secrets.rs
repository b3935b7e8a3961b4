//! A password with a mark in it, processes that are given it, and a look for the mark in all that they print.

use crate::{
    process::Orders,
    proxy::{Mode, Proxy},
    site::{Outage, Site, TestStore},
    wait::until_so,
};

/// What is looked for. No word of any log, and the same when percent-encoded.
pub const MARK: &str = "kn0llenbl4etterp1lz";

/// A password that has to be encoded in a URL.
#[must_use]
pub fn password() -> String {
    format!("{MARK}@:/?")
}

/// The same as it stands in a URL.
#[must_use]
pub fn encoded() -> String {
    format!("{MARK}%40%3A%2F%3F")
}

/// What processes print at the most verbose level through a good login, an outage, jobs that fail and panic, the end, and
/// a wrong login.
///
/// # Panics
/// When they do not come that far, and when one of them prints the mark.
pub fn are_kept(worker: &str, port: u16, url: impl Fn(u16, &str) -> String) {
    let proxy = Proxy::to(port);
    let site = Site::of(worker, At(url(proxy.port(), &encoded())));
    let mut process = site.start(&chatty(["tick,every=1s,lease=5s", "bad,every=1s,lease=5s,mode=panic"]));
    site.run("tick", "has ended well", crate::history::Run::is_done);
    proxy.set(Mode::Cut);
    until_so("the outage is told", || process.log().contains("the store does not answer"));
    proxy.set(Mode::Pass);
    until_so("its end is told", || process.log().contains("the store answers again"));
    process.terminate();
    assert!(process.ended().success(), "{}", shown(&process.log()));
    look_through(&process.log(), &[MARK]);
    is_refused(worker, &url(port, &format!("{MARK}-wrong")), &[MARK]);
}

/// A process that is not let in, and says so without its secrets.
///
/// # Panics
/// When it does not end, or prints one of them.
pub fn is_refused(worker: &str, url: &str, secrets: &[&str]) {
    let site = Site::of(worker, At(url.to_owned()));
    let mut process = site.start(&chatty(["tick,every=1s,lease=5s"]));
    process.may_end();
    assert!(!process.ended().success(), "{url} lets in");
    look_through(&process.log(), secrets);
}

/// A process that is let in by what its environment says, and prints none of the secrets.
///
/// # Panics
/// When it is not let in, or prints one of them.
pub fn is_let_in(worker: &str, url: &str, environment: &[(&str, &str)], secrets: &[&str]) {
    let site = Site::of(worker, At(url.to_owned()));
    let variables = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let mut process = site.start(&chatty(["tick,every=1s,lease=5s"]).environment(variables));
    until_so("it has started, or ended", || process.has_started() || process.has_ended());
    process.terminate();
    assert!(process.ended().success(), "{}", shown(&process.log()));
    look_through(&process.log(), secrets);
}

fn chatty<const N: usize>(jobs: [&str; N]) -> Orders {
    Orders::new(jobs).environment([("RUST_LOG".to_owned(), "trace".to_owned())])
}

fn look_through(log: &str, secrets: &[&str]) {
    assert!(log.contains(" TRACE "), "the process was not asked to tell all:\n{}", shown(log));
    for secret in secrets {
        for form in forms(secret) {
            let line = log.lines().find(|line| line.to_lowercase().contains(&form));
            assert_eq!(line, None, "it prints a secret, as {form}");
        }
    }
}

/// The newest of a log.
fn shown(log: &str) -> &str {
    log.get(log.len().saturating_sub(4000)..).unwrap_or(log)
}

/// What a secret may look like in print, in lower case: itself, hexadecimal, a list of bytes, and base64 at each of the three
/// places where it can begin in a longer text.
fn forms(secret: &str) -> Vec<String> {
    let bytes = secret.as_bytes();
    let list =
        |write: fn(&u8) -> String, between: &str| bytes.iter().map(write).collect::<Vec<_>>().join(between);
    let mut forms = vec![
        secret.to_lowercase(),
        list(|byte| format!("{byte:02x}"), ""),
        list(|byte| format!("{byte:02x}"), ", "),
        list(|byte| format!("0x{byte:02x}"), ", "),
        list(u8::to_string, ", "),
    ];
    forms.extend((0..3).map(|at| base64_within(bytes, at).to_lowercase()));
    forms
}

/// The letters of base64 that are made of these bytes alone, where so many others stand before them.
fn base64_within(bytes: &[u8], before: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = |n: usize| -> Option<u8> {
        let bit = n.checked_sub(before * 8)?;
        Some(bytes.get(bit / 8)? >> (7 - bit % 8) & 1)
    };
    let letter = |n: usize| {
        let value =
            (0..6).try_fold(0, |value: usize, bit| Some(value << 1 | usize::from(bits(6 * n + bit)?)))?;
        Some(char::from(LETTERS[value]))
    };
    (0..(before + bytes.len()) * 8 / 6).filter_map(letter).collect()
}

/// A store that this does not take away.
#[derive(Debug)]
struct At(String);

impl TestStore for At {
    fn url(&self) -> String {
        self.0.clone()
    }

    fn stop(&mut self, _how: Outage) {}

    fn resume(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are those of `base64` and `xxd -p`.
    #[test]
    fn a_secret_is_found_in_whatever_form_it_is_printed() {
        for text in [
            "the password is geheim!",
            "the password is GEHEIM!",
            "67656865696d0a",
            "[0, 103, 101, 104, 101, 105, 109, 0]",
            "Z2VoZWlt",
            "AGdlaGVpbQ==",
            "AABnZWhlaW0=",
            "AGpvYnMAZ2VoZWlt",
        ] {
            let found = std::panic::catch_unwind(|| look_through(&format!(" TRACE {text}"), &["geheim"]));
            assert!(found.is_err(), "{text}");
        }
        look_through(" TRACE the secret is kept, Z2VoZQ==, 676568", &["geheim"]);
    }
}
