//! Real processes, really killed, frozen and cut off, on Redis. What is shown stands in `src/faults/`.

use std::process::ExitCode;

use anarchon_tests::{
    faults::{StoreClock, trials},
    servers::redis::{Kind, RedisStore},
};
use libtest_mimic::{Arguments, run};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They wait most of the time; how many play at once is bounded by what they load.
    arguments.test_threads.get_or_insert(16);
    let trials = trials(env!("CARGO_BIN_EXE_worker"), StoreClock::OfTheServer, |_| {
        Box::new(RedisStore::new(Kind::Redis))
    });
    run(&arguments, trials).exit_code()
}
