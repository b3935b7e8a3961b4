//! The checks that every store must pass, for authors of stores. Exempt from semver.
//!
//! A test binary says how to reach the store, and runs [`checks`]; each works in a namespace of its own, on handles of
//! its own, and panics with what is wrong. It needs a tokio runtime with time, and threads for the checks of contention.
//!
//! ```
//! use std::sync::Arc;
//!
//! use anarchon::{
//!     MemoryBackend,
//!     conformance::{Harness, checks},
//! };
//!
//! let data = MemoryBackend::new();
//! let harness = Harness::new(move || Arc::new(data.clone()));
//! let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
//! for check in checks() {
//! #   if !check.name().starts_with("naming::") { continue }
//!     runtime.block_on(check.run(&harness));
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | variable | what it sets |
//! | --- | --- |
//! | `ANARCHON_MODEL_SEED` | the seed of `model`, to play a failed one again |
//! | `ANARCHON_MODEL_OPS` | how many operations `model` plays |

#![expect(clippy::unwrap_used, reason = "a check fails by a panic")]

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use crate::store::{Guarantees, Store};

mod attempt;
mod batch;
mod claim;
mod clock;
mod contention;
mod guarantees;
mod lease;
mod members;
mod model;
mod naming;
mod orders;
mod register;
mod subject;

use subject::Subject;

/// How the checks reach the store under test.
#[derive(Clone)]
pub struct Harness {
    handle: Arc<dyn Fn() -> Arc<dyn Store> + Send + Sync>,
    model_operations: usize,
    most_jobs: usize,
}

impl Harness {
    /// `handle` makes a new handle on the same data, as one more process would have it; not yet open.
    pub fn new(handle: impl Fn() -> Arc<dyn Store> + Send + Sync + 'static) -> Self {
        Self { handle: Arc::new(handle), model_operations: 2_000, most_jobs: 1_000 }
    }

    /// How many operations the model plays, unless `ANARCHON_MODEL_OPS` says otherwise: 2,000 if not set.
    #[must_use]
    pub fn model_operations(mut self, operations: usize) -> Self {
        self.model_operations = operations;
        self
    }

    /// How many jobs the checks make at once at most: 1,000 if not set, for stores where to make one is cheap.
    #[must_use]
    pub fn most_jobs(mut self, jobs: usize) -> Self {
        self.most_jobs = jobs;
        self
    }

    /// What the store says of itself.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub async fn guarantees(&self) -> Guarantees {
        Subject::open(self).await.guarantees
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("model_operations", &self.model_operations)
            .field("most_jobs", &self.most_jobs)
            .finish_non_exhaustive()
    }
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// One check.
#[derive(Clone, Copy)]
pub struct Check {
    name: &'static str,
    body: fn(Subject) -> Running,
}

impl Check {
    /// What it checks, as a sentence behind its module.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Opens a store in a new namespace and checks it.
    ///
    /// # Panics
    /// When the store fails the check.
    pub async fn run(&self, harness: &Harness) {
        (self.body)(Subject::open(harness).await).await;
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.name).finish()
    }
}

macro_rules! list {
    ($($module:ident { $($check:ident)* })*) => {
        vec![$($(Check {
            name: concat!(stringify!($module), "::", stringify!($check)),
            body: |subject| Box::pin($module::$check(subject)),
        },)*)*]
    };
}

/// All checks.
#[must_use]
pub fn checks() -> Vec<Check> {
    list! {
        register {
            a_new_job_has_decided_all_that_was_before_it
            registering_the_schedule_in_force_changes_nothing
            registering_another_schedule_is_stale_and_changes_nothing
            a_schedule_replaces_the_one_it_names_and_nothing_else_changes
            a_replacement_decides_up_to_since_but_not_the_future_and_never_goes_back
            a_batch_registers_what_it_can
            a_forgotten_job_can_be_made_again
        }
        claim {
            a_job_without_a_record_is_unregistered
            rule_1_a_repeated_claim_is_answered_with_the_award_it_won
            rule_1_a_nonce_that_differs_in_one_bit_is_another_claim
            rule_1_a_duplicate_does_not_win_again_after_its_run_was_closed
            rule_1_a_duplicate_does_not_win_again_after_a_takeover
            rule_1b_a_claim_that_nobody_waits_for_any_more_changes_nothing
            rule_2_a_claim_with_another_schedule_is_stale
            rule_3_no_occurrence_is_awarded_before_its_time
            rule_4_an_occurrence_at_or_before_the_decided_one_is_already_decided
            rule_5_a_paused_job_decides_an_occurrence_without_an_award
            rule_5_comes_before_the_skip
            rule_6_an_occurrence_is_missed_after_its_window_and_decided_by_nobody
            rule_7_an_occurrence_under_a_live_lease_is_skipped_for_good
            rule_8_a_due_occurrence_is_awarded_with_all_that_was_asked_for
            rule_8_the_newest_occurrence_closes_an_expired_run_as_lost
            rule_8_the_newest_occurrence_closes_a_waiting_run_as_lost
            rule_8_a_finished_run_is_not_closed_again
            after_downtime_the_newest_occurrence_runs_once_and_the_older_ones_never
            rule_14_a_trigger_that_was_served_or_never_asked_for_is_already_done
            rule_15_a_trigger_stays_asked_while_a_lease_is_live
            rule_16_all_triggers_so_far_become_one_run_that_leaves_the_plan_alone
            rule_16_a_manual_run_closes_an_unfinished_one_as_lost
            one_batch_takes_all_kinds_of_claims
        }
        lease {
            rule_9_a_takeover_of_another_token_is_already_done
            rule_9_a_takeover_of_a_finished_run_is_already_done
            rule_10_a_live_lease_is_held
            rule_10_a_retry_is_held_until_it_is_due
            rule_10_a_lease_that_was_observed_unchanged_is_over_whatever_the_clock_says
            rule_13_an_expired_lease_is_awarded_with_a_higher_token_and_not_before_its_end
            rule_13_a_retry_and_a_release_are_no_crashes
            a_short_lease_ends_while_a_long_one_beside_it_stays
            a_lease_of_no_length_is_over_at_once
            leases_windows_and_delays_of_a_hundred_years_are_borne
            a_renewal_extends_the_lease_from_now
            a_renewed_lease_outlives_its_first_end
            each_renewal_changes_the_end_of_the_lease
            a_late_renewal_counts_when_nobody_took_over
            a_late_finish_counts_when_nobody_took_over
            a_stale_holder_changes_nothing
            a_renewal_of_a_closed_run_is_lost
            without_a_record_a_lease_is_lost_and_a_finish_refused
            renewals_keep_a_short_lease_for_as_long_as_they_come
        }
        attempt {
            rule_11_the_takeover_of_a_cancelled_run_gives_up
            rule_11_no_retry_follows_a_cancel_that_came_during_the_run
            rule_12_the_last_allowed_crash_is_the_end
            rule_12_errors_and_releases_are_no_crashes
            rule_12_what_was_over_for_longer_than_the_window_is_given_up
            a_finish_closes_the_run_with_its_outcome_and_one_history_entry
            a_repeated_finish_is_closed_and_changes_nothing
            a_finish_of_a_job_that_never_ran_is_refused
            no_attempt_follows_a_finish
            the_message_of_an_error_is_kept_as_it_is
            the_history_is_told_newest_first_and_only_as_much_as_asked_for
            record_and_history_stay_within_their_bound
            attempts_stay_within_what_crashes_retries_and_releases_allow
        }
        orders {
            an_order_for_a_job_without_a_record_creates_none
            every_trigger_counts
            a_pause_leaves_the_run_in_flight_and_its_next_attempts_alone
            what_fell_due_during_a_pause_is_gone_after_it_claimed_or_not
            resuming_a_job_that_is_not_paused_changes_nothing
            the_holder_hears_of_a_cancel_at_its_next_renewal
            cancelling_a_waiting_job_ends_it
            cancelling_another_token_or_a_finished_run_changes_nothing
            what_comes_late_for_a_forgotten_job_finds_nothing_to_change
        }
        batch {
            an_empty_batch_has_no_answers
            a_bad_item_leaves_the_others_alone
            answers_come_in_the_order_of_the_items
            as_many_items_as_there_may_be_jobs_fit_in_one_batch
            a_call_that_is_dropped_half_way_leaves_the_store_usable
            batches_of_the_same_jobs_in_any_order_do_not_hinder_each_other
        }
        members {
            an_instance_is_known_from_its_second_beat_on
            the_members_are_told_sorted_and_once
            a_schedule_is_announced_while_another_instance_has_it
            a_schedule_that_others_wait_for_is_told_with_the_earliest_time
            who_withdraws_is_gone_at_once
            who_does_not_beat_is_gone_after_the_age_limit_and_not_before
        }
        naming {
            names_at_the_length_limit_keep_their_records_apart
            names_that_differ_in_case_or_in_a_mark_are_different
            namespaces_are_apart
            the_same_job_in_two_namespaces_is_two_jobs
            instances_of_other_namespaces_are_not_members
        }
        clock {
            the_clock_only_goes_forward_between_calls
            the_clock_goes_on_by_itself
            all_handles_have_one_clock
            the_items_of_a_batch_are_decided_between_the_calls_around_it
            tokens_grow_with_every_award_and_with_the_clock
            the_clock_is_about_right
        }
        guarantees {
            opening_again_promises_the_same_and_loses_nothing
            a_handle_sees_what_another_wrote
            what_was_written_outlives_the_handle
            hints_at_changes_are_there_when_declared_and_only_then
            announcements_are_there_when_declared_and_only_then
            the_store_says_what_it_is
            a_handle_that_is_not_open_answers_every_item_as_misconfigured
        }
        contention {
            two_handles_contending_for_many_occurrences_are_awarded_each_once
            one_occurrence_claimed_by_many_is_awarded_once
            a_claim_sent_twice_at_once_wins_one_award
            a_lease_with_many_watchers_is_taken_over_once
            a_finish_and_a_takeover_at_once_agree_on_who_was_first
            of_many_triggers_at_once_none_is_lost
            twenty_instances_may_open_and_register_at_once
        }
        model {
            the_store_answers_and_keeps_what_the_protocol_says
        }
    }
}
