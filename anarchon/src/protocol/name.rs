use std::{fmt, sync::Arc};

/// A name that is not 1–100 of `a-z A-Z 0-9 _ - .`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongName {
    what: &'static str,
    text: String,
}

impl fmt::Display for WrongName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.text.chars().take(120).collect();
        write!(f, "{} {shown:?} is not a valid name; use 1 to 100 of a-z A-Z 0-9 _ - .", self.what)
    }
}

impl std::error::Error for WrongName {}

fn check(what: &'static str, text: &str) -> Result<Arc<str>, WrongName> {
    let right = (1..=100).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if right { Ok(text.into()) } else { Err(WrongName { what, text: text.to_owned() }) }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text.
            ///
            /// # Errors
            /// When it is not 1–100 of `a-z A-Z 0-9 _ - .`.
            pub fn new(text: &str) -> Result<Self, WrongName> {
                check($what, text).map(Self)
            }
            /// The text of it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// The name of a job, unique in its namespace: 1–100 of `a-z A-Z 0-9 _ - .`.
    JobName, "job name"
}
name! {
    /// What keeps the records of services that share a store apart: 1–100 of `a-z A-Z 0-9 _ - .`.
    Namespace, "namespace"
}
name! {
    /// The id of one running process: 1–100 of `a-z A-Z 0-9 _ - .`.
    InstanceId, "instance id"
}

/// Says which schedule a job has: equal for schedules that mean the same, different otherwise.
///
/// SipHash-2-4-128 of the schedule's canonical text, so that two builds by different compilers agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u128);

impl Fingerprint {
    /// The fingerprint of a canonical text.
    #[must_use]
    pub fn of(canonical: &str) -> Self {
        Self(siphasher::sip128::SipHasher24::new().hash(canonical.as_bytes()).as_u128())
    }
    /// Reads what `Display` wrote: 32 hexadecimal digits.
    #[must_use]
    pub fn parse(hex: &str) -> Option<Self> {
        parse_hex(hex).map(Self)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// 32 hexadecimal digits; `from_str_radix` alone takes a sign too.
fn parse_hex(hex: &str) -> Option<u128> {
    let right = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    if right { u128::from_str_radix(hex, 16).ok() } else { None }
}

/// Names one claim, so that it can be repeated after a lost reply: a random part of the instance, and a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nonce {
    /// Random, drawn once by the instance.
    pub instance: u64,
    /// Counts the claims of the instance, from 1; 0 in a record that nobody has claimed.
    pub seq: u64,
}

impl Nonce {
    /// Reads what `Display` wrote: 32 hexadecimal digits.
    #[must_use]
    pub fn parse(hex: &str) -> Option<Self> {
        let all = parse_hex(hex)?;
        Some(Self { instance: (all >> 64) as u64, seq: all as u64 })
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.instance, self.seq)
    }
}

/// A fencing token: grows with every award of a job, so that the outside world can refuse a late writer.
///
/// `max(last + 1, store clock in µs)`: it grows even when the record was lost in between, and fits 2^53 until 2255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
