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
use tokio::{runtime::Handle, sync::mpsc};
use tracing::Span;

use super::{driver::Message, report};
use crate::{
    context::Context,
    engine::{RunEnd, RunId},
    handler::{AsyncHandler, Handler, Outcome},
};

/// Runs that begin together. They reach the caller's runtime as one task, so that its threads are woken once for all.
#[derive(Default)]
pub(crate) struct Starts(Vec<(AsyncHandler, Ending)>);

impl Starts {
    /// Adds a run: of an asynchronous handler to those that [`spawn`](Self::spawn) starts, any other is sent to the blocking pool
    /// of `runtime`.
    pub(crate) fn add(&mut self, handler: &Handler, ending: Ending, runtime: &Handle) {
        match handler {
            Handler::Async(handler) => self.0.push((Arc::clone(handler), ending)),
            Handler::Sync(handler) => {
                let handler = Arc::clone(handler);
                runtime.spawn_blocking(move || {
                    let context = ending.context.clone();
                    // It may have waited for a free thread until its lease was over.
                    if context.state().check().is_some() {
                        return ending.tell(Ok(Ended::Dropped));
                    }
                    let span = span(&context);
                    let call =
                        AssertUnwindSafe(move || Ended::Returned(span.in_scope(|| told(handler(context)))));
                    ending.tell(catch_unwind(call));
                });
            }
        }
    }

    /// Starts the asynchronous ones, each as a task of its own.
    #[expect(clippy::disallowed_methods, reason = "runtime/ is where tasks are spawned")]
    pub(crate) fn spawn(&mut self, runtime: &Handle) {
        if self.0.is_empty() {
            return;
        }
        let runs = std::mem::take(&mut self.0);
        runtime.spawn(async move {
            for (handler, ending) in runs {
                tokio::spawn(async move {
                    // Behind the handler's drop, once that has begun.
                    let ending = ending;
                    let guarded = Guarded::new(handler, ending.context.clone());
                    let ended = AssertUnwindSafe(guarded).catch_unwind().await;
                    ending.tell(ended);
                });
            }
        });
    }
}

/// Tells of the end of a run when it has really ended, once; also where its task is thrown away: then of no end, if the
/// runtime did that by itself, as one that shuts down does.
pub(crate) struct Ending {
    run: RunId,
    context: Context,
    /// None once it was told.
    messages: Option<mpsc::UnboundedSender<Message>>,
}

impl Ending {
    pub(crate) fn new(run: RunId, context: Context, messages: mpsc::UnboundedSender<Message>) -> Self {
        Self { run, context, messages: Some(messages) }
    }

    fn tell(mut self, ended: Result<Ended, Box<dyn Any + Send>>) {
        let error = match ended {
            Ok(Ended::Returned(error)) => error,
            Ok(Ended::Dropped) => return self.say(Some(RunEnd::Dropped)),
            Err(payload) => {
                let text = cut(format!("panicked: {}", panic_message(&*payload)));
                discard(payload);
                Some(text)
            }
        };
        let saw_cancel = self.context.state().was_seen();
        self.say(Some(RunEnd::Returned { error, saw_cancel }));
    }

    fn say(&mut self, end: Option<RunEnd>) {
        if let Some(messages) = self.messages.take() {
            let reason = self.context.state().reason();
            report::ended(self.context.facts(), end.as_ref().unwrap_or(&RunEnd::Dropped), reason);
            // Nobody waits for it once the driver is gone: after a panic, or when the scheduler has stopped.
            let _ = messages.send(Message::Ended(self.run, end));
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // We abort only what we have cancelled; a handler may panic once more as it is dropped; else its runtime is gone.
        let is_ours = self.context.state().reason().is_some() || std::thread::panicking();
        self.say(is_ours.then_some(RunEnd::Dropped));
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
    stage: Stage,
    span: Span,
    context: Context,
}

/// How far the handler is. Its own code begins inside the task: it may panic or block before its first await.
enum Stage {
    Begins(AsyncHandler, Context),
    GoesOn(BoxFuture<'static, Outcome>),
    Over,
}

impl Stage {
    fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Ended> {
        if let Self::Begins(..) = self
            && let Self::Begins(handler, context) = std::mem::replace(self, Self::Over)
        {
            *self = Self::GoesOn(handler(context));
        }
        match self {
            Self::GoesOn(future) => future.as_mut().poll(cx).map(|result| Ended::Returned(told(result))),
            Self::Begins(..) | Self::Over => Poll::Ready(Ended::Dropped),
        }
    }
}

impl Guarded {
    fn new(handler: AsyncHandler, context: Context) -> Self {
        let span = span(&context);
        Self { stage: Stage::Begins(handler, context.clone()), span, context }
    }

    /// What the handler still holds is gone before anybody hears of its end.
    fn end(&mut self) {
        let stage = &mut self.stage;
        if !matches!(stage, Stage::Over) {
            self.span.in_scope(|| *stage = Stage::Over);
        }
        self.context.state().wake_nobody();
    }

    /// The same of one that may not go on; where it panics at that, it has not failed by it.
    fn cut_off(&mut self) -> Poll<Ended> {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.end())) {
            discard(payload);
        }
        Poll::Ready(Ended::Dropped)
    }
}

impl Future for Guarded {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Ended> {
        self.context.state().check();
        if self.context.state().is_over() {
            return self.cut_off();
        }
        let Self { stage, span, .. } = &mut *self;
        let polled = span.in_scope(|| stage.poll(cx));
        if polled.is_ready() {
            self.end();
            return polled;
        }
        self.context.state().wake_to_drop(cx.waker());
        // Perhaps it was to be dropped while there was nobody to wake.
        if self.context.state().is_aborted() { self.cut_off() } else { Poll::Pending }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.end();
    }
}

fn span(context: &Context) -> Span {
    let facts = context.facts();
    tracing::info_span!(
        "run",
        job = %facts.job,
        occurrence = %facts.occurrence,
        attempt = facts.attempt,
        token = facts.token.0,
        instance = %facts.home.instance,
        store = %facts.home.store,
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

/// What a handler panicked with is the user's, and may panic once more.
fn discard(payload: Box<dyn Any + Send>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
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
        clock::{ManualClock, Mono},
        context::RunState,
        engine::{CancelReason, Trust},
        handler::Outcome,
    };

    /// A guarded handler that never ends, and what became of it.
    struct Watched {
        clock: Arc<ManualClock>,
        context: Context,
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
        context: Context,
        seen: Arc<Seen>,
    }

    impl Future for Endless {
        type Output = Outcome;

        fn poll(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Outcome> {
            self.seen.polls.fetch_add(1, Ordering::SeqCst);
            // Not by the clock: what the guard has set, as a handler that waits in `cancelled()` hears of it.
            self.seen.cancelled_when_polled.store(self.context.state().reason().is_some(), Ordering::SeqCst);
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
            let facts = Context::for_test("job", chrono::DateTime::UNIX_EPOCH).facts().clone();
            let context = Context::new(facts, RunState::new(trust, clock.clone()));
            let seen = Arc::new(Seen::default());
            let future = Endless { context: context.clone(), seen: Arc::clone(&seen) };
            let guarded = Guarded {
                stage: Stage::GoesOn(Box::pin(future)),
                span: Span::none(),
                context: context.clone(),
            };
            Self { clock, context, guarded, seen }
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
        assert_eq!(run.context.state().check(), Some(CancelReason::LeaseLost));
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
        run.context.state().trust(trust(31, 35));
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
        let facts = Context::for_test("job", chrono::DateTime::UNIX_EPOCH).facts().clone();
        let context = Context::new(facts, RunState::new(trust(21, 25), clock));
        let (messages, mut ended) = mpsc::unbounded_channel();
        Starts::default().add(&handler, Ending::new(RunId(1), context, messages), &Handle::current());
        let told = ended.recv().await;
        assert!(matches!(told, Some(Message::Ended(RunId(1), Some(RunEnd::Dropped)))), "{told:?}");
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
    fn a_future_that_waits_is_dropped_once_its_task_was_woken_for_that() {
        struct Woken(AtomicU32);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let mut run = Watched::new(trust(21, 25));
        let woken = Arc::new(Woken(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = TaskContext::from_waker(&waker);
        assert!(Pin::new(&mut run.guarded).poll(&mut cx).is_pending());
        run.context.state().abort();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(matches!(Pin::new(&mut run.guarded).poll(&mut cx), Poll::Ready(Ended::Dropped)));
        assert!(run.seen.dropped.load(Ordering::SeqCst));
        assert_eq!(run.polls(), 1);
        // The context outlives the task, and wakes it no more.
        run.context.state().abort();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_future_that_is_given_up_before_its_first_poll_or_while_it_is_polled_is_dropped() {
        let mut run = Watched::new(trust(21, 25));
        run.context.state().abort();
        assert!(matches!(run.poll_at(1), Poll::Ready(Ended::Dropped)));
        assert_eq!(run.polls(), 0);

        let mut run = Watched::new(trust(21, 25));
        let state = run.context.clone();
        run.guarded.stage = Stage::GoesOn(Box::pin(std::future::poll_fn(move |_| {
            state.state().abort();
            Poll::Pending
        })));
        assert!(matches!(run.poll_at(1), Poll::Ready(Ended::Dropped)));
    }

    #[test]
    fn a_long_error_is_cut_at_a_thousand_characters() {
        assert_eq!(cut("ä".repeat(2000)).chars().count(), 1000);
        assert_eq!(cut("short".to_owned()), "short");
    }
}
