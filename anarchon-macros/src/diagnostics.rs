//! All mistakes of one impl block, reported in one build.

use anarchon_schedule::nearest;
use proc_macro2::TokenStream;
use quote::ToTokens;

/// Collects errors, so that the user sees all of them at once and not one per build.
#[derive(Default)]
pub(crate) struct Diagnostics {
    errors: Vec<syn::Error>,
}

impl Diagnostics {
    /// Records a mistake at the tokens that have to change.
    pub(crate) fn at(&mut self, place: impl ToTokens, message: impl std::fmt::Display) {
        self.errors.push(syn::Error::new_spanned(place, message));
    }

    pub(crate) fn push(&mut self, error: syn::Error) {
        self.errors.push(error);
    }

    pub(crate) fn count(&self) -> usize {
        self.errors.len()
    }

    #[cfg(test)]
    pub(crate) fn messages(&self) -> Vec<String> {
        self.errors.iter().map(ToString::to_string).collect()
    }

    /// One `compile_error!` for each mistake.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.errors.iter().map(syn::Error::to_compile_error).collect()
    }
}

/// `, did you mean `x`?`, or a semicolon where no candidate is near.
pub(crate) fn did_you_mean(word: &str, candidates: &[&str]) -> String {
    meant(word, candidates).map_or_else(|| ";".to_owned(), |near| format!(", did you mean `{near}`?"))
}

/// The candidate that is misspelt, shortened or lengthened in `word`: `leese`, `max` and `retry`, `lease_time`.
pub(crate) fn meant<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let begins_like = |candidate: &&&str| {
        let alike = word.bytes().zip(candidate.bytes()).take_while(|(one, other)| one == other).count();
        // All but the last letter of the shorter one, for `retry` and `retries`.
        alike >= 3 && alike + 1 >= word.len().min(candidate.len())
    };
    nearest(word, candidates.iter().copied()).or_else(|| candidates.iter().find(begins_like).copied())
}

/// `a, b and c`, each in backticks.
pub(crate) fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}
