//! The options of the attributes: which there are, and what their values may be.

use std::time::Duration;

use anarchon_schedule::{LONGEST_OPTION, parse_duration};
use proc_macro2::{Ident, TokenStream};
use quote::ToTokens as _;
use syn::{Lit, LitInt, LitStr, Path};

use crate::diagnostics::{Diagnostics, did_you_mean, list, meant};
use crate::handler::Place;
use crate::model::name_fault;
use crate::parse::{self, MarkerKind, Value};

/// What `#[jobs(…)]` says.
pub(crate) struct BlockOptions {
    pub(crate) prefix: Option<LitStr>,
    pub(crate) more: bool,
    pub(crate) root: Path,
}

impl BlockOptions {
    pub(crate) fn read(arguments: TokenStream, errors: &mut Diagnostics) -> Self {
        let mut options = Self { prefix: None, more: false, root: syn::parse_quote!(::anarchon) };
        for argument in parse::block_arguments(arguments) {
            match argument {
                Ok(argument) => options.set(argument, errors),
                Err(error) => errors.push(error),
            }
        }
        options
    }

    fn set(&mut self, parse::BlockArgument { name, value }: parse::BlockArgument, errors: &mut Diagnostics) {
        match (name.to_string().as_str(), value) {
            ("prefix", Some(value)) => match syn::parse2::<LitStr>(value.clone()) {
                Ok(prefix) => self.prefix = checked_prefix(prefix, errors),
                Err(_) => errors.at(value, "`prefix` is text; write `prefix = \"billing\"`"),
            },
            ("prefix", None) => errors.at(name, "`prefix` needs a value; write `prefix = \"billing\"`"),
            ("more", None) => self.more = true,
            ("more", Some(value)) => errors.at(value, "`more` takes no value; write `#[jobs(more)]`"),
            ("crate", Some(value)) => {
                match syn::parse::Parser::parse2(Path::parse_mod_style, value.clone()) {
                    Ok(root) => self.root = root,
                    Err(_) => {
                        errors.at(value, "`crate` is a path, without quotes; write `crate = my::anarchon`")
                    }
                }
            }
            ("crate", None) => errors.at(name, "`crate` needs a path; write `crate = my::anarchon`"),
            (other, _) => {
                let near = did_you_mean(other, &["prefix", "more", "crate"]);
                let message = format!(
                    "unknown option `{other}` of `#[jobs]`{near} it takes `prefix`, `more` and `crate`"
                );
                errors.at(name, message);
            }
        }
    }
}

fn checked_prefix(prefix: LitStr, errors: &mut Diagnostics) -> Option<LitStr> {
    match name_fault(&prefix.value()) {
        None => Some(prefix),
        Some(fault) => {
            errors.at(&prefix, format!("prefix \"{}\" {fault}", prefix.value()));
            None
        }
    }
}

/// The options of one attribute, as far as they are right.
#[derive(Default)]
pub(crate) struct Options {
    seen: Vec<String>,
    pub(crate) name: Option<LitStr>,
    pub(crate) own: Vec<(Ident, LitStr)>,
    pub(crate) own_faulty: bool,
    pub(crate) name_faulty: bool,
    pub(crate) policy: Vec<(Ident, Lit)>,
    pub(crate) jitter: Option<(Duration, LitStr)>,
}

const POLICY: [&str; 8] =
    ["name", "jitter", "catch_up", "lease", "timeout", "max_attempts", "retries", "backoff"];

const SHORTEST_LEASE: Duration = Duration::from_secs(5);

const WITHOUT_CATCH_UP: &str = "write `catch_up = \"none\"` for no catch-up";

impl Options {
    pub(crate) fn set(&mut self, kind: MarkerKind, name: &Ident, value: &Value, errors: &mut Diagnostics) {
        let option = name.to_string();
        let own = own_options(kind).contains(&option.as_str());
        if !own && !POLICY.contains(&option.as_str()) {
            errors.at(name, unknown_option(kind, &option));
            // Without the option that was meant, the checks of schedule and names would complain once more.
            let meant = meant(&option, &allowed(kind));
            self.own_faulty |= meant.is_some_and(|meant| own_options(kind).contains(&meant));
            self.name_faulty |= meant == Some("name");
            return;
        }
        if self.seen.contains(&option) {
            errors.at(name, format!("`{option}` is given twice; remove one"));
            return;
        }
        self.seen.push(option.clone());
        let before = errors.count();
        match option.as_str() {
            "max_attempts" | "retries" => self.number(name, value, errors),
            _ => self.text(name, value, own, errors),
        }
        let faulty = errors.count() > before;
        self.own_faulty |= own && faulty;
        self.name_faulty |= option == "name" && faulty;
    }

    fn number(&mut self, name: &Ident, value: &Value, errors: &mut Diagnostics) {
        let option = name.to_string();
        let number = match &value.literal {
            Some(Lit::Int(number)) => whole_number(number),
            _ => None,
        };
        match number {
            Some(0) if option == "max_attempts" => {
                errors.at(
                    value,
                    "`max_attempts` is at least 1; without a further attempt write `max_attempts = 1`",
                );
            }
            Some(number) => self.policy.push((name.clone(), Lit::Int(number_literal(number, value)))),
            None => {
                let what = format!("is a whole number up to {}", u32::MAX);
                errors.at(
                    present(name, value),
                    format!("`{option}` {what}; write `{}`", option_example(&option)),
                );
            }
        }
    }

    fn text(&mut self, name: &Ident, value: &Value, own: bool, errors: &mut Diagnostics) {
        let option = name.to_string();
        let Some(Lit::Str(text)) = &value.literal else {
            let what = if value.tokens.is_empty() { "needs a value" } else { "is a text literal" };
            errors
                .at(present(name, value), format!("`{option}` {what}; write `{}`", option_example(&option)));
            return;
        };
        if own {
            self.own.push((name.clone(), text.clone()));
            return;
        }
        if option == "name" {
            self.name = Some(text.clone());
            return;
        }
        match policy_fault(&option, &text.value()) {
            Err(fault) => errors.at(text, fault),
            Ok(duration) => {
                if let (Some(duration), "jitter") = (duration, option.as_str()) {
                    self.jitter = Some((duration, text.clone()));
                }
                self.policy.push((name.clone(), Lit::Str(text.clone())));
            }
        }
    }
}

pub(crate) fn own_options(kind: MarkerKind) -> &'static [&'static str] {
    match kind {
        MarkerKind::Every => &["offset"],
        MarkerKind::Cron => &["tz", "dialect"],
        MarkerKind::At => &["tz"],
    }
}

pub(crate) fn allowed(kind: MarkerKind) -> Vec<&'static str> {
    own_options(kind).iter().chain(&POLICY).copied().collect()
}

pub(crate) fn option_example(name: &str) -> &'static str {
    match name {
        "offset" => "offset = \"5m\"",
        "tz" => "tz = \"Europe/Athens\"",
        "dialect" => "dialect = \"quartz\"",
        "name" => "name = \"sync\"",
        "jitter" => "jitter = \"500ms\"",
        "catch_up" => "catch_up = \"5m\"` or `catch_up = \"none\"",
        "lease" => "lease = \"30s\"",
        "timeout" => "timeout = \"2m\"",
        "max_attempts" => "max_attempts = 3",
        "retries" => "retries = 2",
        _ => "backoff = \"5s..5m\"",
    }
}

/// The value, or the option's name where it has none.
fn present(name: &Ident, value: &Value) -> TokenStream {
    if value.tokens.is_empty() { name.to_token_stream() } else { value.to_token_stream() }
}

/// `3`, `3u32` and `1_000`, but not `3u64`, whose type would not fit.
fn whole_number(number: &LitInt) -> Option<u32> {
    if !matches!(number.suffix(), "" | "u32") {
        return None;
    }
    number.base10_parse().ok()
}

fn number_literal(number: u32, place: &Value) -> LitInt {
    LitInt::new(&number.to_string(), Place::of(place).start)
}

fn unknown_option(kind: MarkerKind, option: &str) -> String {
    let word = kind.word();
    let owners: Vec<String> = MarkerKind::ALL
        .into_iter()
        .filter(|kind| own_options(*kind).contains(&option))
        .map(|kind| format!("`#[{}]`", kind.word()))
        .collect();
    let allowed = allowed(kind);
    if owners.is_empty() {
        format!(
            "unknown option `{option}`{} `#[{word}]` takes {}",
            did_you_mean(option, &allowed),
            list(&allowed)
        )
    } else {
        format!(
            "`{option}` is an option of {}, not of `#[{word}]`, which takes {}",
            owners.join(" and "),
            list(&allowed)
        )
    }
}

/// The duration that the text says, or what is wrong with it.
fn policy_fault(option: &str, text: &str) -> Result<Option<Duration>, String> {
    match option {
        "catch_up" if text == "none" => Ok(None),
        "backoff" => backoff_fault(text).map_or(Ok(None), Err),
        _ => {
            let duration = parse_duration(text).map_err(|error| match option {
                "catch_up" => format!("`catch_up`: {error}, or {WITHOUT_CATCH_UP}"),
                _ => format!("`{option}`: {error}"),
            })?;
            match option {
                _ if duration > LONGEST_OPTION => Err(too_long(option, text)),
                "lease" if duration < SHORTEST_LEASE => Err(format!(
                    "a lease is at least 5s, and \"{text}\" is less; write `lease = \"5s\"` or more"
                )),
                "timeout" if duration.is_zero() => {
                    Err("a timeout of zero ends every run at once; write more, or leave it out for none"
                        .to_owned())
                }
                _ => Ok(Some(duration)),
            }
        }
    }
}

fn too_long(option: &str, text: &str) -> String {
    format!("`{option}` \"{text}\" is longer than 100 years; write a shorter one")
}

fn backoff_fault(text: &str) -> Option<String> {
    let form = "write the first and the longest delay, e.g. `backoff = \"5s..5m\"`";
    let Some((first, longest)) = text.split_once("..") else {
        return Some(format!("`backoff` \"{text}\" is no range; {form}"));
    };
    match (parse_duration(first), parse_duration(longest)) {
        (Ok(first), Ok(_)) if first.is_zero() => {
            Some(format!("`backoff` \"{text}\" begins at zero, which would retry without a pause; {form}"))
        }
        (Ok(first), Ok(longest)) if first > longest => {
            Some(format!("`backoff` \"{text}\" is reversed; {form}"))
        }
        (Ok(_), Ok(longest)) if longest > LONGEST_OPTION => Some(too_long("backoff", text)),
        (Ok(_), Ok(_)) => None,
        (Err(error), _) | (_, Err(error)) => Some(format!("`backoff` \"{text}\": {error}; {form}")),
    }
}
