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
        // It is sent with each batch: without its comments.
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
        let source = lines.collect::<Vec<_>>().join("\n");
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }

    /// One call of it: in full, which also puts it into the server's cache, or by its hash.
    pub(super) fn command(&self, call: &Call, full: bool) -> Cmd {
        let (name, what) = if full { ("EVAL", &self.source) } else { ("EVALSHA", &self.hash) };
        let mut command = cmd(name);
        command.arg(what).arg(call.keys.len());
        for part in call.keys.iter().chain(&call.arguments) {
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
            LazyLock::new(|| Script::new(concat!($(include_str!($part)),+)));
    )+};
}

scripts! {
    REGISTER = "record.lua", "register.lua";
    CLAIM = "record.lua", "claim.lua";
    RENEW = "record.lua", "renew.lua";
    FINISH = "record.lua", "finish.lua";
    INSPECT = "record.lua", "inspect.lua";
    CONTROL = "record.lua", "control.lua";
    BEAT = "beat.lua";
}
