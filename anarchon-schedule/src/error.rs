use std::fmt;
use std::ops::Range;

/// Which of the things a user wrote an error is about.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Where {
    /// The schedule itself: the interval, the cron expression, or the instant that [`ParseError::index`] counts.
    Schedule,
    /// `offset` of an interval.
    Offset,
    /// `tz`.
    Tz,
    /// `dialect` of a cron expression.
    Dialect,
}

/// A text that does not say a schedule: what is wrong, where, and what to write instead.
///
/// `Display` gives the whole sentence; [`range`](Self::range) is the part of the text to change, in bytes.
///
/// ```
/// use anarchon_schedule::{Cron, Spec, Where};
///
/// let errors = Spec::from(Cron::new("60 8 * * *")).check().unwrap_err();
/// assert_eq!(errors[0].to_string(), r#"minute "60" is out of range 0–59 in "60 8 * * *"; write 0 to 59"#);
/// assert_eq!(errors[0].range(), 0..2);
/// assert_eq!(errors[0].option(), Where::Schedule);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    problem: String,
    mend: String,
    range: Range<usize>,
    option: Where,
    index: usize,
}

impl ParseError {
    pub(crate) fn new(range: Range<usize>, problem: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { problem: problem.into(), mend: mend.into(), range, option: Where::Schedule, index: 0 }
    }

    pub(crate) fn on(self, option: Where) -> Self {
        Self { option, ..self }
    }

    pub(crate) fn nth(self, index: usize) -> Self {
        Self { index, ..self }
    }

    /// What is wrong, with the value and its place.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What to write instead.
    pub fn mend(&self) -> &str {
        &self.mend
    }

    /// The bytes of the text to change. Always on character boundaries; the whole value where it was not a text.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The argument to change.
    pub fn option(&self) -> Where {
        self.option
    }

    /// Which of several instants of an `at` it is about, from 0; 0 for everything else.
    pub fn index(&self) -> usize {
        self.index
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.mend)
    }
}

impl std::error::Error for ParseError {}

/// The candidate that `word` was most likely meant to be, or `None` if none is near.
///
/// Case does not count. For «did you mean» in messages about zones, options and names.
///
/// ```
/// let options = ["jitter", "lease", "timeout"];
/// assert_eq!(anarchon_schedule::nearest("jiter", options.into_iter()), Some("jitter"));
/// assert_eq!(anarchon_schedule::nearest("colour", options.into_iter()), None);
/// ```
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A text of kilobytes is no misspelt name, and the comparison costs the product of both lengths.
    if word.is_empty() || word.len() > 100 {
        return None;
    }
    let word = word.to_lowercase();
    let length = word.chars().count();
    candidates
        .filter_map(|candidate| {
            let other = candidate.chars().count();
            let allowed = 1 + length.min(other) / 5;
            // The distance is at least the difference in length, which is far cheaper to see.
            let near = length.abs_diff(other) <= allowed;
            let distance = near.then(|| strsim::damerau_levenshtein(&word, &candidate.to_lowercase()))?;
            (distance <= allowed).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
