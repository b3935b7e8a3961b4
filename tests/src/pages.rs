//! What the pages of the repository show.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folder of the repository.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The folder of the guide.
#[must_use]
pub fn guide() -> PathBuf {
    root().join("anarchon/src/guide")
}

/// A file, by its path from the root of the repository.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The blocks of code of a page, each with its kind.
pub fn blocks(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

/// The blocks of one kind.
#[must_use]
pub fn blocks_of(page: &str, kind: &str) -> Vec<String> {
    blocks(page).filter(|(of, _)| *of == kind).map(|(_, text)| text.to_owned()).collect()
}
