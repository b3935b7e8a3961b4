//! The scripts that decide on the server: one an operation, atomic for all of a call, of whose items each is decided on its own.

use std::{
    fmt::{Display, Write as _},
    sync::LazyLock,
};

use redis::{Cmd, cmd};

/// A script, and the name that the server's cache knows it by.
#[derive(Debug)]
pub(super) struct Script {
    source: String,
    hash: String,
}

impl Script {
    fn new(text: &str) -> Self {
        // Servers keep it: without its comments.
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
        let source = lines.collect::<Vec<_>>().join("\n");
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }

    /// One call of it: in full, which also puts it into the server's cache, or by its hash.
    pub(super) fn command(&self, call: &Call, full: bool) -> Cmd {
        let (name, what) = if full { ("EVAL", &self.source) } else { ("EVALSHA", &self.hash) };
        let mut command = cmd(name);
        command.arg(what).arg(1 + usize::from(call.second_key.is_some())).arg(&call.key);
        call.second_key.iter().for_each(|key| _ = command.arg(key));
        call.arguments.iter().for_each(|argument| _ = command.arg(argument));
        command
    }
}

/// What one call of a script is given.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) key: String,
    /// In the same slot of a Cluster.
    pub(super) second_key: Option<String>,
    pub(super) arguments: Arguments,
    /// Of how many items the arguments are.
    pub(super) items: usize,
}

impl Call {
    /// Of no items yet.
    pub(super) fn of(key: String) -> Self {
        Self { key, second_key: None, arguments: Arguments::default(), items: 0 }
    }

    /// One more item.
    pub(super) fn item(&mut self, push: impl FnOnce(&mut Arguments)) {
        push(&mut self.arguments);
        self.items += 1;
    }
}

/// Texts, one behind the other in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    text: String,
    ends: Vec<usize>,
}

impl Arguments {
    pub(super) fn push(&mut self, argument: impl Display) {
        // A text takes what it is given.
        let _ = write!(self.text, "{argument}");
        self.ends.push(self.text.len());
    }

    /// Nothing as an empty text.
    pub(super) fn push_some(&mut self, argument: Option<impl Display>) {
        match argument {
            Some(argument) => self.push(argument),
            None => self.push(""),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.text[start..*end])
    }
}

macro_rules! scripts {
    ($($name:ident = $($part:literal),+;)+) => {$(
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!($part)),+)));
    )+};
}

scripts! {
    REGISTER = "server.lua", "record.lua", "register.lua", "each.lua";
    CLAIM = "server.lua", "record.lua", "claim.lua", "each.lua";
    RENEW = "server.lua", "record.lua", "renew.lua", "each.lua";
    FINISH = "server.lua", "record.lua", "finish.lua", "each.lua";
    INSPECT = "server.lua", "record.lua", "inspect.lua", "each.lua";
    CONTROL = "server.lua", "record.lua", "control.lua", "each.lua";
    BEAT = "server.lua", "beat.lua";
}
