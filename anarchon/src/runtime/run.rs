//! One run: a handler on the caller's runtime, guarded by the trust in its lease.

use std::{
    any::Any,
    error::Error as StdError,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
};

use futures_util::{FutureExt as _, future::BoxFuture};
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
/// when it has really ended, or nothing if the runtime threw it away by itself, as one that shuts down does.
pub(crate) fn spawn(
    handler: &Handler,
    context: Context,
    runtime: &Handle,
    ended: impl FnOnce(Option<RunEnd>) + Send + 'static,
) -> Running {
    let state = Arc::clone(&context.state);
    let span = span(&context);
    let ending = Ending { ended: Some(ended), state: Arc::clone(&state) };
    let abort = match handler {
        Handler::Async(handler) => {
            let (handler, state) = (Arc::clone(handler), Arc::clone(&state));
            // The handler's own code starts inside the task: it may panic or block before its first await.
            let future: BoxFuture<'static, _> =
                Box::pin(async move { handler(context).await }.instrument(span));
            let guarded = AssertUnwindSafe(Guarded { future: Some(future), state });
            let task = runtime.spawn(async move {
                // Behind the handler's drop, once that has begun.
                let ending = ending;
                let ended = guarded.catch_unwind().await;
                ending.tell(ended);
            });
            task.abort_handle()
        }
        Handler::Sync(handler) => {
            let (handler, state) = (Arc::clone(handler), Arc::clone(&state));
            let task = runtime.spawn_blocking(move || {
                // It may have waited for a free thread until its lease was over.
                if state.check().is_some() {
                    return ending.tell(Ok(Ended::Dropped));
                }
                let call =
                    AssertUnwindSafe(move || Ended::Returned(span.in_scope(|| told(handler(context)))));
                ending.tell(catch_unwind(call));
            });
            task.abort_handle()
        }
    };
    Running { state, abort }
}

/// Tells of the end of a run once, also where its task is thrown away.
struct Ending<F: FnOnce(Option<RunEnd>)> {
    ended: Option<F>,
    state: Arc<RunState>,
}

impl<F: FnOnce(Option<RunEnd>)> Ending<F> {
    fn tell(mut self, ended: Result<Ended, Box<dyn Any + Send>>) {
        let error = match ended {
            Ok(Ended::Returned(error)) => error,
            Ok(Ended::Dropped) => return self.say(Some(RunEnd::Dropped)),
            Err(payload) => {
                let text = cut(format!("panicked: {}", panic_message(&*payload)));
                // It is the user's, and may panic once more.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
                Some(text)
            }
        };
        let saw_cancel = self.state.was_seen();
        self.say(Some(RunEnd::Returned { error, saw_cancel }));
    }

    fn say(&mut self, end: Option<RunEnd>) {
        if let Some(ended) = self.ended.take() {
            ended(end);
        }
    }
}

impl<F: FnOnce(Option<RunEnd>)> Drop for Ending<F> {
    fn drop(&mut self) {
        // We abort only what we have cancelled; a handler may panic once more as it is dropped; else its runtime is gone.
        let end = (self.state.is_cancelled() || std::thread::panicking()).then_some(RunEnd::Dropped);
        self.say(end);
    }
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
        let Some(future) = &mut self.future else { return Poll::Ready(Ended::Dropped) };
        let polled = future.as_mut().poll(cx).map(|result| Ended::Returned(told(result)));
        if polled.is_ready() {
            // What it still holds is gone before anybody hears of its end.
            self.future = None;
        }
        polled
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

pub(super) fn panic_message(payload: &(dyn Any + Send)) -> &str {
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
    use std::{
        sync::atomic::{AtomicBool, AtomicU32, Ordering},
        task::Waker,
        time::Duration,
    };

    use super::*;
    use crate::{
        clock::{Clock, ManualClock, Mono},
        engine::{CancelReason, Trust},
        handler::Outcome,
    };

    /// A guarded handler that never ends, and what became of it.
    struct Watched {
        clock: Arc<ManualClock>,
        state: Arc<RunState>,
        guarded: Guarded,
        seen: Arc<Seen>,
    }

    #[derive(Default)]
    struct Seen {
        polls: AtomicU32,
        cancelled_when_polled: AtomicBool,
        dropped: AtomicBool,
    }

    struct Endless {
        state: Arc<RunState>,
        seen: Arc<Seen>,
    }

    impl Future for Endless {
        type Output = Outcome;

        fn poll(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Outcome> {
            self.seen.polls.fetch_add(1, Ordering::SeqCst);
            // Not by the clock: what the guard has set, as a handler that waits in `cancelled()` hears of it.
            self.seen.cancelled_when_polled.store(self.state.is_cancelled(), Ordering::SeqCst);
            Poll::Pending
        }
    }

    impl Drop for Endless {
        fn drop(&mut self) {
            self.seen.dropped.store(true, Ordering::SeqCst);
        }
    }

    fn trust(cancel: u64, drop: u64) -> Trust {
        let at = |seconds| Mono(0).plus(Duration::from_secs(seconds));
        Trust { cancel_at: at(cancel), drop_at: at(drop), ends_at: at(drop + 1) }
    }

    impl Watched {
        fn new(trust: Trust) -> Self {
            let clock = Arc::new(ManualClock::new(chrono::DateTime::UNIX_EPOCH));
            clock.set_mono(Mono(0));
            let state = Arc::new(RunState::new(trust, Arc::clone(&clock) as Arc<dyn Clock>));
            let seen = Arc::new(Seen::default());
            let future = Endless { state: Arc::clone(&state), seen: Arc::clone(&seen) };
            let guarded = Guarded { future: Some(Box::pin(future)), state: Arc::clone(&state) };
            Self { clock, state, guarded, seen }
        }

        fn poll_at(&mut self, seconds: u64) -> Poll<Ended> {
            self.clock.set_mono(Mono(0).plus(Duration::from_secs(seconds)));
            Pin::new(&mut self.guarded).poll(&mut TaskContext::from_waker(Waker::noop()))
        }

        fn polls(&self) -> u32 {
            self.seen.polls.load(Ordering::SeqCst)
        }

        fn was_cancelled_when_polled(&self) -> bool {
            self.seen.cancelled_when_polled.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn a_future_is_dropped_unpolled_once_the_trust_in_its_lease_is_over() {
        let mut run = Watched::new(trust(21, 25));
        assert!(run.poll_at(24).is_pending());
        assert_eq!(run.polls(), 1);
        assert!(!run.seen.dropped.load(Ordering::SeqCst));
        assert!(matches!(run.poll_at(25), Poll::Ready(Ended::Dropped)));
        assert_eq!(run.polls(), 1, "it was polled at the instant of its drop");
        assert!(run.seen.dropped.load(Ordering::SeqCst), "its destructors have not run");
    }

    #[test]
    fn after_a_freeze_a_future_is_never_polled_again() {
        let mut run = Watched::new(trust(21, 25));
        assert!(matches!(run.poll_at(3600), Poll::Ready(Ended::Dropped)));
        assert_eq!(run.polls(), 0);
        assert_eq!(run.state.check(), Some(CancelReason::LeaseLost));
    }

    #[test]
    fn a_future_that_is_polled_late_finds_its_cancellation_set() {
        let mut run = Watched::new(trust(21, 25));
        assert!(run.poll_at(20).is_pending());
        assert!(!run.was_cancelled_when_polled());
        assert!(run.poll_at(21).is_pending());
        assert!(run.was_cancelled_when_polled(), "the scheduler may wake after the handler");
    }

    #[test]
    fn a_renewal_moves_the_cancellation_and_the_drop() {
        let mut run = Watched::new(trust(21, 25));
        assert!(run.poll_at(20).is_pending());
        run.state.trust(trust(31, 35));
        assert!(run.poll_at(30).is_pending());
        assert!(!run.was_cancelled_when_polled(), "cancelled by the older trust");
        assert!(run.poll_at(31).is_pending());
        assert!(run.was_cancelled_when_polled());
        assert!(run.poll_at(34).is_pending());
        assert!(matches!(run.poll_at(35), Poll::Ready(Ended::Dropped)));
        assert_eq!(run.polls(), 4);
    }

    #[tokio::test]
    async fn a_sync_handler_that_waited_for_a_thread_until_its_lease_was_over_is_not_started() {
        let called = Arc::new(AtomicBool::new(false));
        let call = Arc::clone(&called);
        let handler = Handler::Sync(Arc::new(move |_| {
            call.store(true, Ordering::SeqCst);
            Ok(())
        }));
        let clock = Arc::new(ManualClock::new(chrono::DateTime::UNIX_EPOCH));
        clock.set_mono(Mono(0).plus(Duration::from_secs(21)));
        let state = Arc::new(RunState::new(trust(21, 25), clock));
        let mut context = Context::for_test("job", chrono::DateTime::UNIX_EPOCH);
        context.state = state;
        let (sender, ended) = tokio::sync::oneshot::channel();
        let _running = spawn(&handler, context, &Handle::current(), |end| drop(sender.send(end)));
        assert_eq!(ended.await.unwrap(), Some(RunEnd::Dropped));
        assert!(!called.load(Ordering::SeqCst));
    }

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
