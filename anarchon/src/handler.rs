//! What a handler may take and return, and how it is kept: boxed, and marked for the pool it runs on.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::context::Context;

/// What a handler returns when it uses `?` on errors of several kinds.
///
/// Any `Result<(), E>` will do whose `E` converts into the boxed error; this is the one that takes them all.
///
/// ```
/// use anarchon::JobResult;
///
/// async fn sync() -> JobResult {
///     let number: u32 = "7".parse()?;
///     let name = String::from_utf8(vec![b'a'])?;
///     # let _ = (number, name);
///     JobResult::Ok(())
/// }
/// ```
pub type JobResult = Result<(), Box<dyn Error + Send + Sync>>;

/// What came of a run, whatever type the handler returned.
pub(crate) type Outcome = JobResult;

/// The code of an asynchronous one.
pub(crate) type AsyncHandler = Arc<dyn Fn(Context) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// A job's code. Asynchronous ones run on the caller's runtime, synchronous ones on its blocking pool.
#[derive(Clone)]
pub enum Handler {
    /// An `async fn`.
    Async(AsyncHandler),
    /// A `fn`.
    Sync(Arc<dyn Fn(Context) -> Outcome + Send + Sync>),
}

impl Handler {
    /// The handler of a job that is declared through the builder.
    pub(crate) fn from_builder<F, R>(handler: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output: HandlerResult> + Send + 'static,
    {
        Self::Async(Arc::new(move |context| {
            let run = handler(context);
            Box::pin(async move { run.await.into_outcome() })
        }))
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Async(_) => "Async",
            Self::Sync(_) => "Sync",
        })
    }
}

/// What a handler may return: `()`, or `Result<(), E>` with an `E` that converts into `Box<dyn Error + Send + Sync>`.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "a handler returns `()` or `Result<(), E>`",
    note = "`E` is any error that converts into `Box<dyn std::error::Error + Send + Sync>`, as those of anyhow and eyre do",
    note = "`anarchon::JobResult` is the `Result<(), E>` that takes every error through `?`"
)]
pub trait HandlerResult {
    /// The same with the error boxed.
    #[doc(hidden)]
    fn into_outcome(self) -> Outcome;
}

impl HandlerResult for () {
    fn into_outcome(self) -> Outcome {
        Ok(())
    }
}

// Without this the compiler would speak of `From<E>` for a box instead of what a handler returns.
#[diagnostic::do_not_recommend]
impl<E> HandlerResult for Result<(), E>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    fn into_outcome(self) -> Outcome {
        self.map_err(Into::into)
    }
}

/// What a handler may take: `Context` or `&Context`.
#[diagnostic::on_unimplemented(
    message = "a handler cannot take `{Self}`",
    label = "a handler takes `Context` or `&Context`",
    note = "keep everything else that it needs in fields of the type with the jobs"
)]
pub trait HandlerParameter<'context> {
    #[doc(hidden)]
    fn from_context(context: &'context Context) -> Self;
}

impl HandlerParameter<'_> for Context {
    fn from_context(context: &Context) -> Self {
        context.clone()
    }
}

impl<'context> HandlerParameter<'context> for &'context Context {
    fn from_context(context: &'context Context) -> Self {
        context
    }
}

/// Called by generated code with the place of the parameter's type.
pub fn parameter<'context, P: HandlerParameter<'context>>(context: &'context Context) -> P {
    P::from_context(context)
}

/// Called by generated code with the place of the return type.
///
/// # Errors
///
/// The handler's.
pub fn outcome<R: HandlerResult>(result: R) -> Outcome {
    result.into_outcome()
}

/// Called by generated code with the place of the method's name. It is the only bound on `Send`: a second one would say
/// everything twice.
pub fn asynchronous<F, R>(handler: F) -> Handler
where
    F: Fn(Context) -> R + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    Handler::Async(Arc::new(move |context| Box::pin(handler(context))))
}

/// Called by generated code for a method without `async`.
pub fn blocking<F>(handler: F) -> Handler
where
    F: Fn(Context) -> Outcome + Send + Sync + 'static,
{
    Handler::Sync(Arc::new(handler))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::ParseIntError;

    fn message(outcome: Outcome) -> String {
        outcome.unwrap_err().to_string()
    }

    #[test]
    fn every_error_that_boxes_is_a_handlers_error() {
        let number: Result<(), ParseIntError> = "x".parse::<u8>().map(drop);
        assert_eq!(message(outcome(number)), "invalid digit found in string");
        assert_eq!(message(outcome(Err("text"))), "text");
        assert_eq!(message(outcome(JobResult::Err("boxed".into()))), "boxed");
        assert!(outcome(()).is_ok());
        assert!(outcome(JobResult::Ok(())).is_ok());
    }

    #[test]
    fn a_builder_handler_is_a_closure_an_async_fn_or_an_async_closure() {
        async fn named(_: Context) {}
        for handler in [
            Handler::from_builder(named),
            Handler::from_builder(|_| async { JobResult::Ok(()) }),
            Handler::from_builder(|context: Context| async move {
                let _ = context;
                Err::<(), _>("no")
            }),
            Handler::from_builder(async |_| Ok::<(), std::fmt::Error>(())),
        ] {
            assert!(matches!(handler, Handler::Async(_)));
        }
    }
}
