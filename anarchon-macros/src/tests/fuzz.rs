//! Whatever tokens stand under an attribute, the answer is code that can be read or a message.
//!
//! The corpus is what stands under `#[jobs]` in `tests/ui`, good and bad.

use std::{fs, path::Path};

use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};

use self::fuzzing::{Random, play};
use super::*;

#[path = "../../../anarchon-schedule/tests/fuzzing/mod.rs"]
mod fuzzing;

const PIECES: [&str; 64] = [
    ",",
    "=",
    "::",
    "->",
    "..",
    "&",
    "#",
    "!",
    "-1",
    "'a",
    "'a'",
    "1.5",
    "1u64",
    "4294967296",
    "18446744073709551616",
    "\"\"",
    "\"10s\"",
    "\"0 8 * * 1-5\"",
    "\"2027-01-01T00:00\"",
    "\"Europe/Athens\"",
    "\"none\"",
    "\"5s..5m\"",
    "b\"10s\"",
    "c\"10s\"",
    "r#\"10s\"#",
    "\"\\u{0}\\n\"",
    "\"é\"",
    "true",
    "()",
    "[]",
    "{}",
    "self",
    "&self",
    "&mut self",
    "Self",
    "r#type",
    "é",
    "_",
    "async",
    "unsafe",
    "const",
    "extern \"C\"",
    "pub(crate)",
    "default",
    "fn f() {}",
    "async fn g(&self) {}",
    "impl",
    "impl<T> ",
    "for",
    "dyn A",
    "where T: A",
    "<'a, T, const N: usize>",
    "ctx: &Context",
    "-> JobResult",
    "#[every(\"10s\")]",
    "#[cron(\"@daily\", tz = \"UTC\")]",
    "#[at(\"2027-01-01T00:00Z\")]",
    "#[jobs]",
    "#[cfg(unix)]",
    "#[cfg_attr(all(), every(\"1s\"))]",
    "#![allow(unused)]",
    "name = \"a\"",
    "prefix = \"a\", crate = b::c, more",
    "m! { }",
];

/// What stands in the brackets of `#[jobs(…)]`, and what it stands on.
type Use = (Vec<TokenTree>, Vec<TokenTree>);

#[test]
fn mutations_of_token_streams_are_code_or_a_message() {
    let corpus = corpus();
    let good: Vec<Use> = corpus.iter().filter(|(arguments, item)| check(arguments, item)).cloned().collect();
    let make = |random: &mut Random| {
        let (arguments, item) =
            if random.below(2) == 0 { random.pick(&good) } else { random.pick(&corpus) }.clone();
        if random.below(4) == 0 {
            (Tokens(mutated(random, arguments, &corpus)), Tokens(item))
        } else {
            (Tokens(arguments), Tokens(mutated(random, item, &corpus)))
        }
    };
    play(5_000, make, |(arguments, item)| check(&arguments.0, &item.0));
}

fn check(arguments: &[TokenTree], item: &[TokenTree]) -> bool {
    let (arguments, item): (TokenStream, TokenStream) = (stream(arguments), stream(item));
    for kind in [MarkerKind::Every, MarkerKind::Cron, MarkerKind::At] {
        assert!(
            arguments.to_string() == expand::READ || !messages(marker(kind, &arguments, &item)).is_empty()
        );
    }
    let code = expand_jobs(arguments, &item);
    let messages = messages(code.clone());
    for message in &messages {
        assert!(message.len() > 10, "{message:?}");
    }
    if messages.is_empty() {
        // Where the block is none to the compiler, it says so by itself.
        let read = syn::parse2::<syn::File>(code.clone());
        let is_readable = syn::parse2::<syn::ItemImpl>(item).is_ok();
        assert!(read.is_ok() || !is_readable, "{:?} in {code}", read.err());
    }
    messages.is_empty()
}

/// What each `compile_error!` says that we wrote, which stands outside of all groups.
fn messages(code: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = code.into_iter().collect();
    let calls = tokens.windows(3).filter_map(|window| match window {
        [TokenTree::Ident(word), TokenTree::Punct(_), TokenTree::Group(group)] if word == "compile_error" => {
            Some(syn::parse2::<syn::LitStr>(group.stream()).map(|text| text.value()).unwrap_or_default())
        }
        _ => None,
    });
    calls.collect()
}

/// Of the tokens or, more often, of a group somewhere in them.
fn mutated(random: &mut Random, mut tokens: Vec<TokenTree>, corpus: &[Use]) -> Vec<TokenTree> {
    let is_group = |place: &usize| matches!(tokens[*place], TokenTree::Group(_));
    let places: Vec<usize> = (0..tokens.len()).filter(is_group).collect();
    if !places.is_empty() && random.below(5) > 0 {
        let place = *random.pick(&places);
        if let TokenTree::Group(group) = tokens[place].clone() {
            let inner = mutated(random, group.stream().into_iter().collect(), corpus);
            let delimiter = if random.below(16) == 0 { delimiter(random) } else { group.delimiter() };
            tokens[place] = Group::new(delimiter, stream(&inner)).into();
        }
        return tokens;
    }
    let other = |random: &mut Random| {
        let item = random.pick(corpus).1.clone();
        part(random, item)
    };
    random.mutate(tokens, other, piece)
}

/// The tokens, or those of a group somewhere in them.
fn part(random: &mut Random, tokens: Vec<TokenTree>) -> Vec<TokenTree> {
    if random.below(4) == 0 || tokens.is_empty() {
        return tokens;
    }
    match random.pick(&tokens).clone() {
        TokenTree::Group(group) => part(random, group.stream().into_iter().collect()),
        TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => tokens,
    }
}

fn piece(random: &mut Random) -> Vec<TokenTree> {
    match random.below(8) {
        0 => vec![
            Literal::string(&random.text(&["10s", "0 8 * * 1-5", "2027-01-01T00:00", "UTC"], &PIECES)).into(),
        ],
        // What the compiler hands over for an argument of `macro_rules!`.
        1 => vec![Group::new(delimiter(random), stream(&piece(random))).into()],
        _ => random.pick(&PIECES).parse::<TokenStream>().unwrap().into_iter().collect(),
    }
}

fn delimiter(random: &mut Random) -> Delimiter {
    *random.pick(&[
        Delimiter::Parenthesis,
        Delimiter::Brace,
        Delimiter::Bracket,
        Delimiter::None,
        Delimiter::None,
    ])
}

fn stream(tokens: &[TokenTree]) -> TokenStream {
    tokens.iter().cloned().collect()
}

fn corpus() -> Vec<Use> {
    let mut corpus = Vec::new();
    for folder in ["fail", "pass"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/ui").join(folder);
        for file in fs::read_dir(folder).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            find_uses(&text.parse::<TokenStream>().unwrap().into_iter().collect::<Vec<_>>(), &mut corpus);
        }
    }
    // A folder has no order, and a seed has to mean the same everywhere.
    corpus.sort_by_cached_key(|(arguments, item)| format!("{} {}", stream(arguments), stream(item)));
    assert!(corpus.len() > 60, "{}", corpus.len());
    corpus
}

/// `#[jobs(…)]` and what follows, up to its braces or semicolon.
fn find_uses(tokens: &[TokenTree], corpus: &mut Vec<Use>) {
    for (place, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
        let jobs = inner.iter().position(|token| matches!(token, TokenTree::Ident(word) if word == "jobs"));
        let (Delimiter::Bracket, Some(jobs)) = (group.delimiter(), jobs) else {
            find_uses(&inner, corpus);
            continue;
        };
        let arguments = match inner.get(jobs + 1) {
            Some(TokenTree::Group(group)) => group.stream().into_iter().collect(),
            _ => Vec::new(),
        };
        let ends = |token: &TokenTree| match token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(punct) => punct.as_char() == ';',
            TokenTree::Ident(_) | TokenTree::Literal(_) => false,
        };
        let rest = &tokens[place + 1..];
        let end = rest.iter().position(ends).map_or(rest.len(), |end| end + 1);
        corpus.push((arguments, rest[..end].to_vec()));
    }
}

/// Shown as the text that they came from.
struct Tokens(Vec<TokenTree>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", stream(&self.0))
    }
}
