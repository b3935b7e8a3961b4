//! The schedule of one attribute: its texts and its own options, checked by the parser that reads them again at run time.

use anarchon_schedule::{At, Cron, Every, ParseError, Schedule as Checked, Spec, Where};
use proc_macro2::Ident;
use syn::{Lit, LitStr};

use crate::diagnostics::{Diagnostics, list};
use crate::options::{allowed, option_example};
use crate::parse::{MarkerKind, Value};

pub(crate) struct Schedule {
    pub(crate) kind: MarkerKind,
    pub(crate) texts: Vec<LitStr>,
    /// Options of `Every`, `Cron` or `At`.
    pub(crate) options: Vec<(Ident, LitStr)>,
    pub(crate) checked: Checked,
}

impl Schedule {
    pub(crate) fn check(
        kind: MarkerKind,
        texts: Vec<LitStr>,
        options: Vec<(Ident, LitStr)>,
        errors: &mut Diagnostics,
    ) -> Option<Self> {
        match spec(kind, &texts, &options).check() {
            Ok(checked) => Some(Self { kind, texts, options, checked }),
            Err(faults) => {
                for fault in faults {
                    errors.at(place_of(&fault, &texts, &options), &fault);
                }
                None
            }
        }
    }
}

fn spec(kind: MarkerKind, texts: &[LitStr], options: &[(Ident, LitStr)]) -> Spec {
    let option = |wanted: &str| options.iter().find(|(name, _)| name == wanted).map(|(_, text)| text.value());
    let mut texts = texts.iter().map(LitStr::value);
    let first = texts.next().unwrap_or_default();
    match kind {
        MarkerKind::Every => {
            let every = Every::new(first);
            Spec::Every(match option("offset") {
                Some(offset) => every.offset(offset),
                None => every,
            })
        }
        MarkerKind::Cron => {
            let mut cron = Cron::new(first);
            if let Some(tz) = option("tz") {
                cron = cron.tz(tz);
            }
            if let Some(dialect) = option("dialect") {
                cron = cron.dialect(dialect);
            }
            Spec::Cron(cron)
        }
        MarkerKind::At => {
            let mut at = texts.fold(At::new(first), At::and);
            if let Some(tz) = option("tz") {
                at = at.tz(tz);
            }
            Spec::At(at)
        }
    }
}

fn place_of<'a>(
    fault: &ParseError,
    texts: &'a [LitStr],
    options: &'a [(Ident, LitStr)],
) -> Option<&'a LitStr> {
    let named = |wanted: &str| options.iter().find(|(name, _)| name == wanted).map(|(_, text)| text);
    match fault.option() {
        Where::Schedule => texts.get(fault.index()),
        Where::Offset => named("offset"),
        Where::Tz => named("tz"),
        Where::Dialect => named("dialect"),
        _ => None,
    }
    .or(texts.first())
}

pub(crate) fn schedule_text(
    kind: MarkerKind,
    value: &Value,
    before: &[LitStr],
    errors: &mut Diagnostics,
) -> Option<LitStr> {
    let word = kind.word();
    let Some(Lit::Str(text)) = &value.literal else {
        let allowed = allowed(kind);
        match syn::parse2::<Ident>(value.tokens.clone()) {
            Ok(option) if allowed.iter().any(|name| option == name) => {
                errors.at(&option, format!("`{option}` needs a value; write `{}`", option_example(&option.to_string())));
            }
            _ if before.is_empty() => errors.at(
                value,
                format!(
                    "the schedule is a text literal, since it is checked when the program is built; write `{}`, or hand \
                     a value known only at run time to the builder",
                    example(kind)
                ),
            ),
            _ => errors.at(value, format!("this is no option; write `option = value`, with one of {}", list(&allowed))),
        }
        return None;
    };
    if !before.is_empty() && kind != MarkerKind::At {
        errors.at(
            text,
            format!("`#[{word}]` takes one text; for a second schedule write a second `#[{word}]`, each with its `name`"),
        );
        return None;
    }
    Some(text.clone())
}

pub(crate) fn example(kind: MarkerKind) -> &'static str {
    match kind {
        MarkerKind::Every => "#[every(\"10s\")]",
        MarkerKind::Cron => "#[cron(\"0 8 * * 1-5\")]",
        MarkerKind::At => "#[at(\"2027-01-01T00:00:00Z\")]",
    }
}

pub(crate) fn wanted(kind: MarkerKind) -> String {
    let what = match kind {
        MarkerKind::Every => "an interval",
        MarkerKind::Cron => "an expression",
        MarkerKind::At => "an instant",
    };
    format!("{what}, e.g. `{}`", example(kind))
}
