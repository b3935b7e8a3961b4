#![no_implicit_prelude]
#![allow(non_camel_case_types, dead_code)]

use ::anarchon::{Context, every, jobs};

struct Option;
struct Result;
struct Arc;
struct Job;
struct Any;
struct context;
struct owner;
mod core {}
mod std {}

struct job;

#[jobs]
impl job {
    #[every("10s")]
    async fn owner(&self, ctx: Context) {
        let _ = ctx;
    }

    #[every("10s")]
    fn job(&self) {}

    #[every("10s")]
    async fn clone() {}
}

fn main() {
    ::std::mem::drop(::anarchon::run(job));
}
