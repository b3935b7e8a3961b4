//! From `#[jobs]` to the builder: what the macros submit, which of it belongs to a type, and how a value is handed over.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use crate::job::Job;

/// A type with jobs, or several of them.
///
/// `#[jobs]` on an impl block implements it for the type. An `Arc` of such a type has the same jobs, and a tuple of up to
/// eight has all of theirs: `run((Billing { pool }, Reports::default()))`.
///
/// It cannot be implemented by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no jobs",
    label = "a type without jobs",
    note = "put `#[jobs]` on an impl block of the type; `Arc`s and tuples of types with jobs are fine as well"
)]
pub trait Jobs: FurtherBlocksNeedJobsMore + Send + Sync + 'static {}

// The compiler would otherwise speak of the trait below.
#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<T: FurtherBlocksNeedJobsMore> Jobs for T {}

/// What `#[jobs]` implements, and what makes `Arc`s and tuples [`Jobs`].
///
/// All that the compiler tells of a second `#[jobs]` on one type is the name of this trait, so the name is the mend.
#[doc(hidden)]
pub trait FurtherBlocksNeedJobsMore: Sized + Send + Sync + 'static {
    type __Kind;

    /// The package of the crate that declared it.
    fn __package() -> Option<&'static str>;

    fn __hand_over(self, given: &mut Given);
}

/// The kind of a type under `#[jobs]`: it owns registrations, and can be shared in an `Arc`.
#[derive(Debug)]
pub enum Declared {}

/// The kind of a tuple and of an `Arc`.
#[derive(Debug)]
pub enum Combined {}

// The compiler would otherwise speak of `T` and of the tuple's members, where the user handed in a whole.
#[diagnostic::do_not_recommend]
impl<T: FurtherBlocksNeedJobsMore<__Kind = Declared>> FurtherBlocksNeedJobsMore for Arc<T> {
    type __Kind = Combined;

    fn __package() -> Option<&'static str> {
        T::__package()
    }

    fn __hand_over(self, given: &mut Given) {
        given.take(self);
    }
}

macro_rules! tuple {
    ($($member:ident)+) => {
        #[diagnostic::do_not_recommend]
        impl<$($member: FurtherBlocksNeedJobsMore),+> FurtherBlocksNeedJobsMore for ($($member,)+) {
            type __Kind = Combined;

            fn __package() -> Option<&'static str> {
                None$(.or_else($member::__package))+
            }

            fn __hand_over(self, given: &mut Given) {
                #[expect(non_snake_case, reason = "a member is named like its type")]
                let ($($member,)+) = self;
                $($member.__hand_over(given);)+
            }
        }
    };
}

tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);
tuple!(A B C D E F G);
tuple!(A B C D E F G H);

/// The values that a user handed in.
#[derive(Default)]
pub struct Given {
    /// Each holds an `Arc` of the type.
    values: Vec<(TypeId, Box<dyn Any>)>,
    package: Option<&'static str>,
}

impl Given {
    #[doc(hidden)]
    pub fn take<T: FurtherBlocksNeedJobsMore<__Kind = Declared>>(&mut self, value: Arc<T>) {
        if self.values.is_empty() {
            self.package = T::__package();
        }
        self.values.push((TypeId::of::<T>(), Box::new(value)));
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Given").field("values", &self.values.len()).finish_non_exhaustive()
    }
}

/// One job of one type, as the macros submit it.
#[derive(Debug)]
pub struct Registration {
    owner: TypeId,
    owner_name: fn() -> &'static str,
    job: fn(&dyn Any) -> Job,
}

inventory::collect!(Registration);

impl Registration {
    // No bound but `'static`: a type that is not `Sync` is told so at `impl Jobs`, and not for each job again.
    #[doc(hidden)]
    #[must_use]
    pub const fn new<T: 'static>(job: fn(&dyn Any) -> Job) -> Self {
        Self { owner: TypeId::of::<T>(), owner_name: std::any::type_name::<T>, job }
    }
}

/// The value in the type it was handed in with.
///
/// # Panics
///
/// Never: a registration is called with values of the type that it was made for.
#[doc(hidden)]
#[must_use]
pub fn owner<T: 'static>(value: &dyn Any) -> Arc<T> {
    Arc::clone(value.downcast_ref().expect("registrations are chosen by the type of the value"))
}

/// What a block under `#[jobs(more)]` is told when its type has no `#[jobs]`.
#[doc(hidden)]
pub const fn has_jobs<T: Jobs>() {}

/// What was handed in, as the builder needs it.
#[derive(Debug)]
pub(crate) struct Collected {
    /// Sorted by name, since registrations come in no order.
    pub(crate) jobs: Vec<Job>,
    /// Of the crate of the first type: the namespace, unless one is named.
    pub(crate) package: Option<&'static str>,
    /// For [`handed_to_nobody`].
    pub(crate) types: Vec<TypeId>,
}

/// The jobs of the values, those of all impl blocks and modules.
pub(crate) fn collect(jobs: impl Jobs) -> Collected {
    let mut given = Given::default();
    jobs.__hand_over(&mut given);
    let mut jobs: Vec<Job> =
        given.values.iter().flat_map(|(owner, value)| jobs_of(*owner, &**value)).collect();
    jobs.sort_by(|one, other| one.name().cmp(other.name()));
    let types = given.values.iter().map(|(owner, _)| *owner).collect();
    Collected { jobs, package: given.package, types }
}

fn jobs_of(owner: TypeId, value: &dyn Any) -> impl Iterator<Item = Job> {
    inventory::iter::<Registration>()
        .filter(move |registration| registration.owner == owner)
        .map(move |registration| (registration.job)(value))
}

/// The linked types with jobs that are not among `types`, by name: most likely forgotten in `main`.
pub(crate) fn handed_to_nobody(types: &[TypeId]) -> Vec<&'static str> {
    let mut names: Vec<_> = inventory::iter::<Registration>()
        .filter(|registration| !types.contains(&registration.owner))
        .map(|registration| (registration.owner_name)())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The names of the value's jobs, the package, and the types handed to nobody. For tests of what the linker kept.
#[doc(hidden)]
#[must_use]
pub fn look(jobs: impl Jobs) -> (Vec<String>, Option<&'static str>, Vec<&'static str>) {
    let Collected { jobs, package, types } = collect(jobs);
    (jobs.iter().map(|job| job.name().to_owned()).collect(), package, handed_to_nobody(&types))
}

/// What generated code names. Nothing in here is for people; it changes without notice.
#[doc(hidden)]
pub mod private {
    pub use anarchon_schedule::{At, Cron, Every};
    pub use inventory;
    pub use std::any::Any;
    pub use std::clone::Clone;
    pub use std::option::Option;
    pub use std::sync::Arc;

    pub use super::{
        Combined, Declared, FurtherBlocksNeedJobsMore, Given, Registration, has_jobs, look, owner,
    };
    pub use crate::handler::{Handler, asynchronous, blocking, outcome, parameter};
    pub use crate::job::Job;
}

/// The examples in the docs of the attributes. Their own crate cannot compile them, since it knows no `anarchon`.
#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../../anarchon-macros/src/docs/jobs.md")]
#[doc = include_str!("../../anarchon-macros/src/docs/every.md")]
#[doc = include_str!("../../anarchon-macros/src/docs/cron.md")]
#[doc = include_str!("../../anarchon-macros/src/docs/at.md")]
mod examples_of_the_attributes {}

#[cfg(all(test, feature = "macros"))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use anarchon_macros::{at, cron, every, jobs};
    use chrono::DateTime;
    use futures_util::FutureExt as _;

    use super::*;
    use crate::context::Context;
    use crate::handler::{Handler, JobResult, Outcome};

    #[derive(Default)]
    struct Billing {
        runs: AtomicU32,
    }

    #[jobs(crate = crate, prefix = "billing")]
    impl Billing {
        #[every("10s", name = "sync", lease = "20s", jitter = "1s", catch_up = "none", timeout = "2m")]
        #[at("2027-01-01T00:00:00Z", name = "once", max_attempts = 5, retries = 2, backoff = "1s..1m")]
        async fn sync(&self, context: Context) -> JobResult {
            self.runs.fetch_add(1, Ordering::Relaxed);
            Err(format!("asked by {}", context.job()).into())
        }

        #[cfg(any())]
        #[every("10s")]
        async fn absent(&self) {}

        #[cfg(not(any()))]
        #[cron("0 8 * * *", name = "present")]
        fn blocking(&self, context: &Context) -> Result<(), String> {
            self.runs.fetch_add(10, Ordering::Relaxed);
            Err(context.job().to_owned())
        }
    }

    mod elsewhere {
        use super::*;

        #[jobs(crate = crate, more)]
        impl Billing {
            #[every("10s")]
            async fn r#type() {}
        }
    }

    struct Reports;

    #[jobs(crate = crate)]
    impl Reports {
        #[every("10s")]
        fn report() {}
    }

    struct Forgotten;

    #[jobs(crate = crate)]
    impl Forgotten {
        #[every("10s")]
        fn forgotten() {}
    }

    const BILLING: [&str; 4] = ["billing.once", "billing.present", "billing.sync", "type"];

    fn names(collected: &Collected) -> Vec<&str> {
        collected.jobs.iter().map(Job::name).collect()
    }

    fn run(job: &Job) -> Outcome {
        let context = Context::for_test(job.name(), DateTime::UNIX_EPOCH);
        match &job.handler {
            Handler::Async(handler) => handler(context).now_or_never().expect("it awaits nothing"),
            Handler::Sync(handler) => handler(context),
        }
    }

    #[test]
    fn a_value_has_the_jobs_of_all_blocks_of_its_type_sorted() {
        let collected = collect(Billing::default());
        assert_eq!(names(&collected), BILLING);
        assert_eq!(collected.package, Some("anarchon"));
    }

    #[test]
    fn arcs_and_tuples_hand_over_what_is_in_them() {
        assert_eq!(names(&collect(Arc::new(Billing::default()))), BILLING);
        let both = collect((Reports, Arc::new(Billing::default())));
        assert_eq!(names(&both), [&BILLING[..3], &["report", "type"]].concat());
        assert_eq!(both.types, [TypeId::of::<Reports>(), TypeId::of::<Billing>()]);
        assert_eq!(names(&collect(((Reports,), (Reports, (Forgotten,))))), ["forgotten", "report", "report"]);
    }

    #[test]
    fn a_type_that_was_handed_to_nobody_is_named_once() {
        let left = handed_to_nobody(&collect((Billing::default(), Reports)).types);
        assert_eq!(left, [std::any::type_name::<Forgotten>()]);
    }

    #[test]
    fn all_jobs_run_on_the_one_value_that_was_handed_in() {
        let billing = Arc::new(Billing::default());
        let collected = collect(Arc::clone(&billing));
        let outcomes: Vec<_> =
            collected.jobs.iter().map(|job| run(job).map_err(|error| error.to_string())).collect();
        let expected =
            [Err("asked by billing.once"), Err("billing.present"), Err("asked by billing.sync"), Ok(())];
        assert_eq!(outcomes, expected.map(|outcome| outcome.map_err(str::to_owned)));
        assert_eq!(billing.runs.load(Ordering::Relaxed), 12);
    }

    #[test]
    fn only_a_method_without_async_goes_to_the_blocking_pool() {
        let collected = collect(Billing::default());
        let sync = collected.jobs.iter().filter(|job| matches!(job.handler, Handler::Sync(_)));
        assert_eq!(sync.map(Job::name).collect::<Vec<_>>(), ["billing.present"]);
    }
}
