//! Whom servers run as that do not run as root.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::Command,
};

/// Somebody of this machine.
#[derive(Debug)]
pub(super) struct User {
    id: u32,
    group: u32,
}

impl User {
    /// The first of these that there is, where we are root. Who is not root runs servers as who they are.
    ///
    /// # Panics
    /// When there is none of them.
    pub(super) fn instead_of_root(names: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let id = |option: &str, name: &str| {
            let output = Command::new("id").args([option, name]).output().expect("the program id");
            String::from_utf8_lossy(&output.stdout).trim().parse().ok()
        };
        let user = |name: &&str| Some(Self { id: id("-u", name)?, group: id("-g", name)? });
        let found = names.iter().find_map(user);
        Some(found.unwrap_or_else(|| panic!("there is no user {}", names.join(" or "))))
    }
}

/// A command as that user. It becomes the program.
pub(super) fn as_user(user: Option<&User>, program: &Path) -> Command {
    match user {
        None => Command::new(program),
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={}", user.id), format!("--regid={}", user.group)]);
            command.arg("--clear-groups").arg(program);
            command
        }
    }
}

/// Makes a file or folder that user's, and a folder nobody else's.
pub(super) fn hand_over(user: Option<&User>, path: &Path) {
    if let Some(user) = user {
        chown(path, Some(user.id), Some(user.group)).expect("root may give files away");
    }
    if path.is_dir() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("our own folder");
    }
}

/// Writes files, by name and content, that only that user can read: servers refuse a key that others can read.
pub(super) fn write_all(user: Option<&User>, folder: &Path, files: &[(String, String)]) {
    for (name, content) in files {
        let file = folder.join(name);
        fs::write(&file, content).expect("our own folder");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("our own file");
        hand_over(user, &file);
    }
}
