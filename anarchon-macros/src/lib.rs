//! The attribute macros of the anarchon job scheduler.
//!
//! Use them through the crate `anarchon`, which re-exports them: the code they write names everything through it.

mod check;
mod diagnostics;
mod expand;
mod handler;
mod model;
mod options;
mod parse;
mod schedule;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use proc_macro2::{Span, TokenTree};
use quote::quote;

use crate::diagnostics::Diagnostics;
use crate::parse::{Block, MarkerKind};

/// Makes the methods of an impl block that have a schedule into jobs, and the type into one with `Jobs`.
///
/// A schedule is [`#[every]`](macro@every), [`#[cron]`](macro@cron) or [`#[at]`](macro@at). Methods without one are left
/// alone, and so are all other attributes. A method with several schedules has a job for each, and each needs its `name`.
///
/// A handler is an `async fn`, or a `fn`, which runs on tokio's blocking pool. It takes `&self` or no receiver, then at most
/// one `Context` or `&Context`, and returns `()` or `Result<(), E>`, where `E` converts into
/// `Box<dyn std::error::Error + Send + Sync>`; `JobResult` is one that takes every error through `?`. The future of an
/// `async fn` has to be `Send`, and the type with the jobs `Send + Sync + 'static`.
///
/// `#[cfg]` on a method holds for its job. A schedule inside `cfg_attr` is refused. A literal may come from an argument of
/// `macro_rules!`.
///
/// # Options
///
/// - `prefix = "billing"`: the names of the block's jobs become `billing.sync`. 1–100 of `a-z A-Z 0-9 _ - .`, together with
///   the name; no default.
/// - `more`: a further impl block of a type that has `#[jobs]` already, in any module of its crate, with its own `prefix`.
/// - `crate = my::anarchon`: where anarchon is found, if it is renamed or re-exported. Default `::anarchon`.
///
/// # Linking
///
/// Jobs reach the scheduler through the linker, from every module and crate that is linked, in debug builds, in release
/// builds and with LTO. A job runs when a value of its type is handed to `run` or to `Scheduler::jobs`, and naming the type
/// is also what links its crate: a dependency that stands in `Cargo.toml` alone, and on no line of the source, is not
/// linked. Where only some other item of it is wanted, `use other as _;` is enough.
///
/// The impl has to be of one concrete type: the jobs of `impl<T> Worker<T>` cannot be collected, those of
/// `impl Worker<u8>` can.
///
/// # Errors
///
/// All mistakes of a block are reported in one build, each at the literal or word to change: an impl that is generic or of
/// a trait; a block without a schedule; two jobs of one name; several schedules without names; a handler of another shape;
/// and what [`every`](macro@every), [`cron`](macro@cron) and [`at`](macro@at) refuse. A second `#[jobs]` on one type is a
/// second `impl Jobs`; write `#[jobs(more)]`.
#[proc_macro_attribute]
pub fn jobs(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand_jobs(arguments.into(), &item.into()).into()
}

/// A schedule at a fixed interval. Read by [`#[jobs]`](macro@jobs) on the impl block.
///
/// `#[every("10s")]`: a duration of at least 100 ms.
///
/// The occurrences lie on one grid, the same on all instances and across restarts: Unix epoch + offset + n × interval. So
/// `"1d"` is 00:00 UTC, and `"1w"` is Thursday 00:00 UTC.
///
/// # Options
///
/// `offset = "5m"` moves the grid: a duration under the interval, default zero.
///
/// | option | default | bounds |
/// | --- | --- | --- |
/// | `name = "sync"` | the method's name | 1–100 of `a-z A-Z 0-9 _ - .`; one of its own for each of several schedules |
/// | `jitter = "500ms"` | random, up to 500 ms or a tenth of the interval | under the interval |
/// | `catch_up = "5m"` | 5 minutes | a duration, or `"none"`: within the jitter + 1 s |
/// | `lease = "30s"` | 30 seconds | at least 5 s |
/// | `timeout = "2m"` | none | above zero |
/// | `max_attempts = 3` | 3 | at least 1; attempts that ended by a crash or a lost lease |
/// | `retries = 2` | 0 | 0 or more; attempts after an error or a time-out, counted apart |
/// | `backoff = "5s..5m"` | `5s..5m` | the first and the longest delay before a retry, the first above zero |
///
/// A duration is a text such as `250ms`, `10s`, `5m`, `1h30m`, `1d`, `1w`. Each option is a method of `Job` as well, and
/// its default can be set for all jobs on `Scheduler`.
///
/// # Errors
///
/// Every mistake in the text and in the options is a build error at the literal or word to change, all of a block in one
/// build. Without `#[jobs]` on the impl block the attribute itself is the error.
#[proc_macro_attribute]
pub fn every(arguments: TokenStream, item: TokenStream) -> TokenStream {
    marker(MarkerKind::Every, &arguments.into(), &item.into()).into()
}

/// A schedule with a cron expression. Read by [`#[jobs]`](macro@jobs) on the impl block.
///
/// `#[cron("0 8 * * 1-5", tz = "Europe/Athens")]`: 5 fields, or 6 with seconds first, or one of `@hourly`, `@daily`,
/// `@midnight`, `@weekly`, `@monthly`, `@yearly`, `@annually`.
///
/// It means what Debian's cron means by it: `1-5` is Monday to Friday, 0 and 7 are Sunday; names in any case, lists, ranges
/// and steps; `L`, `LW`, `15W`, `5L` and `5#2`. Day of month and day of week are OR-ed, unless one of the texts starts with
/// `*`.
///
/// When the clocks change: a job whose minute and hour do not start with `*` and that falls into a gap runs at the first
/// instant after it, and runs once in a repeated hour. Others follow the real minutes.
///
/// # Options
///
/// - `tz = "Europe/Athens"`: the zone of the fields, by its IANA name. Default `UTC`.
/// - `dialect = "quartz"`: 6 or 7 fields as in Quartz and the crate `cron`, with seconds first and an optional year: Sunday
///   is 1, `?` is allowed, the day fields are AND-ed. Default is Debian's.
///
/// | option | default | bounds |
/// | --- | --- | --- |
/// | `name = "sync"` | the method's name | 1–100 of `a-z A-Z 0-9 _ - .`; one of its own for each of several schedules |
/// | `jitter = "500ms"` | random, up to 500 ms or a tenth of the interval | under the interval |
/// | `catch_up = "5m"` | 5 minutes | a duration, or `"none"`: within the jitter + 1 s |
/// | `lease = "30s"` | 30 seconds | at least 5 s |
/// | `timeout = "2m"` | none | above zero |
/// | `max_attempts = 3` | 3 | at least 1; attempts that ended by a crash or a lost lease |
/// | `retries = 2` | 0 | 0 or more; attempts after an error or a time-out, counted apart |
/// | `backoff = "5s..5m"` | `5s..5m` | the first and the longest delay before a retry, the first above zero |
///
/// A duration is a text such as `250ms`, `10s`, `5m`, `1h30m`, `1d`, `1w`. Each option is a method of `Job` as well, and
/// its default can be set for all jobs on `Scheduler`.
///
/// # Errors
///
/// Every mistake in the text and in the options is a build error at the literal or word to change, all of a block in one
/// build. Without `#[jobs]` on the impl block the attribute itself is the error.
#[proc_macro_attribute]
pub fn cron(arguments: TokenStream, item: TokenStream) -> TokenStream {
    marker(MarkerKind::Cron, &arguments.into(), &item.into()).into()
}

/// A schedule at one or more instants. Read by [`#[jobs]`](macro@jobs) on the impl block.
///
/// `#[at("2027-01-01T00:00:00Z")]`: RFC 3339 with an offset, or local time with `tz`; several, with commas between them, for
/// several occurrences of one job.
///
/// # Options
///
/// `tz = "Europe/Athens"`: the zone of instants without an offset, by its IANA name; no default. A local time that the
/// clocks skip, or show twice, is refused.
///
/// | option | default | bounds |
/// | --- | --- | --- |
/// | `name = "sync"` | the method's name | 1–100 of `a-z A-Z 0-9 _ - .`; one of its own for each of several schedules |
/// | `jitter = "500ms"` | random, up to 500 ms or a tenth of the interval | under the interval |
/// | `catch_up = "5m"` | 5 minutes | a duration, or `"none"`: within the jitter + 1 s |
/// | `lease = "30s"` | 30 seconds | at least 5 s |
/// | `timeout = "2m"` | none | above zero |
/// | `max_attempts = 3` | 3 | at least 1; attempts that ended by a crash or a lost lease |
/// | `retries = 2` | 0 | 0 or more; attempts after an error or a time-out, counted apart |
/// | `backoff = "5s..5m"` | `5s..5m` | the first and the longest delay before a retry, the first above zero |
///
/// A duration is a text such as `250ms`, `10s`, `5m`, `1h30m`, `1d`, `1w`. Each option is a method of `Job` as well, and
/// its default can be set for all jobs on `Scheduler`.
///
/// # Errors
///
/// Every mistake in the text and in the options is a build error at the literal or word to change, all of a block in one
/// build. Without `#[jobs]` on the impl block the attribute itself is the error.
#[proc_macro_attribute]
pub fn at(arguments: TokenStream, item: TokenStream) -> TokenStream {
    marker(MarkerKind::At, &arguments.into(), &item.into()).into()
}

fn expand_jobs(
    arguments: proc_macro2::TokenStream,
    item: &proc_macro2::TokenStream,
) -> proc_macro2::TokenStream {
    let mut errors = Diagnostics::default();
    let block = match syn::parse2::<Block>(item.clone()) {
        Ok(block) => block,
        Err(error) => {
            errors.push(no_block(item, error));
            let errors = errors.into_tokens();
            return quote!(#errors #item);
        }
    };
    let options = options::BlockOptions::read(arguments, &mut errors);
    let mut jobs = model::Jobs::read(options, &block, &mut errors);
    check::check(&mut jobs, &mut errors);
    let code = expand::expand(&jobs, &block);
    let errors = errors.into_tokens();
    quote!(#code #errors)
}

fn no_block(item: &proc_macro2::TokenStream, error: syn::Error) -> syn::Error {
    let is_impl =
        item.clone().into_iter().any(|token| matches!(token, TokenTree::Ident(word) if word == "impl"));
    if is_impl {
        return error;
    }
    syn::Error::new(
        Span::call_site(),
        "`#[jobs]` goes on an impl block of the type with the jobs: `impl Type { … }`",
    )
}

/// `#[jobs]` reads the markers and takes them off. One that is expanded by the compiler stands in the wrong place, but for
/// those that `#[jobs]` leaves behind to show that their imports are used.
fn marker(
    kind: MarkerKind,
    arguments: &proc_macro2::TokenStream,
    item: &proc_macro2::TokenStream,
) -> proc_macro2::TokenStream {
    if arguments.to_string() == expand::READ {
        return proc_macro2::TokenStream::new();
    }
    let message = format!(
        "`#[{word}]` is read by `#[jobs]`; put `#[jobs]` on the impl block around the method",
        word = kind.word()
    );
    let error = syn::Error::new(Span::call_site(), message).into_compile_error();
    quote!(#error #item)
}
