//! The store's clock: in every answer, the same for all handles, and only ever forward.

use std::time::Duration;

use super::subject::{LONG, Subject, all, lag, until};
use crate::{
    protocol::{Outcome, StoreNow},
    store::ClockSource,
};

pub(super) async fn the_clock_only_goes_forward_between_calls(t: Subject) {
    let job = t.job("job").await;
    let mut last = job.now().await;
    let mut see = |now: StoreNow| {
        assert!(now >= last, "from {last:?} back to {now:?}");
        last = now;
    };
    for _ in 0..10 {
        let at = job.due().await;
        let won = job.claim(&job.ask_planned(at)).await;
        see(won.now);
        let token = super::subject::awarded(won.value).token;
        see(job.renew(token, LONG).await.now);
        see(job.finish(token, Outcome::Succeeded).await.now);
        see(job.now().await);
    }
}

pub(super) async fn the_clock_goes_on_by_itself(t: Subject) {
    let job = t.job("job").await;
    let start = job.now().await.millis();
    job.after(start.plus(Duration::from_millis(20))).await;
}

pub(super) async fn all_handles_have_one_clock(t: Subject) {
    let here = t.job("job").await;
    let there = here.through(&t.handle().await);
    let mut last = here.now().await;
    for turn in 0..100 {
        let now = if turn % 2 == 0 { there.now().await } else { here.now().await };
        match t.guarantees.clock {
            ClockSource::Store => assert!(now >= last, "from {last:?} back to {now:?}"),
            // Each has its own or its own estimate; within what an instance's error may be.
            clock @ (ClockSource::Estimated | ClockSource::Local) => {
                let apart = Duration::from_micros(now.0.abs_diff(last.0));
                assert!(now >= last || apart <= lag(clock), "from {last:?} to {now:?}");
            }
        }
        last = now;
    }
}

pub(super) async fn the_items_of_a_batch_are_decided_between_the_calls_around_it(t: Subject) {
    let jobs = t.jobs(20).await;
    let before = jobs[0].now().await;
    let names: Vec<_> = jobs.iter().map(|job| job.name.clone()).collect();
    let answers = all(t.store.inspect(&names, 0).await, names.len());
    let after = jobs[0].now().await;
    for answer in answers {
        assert!((before..=after).contains(&answer.now), "{:?} in {before:?}..={after:?}", answer.now);
    }
}

pub(super) async fn tokens_grow_with_every_award_and_with_the_clock(t: Subject) {
    let job = t.job("job").await;
    let mut last = job.record().await.token;
    for _ in 0..20 {
        let at = job.due().await;
        let won = job.claim(&job.ask_planned(at)).await;
        let token = super::subject::awarded(won.value).token;
        assert_eq!(token.0, (last.0 + 1).max(u64::try_from(won.now.0).unwrap()));
        job.close(token, Outcome::Succeeded).await;
        last = token;
    }
}

pub(super) async fn the_clock_is_about_right(t: Subject) {
    // 2026-01-01 and 2100-01-01 in µs: a clock in another unit or from another epoch is far outside.
    let now = t.job("job").await.now().await;
    assert!((1_767_225_600_000_000..4_102_444_800_000_000).contains(&now.0), "{now:?}");
    until("the microseconds of the clock are not all round", async || {
        let now = t.store.inspect(&[], 0).await;
        assert!(now.is_empty());
        let now = t.store.inspect(&[super::subject::name("job")], 0).await.remove(0).unwrap().now;
        (now.0 % 1000 != 0).then_some(())
    })
    .await;
}
