//! The scripts that decide on the server: one an operation, each atomic for one job.

use std::sync::LazyLock;

use redis::{Cmd, cmd};

/// A script, and the name that the server's cache knows it by.
#[derive(Debug)]
pub(super) struct Script {
    source: String,
    hash: String,
}

impl Script {
    fn new(text: &str) -> Self {
        // It is sent now and then: without its comments.
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
        let source = lines.collect::<Vec<_>>().join("\n");
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }

    /// One call of it for several jobs: in full, which also puts it into the server's cache, or by its hash.
    pub(super) fn command(&self, calls: &[&Call], full: bool) -> Cmd {
        let (name, what) = if full { ("EVAL", &self.source) } else { ("EVALSHA", &self.hash) };
        let mut command = cmd(name);
        command.arg(what).arg(calls.iter().map(|call| call.keys.len()).sum::<usize>());
        let keys = calls.iter().flat_map(|call| &call.keys);
        for part in keys.chain(calls.iter().flat_map(|call| &call.arguments)) {
            command.arg(part);
        }
        command
    }
}

/// What one call of a script is given.
#[derive(Debug)]
pub(super) struct Call {
    /// Both in one slot of a Cluster.
    pub(super) keys: [String; 2],
    pub(super) arguments: Vec<String>,
}

macro_rules! scripts {
    ($($name:ident = $($part:literal),+;)+) => {$(
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!($part), "\n"),+)));
    )+};
}

scripts! {
    REGISTER = "record.lua", "register.lua", "each.lua";
    CLAIM = "record.lua", "claim.lua", "each.lua";
    RENEW = "record.lua", "renew.lua", "each.lua";
    FINISH = "record.lua", "finish.lua", "each.lua";
    INSPECT = "record.lua", "inspect.lua", "each.lua";
    CONTROL = "record.lua", "control.lua", "each.lua";
    BEAT = "beat.lua";
}
