//! What the tests of anarchon share.

pub mod calls;
pub mod certificates;
pub mod checker;
pub mod conformance;
pub mod damage;
pub mod deeds;
pub mod examples;
pub mod faults;
pub mod faulty;
mod freeze;
pub mod grants;
pub mod guarantees;
pub mod history;
pub mod job_line;
pub mod pages;
pub mod process;
pub mod proxy;
pub mod secrets;
pub mod servers;
pub mod site;
pub mod soak;
mod told;
pub mod wait;
