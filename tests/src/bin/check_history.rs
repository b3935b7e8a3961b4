//! Says whether a history of real processes keeps what is promised: `check_history HISTORY DEEDS`.
//!
//! HISTORY is what the handlers of `worker` wrote (see `history.rs`), DEEDS what was done to them (see `deeds.rs`). Prints a line
//! for each broken promise, lost occurrence and overlap; the exit code is 1 if there is one, and 2 if a file cannot be read.

use std::{fs, process::ExitCode};

use anarchon_tests::{checker, deeds::Deed, history::History};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [history, deeds] = &arguments[..] else {
        eprintln!("check_history HISTORY DEEDS");
        return ExitCode::from(2);
    };
    match check(history, deeds) {
        Ok(problems) => {
            problems.iter().for_each(|problem| println!("{problem}"));
            ExitCode::from(u8::from(!problems.is_empty()))
        }
        Err(error) => {
            eprintln!("check_history: {error}");
            ExitCode::from(2)
        }
    }
}

fn check(history: &str, deeds: &str) -> Result<Vec<String>, String> {
    let read = |file: &str| fs::read_to_string(file).map_err(|error| format!("{file}: {error}"));
    let (history, text) = (History::read(&read(history)?)?, read(deeds)?);
    let read =
        |line: &str| Deed::parse(line).ok_or_else(|| format!("{deeds} holds a line that is none: {line:?}"));
    let deeds: Vec<Deed> = text.lines().map(read).collect::<Result<_, _>>()?;
    Ok(checker::problems(&history, &deeds))
}
