//! Keeps a login out of the logs: at the level `trace` lapin shows each frame that it is about to write, the one with the
//! password too.

use std::cell::RefCell;

use tracing::{
    Dispatch,
    dispatcher::{DefaultGuard, get_default, set_default},
    subscriber::NoSubscriber,
};

thread_local! {
    static SILENCE: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) };
}

/// Nobody hears what this thread logs, until [`end`].
pub(super) fn begin() {
    end();
    // Where there is no subscriber, events go to the crate `log`, and would never again once a thread had one.
    let has_subscriber = get_default(|dispatch| !dispatch.is::<NoSubscriber>());
    if has_subscriber {
        SILENCE.set(Some(set_default(&Dispatch::none())));
    }
}

/// The thread is heard again.
pub(super) fn end() {
    drop(SILENCE.take());
}

#[cfg(test)]
mod tests {
    use tracing::{Event, Metadata, Subscriber, span};

    use super::*;

    struct Listener;

    impl Subscriber for Listener {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    fn is_heard() -> bool {
        get_default(|dispatch| dispatch.is::<Listener>())
    }

    #[test]
    fn a_silence_ends_and_begins_anew_and_leaves_the_subscriber_as_it_was() {
        begin();
        assert!(get_default(|dispatch| dispatch.is::<NoSubscriber>()), "there was nobody to hear");
        tracing::subscriber::with_default(Listener, || {
            begin();
            begin();
            assert!(!is_heard());
            end();
            assert!(is_heard());
            end();
            assert!(is_heard());
        });
    }
}
