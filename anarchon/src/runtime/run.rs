//! One run: a handler on the caller's runtime, guarded by the trust in its lease.

use std::{
    any::Any,
    error::Error as StdError,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
};

use futures_util::future::BoxFuture;
use tokio::{runtime::Handle, task::AbortHandle};
use tracing::Instrument;

use crate::{
    context::{Context, RunState},
    engine::RunEnd,
    handler::Handler,
    protocol::Occurrence,
};

/// A run that goes on, as the driver keeps it.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) state: Arc<RunState>,
    abort: AbortHandle,
}

impl Running {
    /// Drops the handler's future at the next chance; a handler that blocks its thread goes on until it returns.
    pub(crate) fn abort(&self) {
        self.abort.abort();
    }
}

/// Starts a handler on the caller's runtime: asynchronous ones as a task, others on the blocking pool. `ended` is told
/// when it has really ended.
pub(crate) fn spawn(
    handler: &Handler,
    context: Context,
    runtime: &Handle,
    ended: impl FnOnce(RunEnd) + Send + 'static,
) -> Running {
    let state = Arc::clone(&context.state);
    let span = span(&context);
    let task = match handler {
        Handler::Async(handler) => {
            let (handler, state) = (Arc::clone(handler), Arc::clone(&state));
            // The handler's own code starts inside the task: it may panic or block before its first await.
            let future: BoxFuture<'static, _> =
                Box::pin(async move { handler(context).await }.instrument(span));
            runtime.spawn(Guarded { future: Some(future), state })
        }
        Handler::Sync(handler) => {
            let (handler, state) = (Arc::clone(handler), Arc::clone(&state));
            runtime.spawn_blocking(move || {
                // It may have waited for a free thread until its lease was over.
                if state.check().is_some() {
                    return Ended::Dropped;
                }
                Ended::Returned(span.in_scope(|| told(handler(context))))
            })
        }
    };
    let abort = task.abort_handle();
    let seen = Arc::clone(&state);
    // On the scheduler's own runtime: the caller's may be blocked by a handler, or gone.
    #[expect(clippy::disallowed_methods, reason = "runtime/ is where tasks are spawned")]
    tokio::spawn(async move {
        let error = match task.await {
            Ok(Ended::Returned(error)) => error,
            Ok(Ended::Dropped) => return ended(RunEnd::Dropped),
            Err(error) => match error.try_into_panic() {
                Ok(payload) => Some(cut(format!("panicked: {}", panic_message(&*payload)))),
                Err(_aborted) => return ended(RunEnd::Dropped),
            },
        };
        ended(RunEnd::Returned { error, saw_cancel: seen.was_seen() });
    });
    Running { state, abort }
}

#[derive(Debug)]
enum Ended {
    /// With the text of its error.
    Returned(Option<String>),
    Dropped,
}

/// Polls the handler only while its lease may be trusted, and sets its cancellation before it polls one too late.
struct Guarded {
    future: Option<BoxFuture<'static, crate::handler::Outcome>>,
    state: Arc<RunState>,
}

impl Future for Guarded {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Ended> {
        self.state.check();
        if self.state.is_over() {
            self.future = None;
        }
        match &mut self.future {
            Some(future) => future.as_mut().poll(cx).map(|result| Ended::Returned(told(result))),
            None => Poll::Ready(Ended::Dropped),
        }
    }
}

fn span(context: &Context) -> tracing::Span {
    let facts = context.facts();
    let occurrence = match facts.occurrence {
        Occurrence::Planned(at) => at.to_string(),
        manual @ Occurrence::Manual(_) => manual.to_string(),
    };
    tracing::info_span!(
        "run",
        job = %facts.job,
        %occurrence,
        attempt = facts.attempt,
        token = facts.token.0,
        instance = %facts.instance,
        store = %facts.store,
    )
}

/// The text of a handler's error. Made where the handler ran: it is the user's code as well, and may panic or block.
fn told(result: crate::handler::Outcome) -> Option<String> {
    result.err().map(|error| chain(&*error))
}

/// An error and its sources, as `Display` says them: `Debug` of some errors is a backtrace of sixty lines.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    let mut depth = 0;
    // A chain may be endless, and what is longer is cut anyway.
    while let Some(cause) = source.filter(|_| depth < 64 && text.len() < 4 * MESSAGE) {
        depth += 1;
        let cause_text = cause.to_string();
        // Many errors repeat their source in their own text.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    cut(text)
}

fn panic_message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("with a value that is no text")
}

/// How many characters of an error are kept.
const MESSAGE: usize = 1000;

/// The first [`MESSAGE`] characters.
fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MESSAGE) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("no number")
        }
    }

    impl StdError for Outer {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn an_error_is_told_with_its_sources() {
        let error = Outer("x".parse::<u8>().unwrap_err());
        assert_eq!(chain(&error), "no number: invalid digit found in string");
    }

    #[test]
    fn a_long_error_is_cut_at_a_thousand_characters() {
        assert_eq!(cut("ä".repeat(2000)).chars().count(), 1000);
        assert_eq!(cut("short".to_owned()), "short");
    }
}
