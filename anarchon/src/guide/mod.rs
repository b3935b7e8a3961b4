//! The guide: from the first five minutes to production.
//!
//! | page | for whom |
//! | --- | --- |
//! | [`introduction`] | who has not decided yet: the problem in plain words, and what this does about it |
//! | [`quick_start`] | who wants to see it: five minutes, no server |
//! | [`jobs`] | who writes jobs: the attributes, each option, each build error with its mend |
//! | [`builder`] | who has jobs in closures or from configuration, or gives orders to a running scheduler |
//! | [`schedules`] | who asks when a job runs: `every`, `cron`, `at`, time zones, the days on which clocks change |
//! | [`life_cycle`] | who asks what happens when: start, run, renew, lose, drain, release |
//! | [`how_it_works`] | who wants to see inside: a claim and a lease step by step, with pictures |
//! | [`guarantees`] | who has to know why this is safe: what is promised, what is not, on which store, and how to check it again |
//! | [`stores`] | who chooses a store or sets one up: settings, least rights, sizing, fail-over, what it cannot do |
//! | [`testing`] | who tests jobs |
//! | [`operating`] | who is called at night: logs, what to alert on, what to do when |
//! | [`upgrading`] | who brings out new versions: rolling deployments, changed schedules, the way back |
//! | [`security`] | who runs anarchon where somebody may want to do harm: what each kind of access can do, least rights for each store, TLS, passwords |
//! | [`cost`] | who has many jobs or instances: what an occurrence costs on which store, what a store can do, when to split |
//! | [`recipes`] | who wants a whole program to begin from: web services, Kubernetes, mail once, moving from something else |
//! | [`choosing`] | who compares: what others do better, what we do |
//! | [`questions`] | who has one: questions that users ask |

#[doc = include_str!("links.md")]
#[doc = include_str!("introduction.md")]
pub mod introduction {}

#[doc = include_str!("links.md")]
#[doc = include_str!("quick_start.md")]
pub mod quick_start {}

#[doc = include_str!("links.md")]
#[doc = include_str!("jobs.md")]
pub mod jobs {}

#[doc = include_str!("links.md")]
#[doc = include_str!("builder.md")]
pub mod builder {}

#[doc = include_str!("links.md")]
#[doc = include_str!("schedules.md")]
pub mod schedules {}

#[doc = include_str!("links.md")]
#[doc = include_str!("life_cycle.md")]
pub mod life_cycle {}

#[doc = include_str!("links.md")]
#[doc = include_str!("pictures.md")]
#[doc = include_str!("how_it_works.md")]
pub mod how_it_works {}

#[doc = include_str!("links.md")]
#[doc = include_str!("guarantees.md")]
#[doc = include_str!("../store/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("links.md")]
#[doc = include_str!("stores.md")]
pub mod stores {
    #[doc = include_str!("links.md")]
    #[doc = include_str!("stores/sqlite.md")]
    pub mod sqlite {}

    #[doc = include_str!("links.md")]
    #[doc = include_str!("stores/postgres.md")]
    pub mod postgres {}

    #[doc = include_str!("links.md")]
    #[doc = include_str!("stores/redis.md")]
    pub mod redis {}

    #[doc = include_str!("links.md")]
    #[doc = include_str!("stores/nats.md")]
    pub mod nats {}

    #[doc = include_str!("links.md")]
    #[doc = include_str!("stores/rabbitmq.md")]
    pub mod rabbitmq {}

    #[doc = include_str!("links.md")]
    #[doc = include_str!("stores/memory.md")]
    pub mod memory {}
}

#[doc = include_str!("links.md")]
#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("links.md")]
#[doc = include_str!("operating.md")]
pub mod operating {}

#[doc = include_str!("links.md")]
#[doc = include_str!("upgrading.md")]
pub mod upgrading {}

#[doc = include_str!("links.md")]
#[doc = include_str!("security.md")]
pub mod security {}

#[doc = include_str!("links.md")]
#[doc = include_str!("cost.md")]
pub mod cost {}

#[doc = include_str!("links.md")]
#[doc = include_str!("recipes.md")]
pub mod recipes {}

#[doc = include_str!("links.md")]
#[doc = include_str!("choosing.md")]
pub mod choosing {}

#[doc = include_str!("links.md")]
#[doc = include_str!("questions.md")]
pub mod questions {}
