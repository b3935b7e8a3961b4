//~ `#[jobs]`: `#[jobs]` goes on an impl block of the type with the jobs: `impl Type { … }`
use anarchon::prelude::*;

#[jobs]
struct MyJobs;

fn main() {
    let _ = MyJobs;
}
