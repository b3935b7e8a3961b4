//! Which file systems a database may lie on.
//!
//! The write-ahead log needs memory that all processes share, and locks that hold. A network file system has
//! neither across hosts, and says nothing when a lock does not hold: two winners instead of an error. So it is refused,
//! by the number that `statfs(2)` gives for each kind.

use std::path::Path;

use crate::store::StoreError;

/// Refuses a file whose directory lies on a network file system.
pub(super) fn check(file: &Path) -> Result<(), StoreError> {
    match kind_of(file).and_then(network_file_system) {
        None => Ok(()),
        Some(kind) => Err(StoreError::misconfigured(format_args!(
            "the SQLite database \"{}\" lies on {kind}, where its locks do not hold between hosts; use a file on a local \
             disk of this host (in containers: one local volume for all), or a store with a server",
            file.display()
        ))),
    }
}

/// What to call a file system that is no good, by its magic number.
fn network_file_system(magic: u32) -> Option<&'static str> {
    NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// Numbers from linux/magic.h, statfs(2) and, where neither has them, the file systems' own sources.
const NETWORK: &[(u32, &str)] = &[
    (0x0000_6969, "NFS"),
    (0x0000_517B, "SMB"),
    (0xFF53_4D42, "CIFS (a Windows share)"),
    (0xFE53_4D42, "SMB2 (a Windows share)"),
    (
        0x6573_5546,
        "FUSE (sshfs, s3fs, virtiofs, a shared folder of a desktop's container engine and the like)",
    ),
    (0x0102_1997, "9p (a folder of the host seen from a virtual machine)"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x7375_7245, "Coda"),
    (0x0000_564C, "NCP"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x1983_0326, "BeeGFS"),
    (0xAAD7_AAEA, "PanFS"),
    (0x2030_528D, "OrangeFS"),
    (0x786F_4256, "a shared folder of VirtualBox"),
    (0xBACB_ACBC, "a shared folder of VMware"),
];

/// The magic number of the file's file system: of the file itself where it exists (it may be a link), else of its directory.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn kind_of(file: &Path) -> Option<u32> {
    let stat =
        rustix::fs::statfs(file).or_else(|_| rustix::fs::statfs(file.parent().unwrap_or(file))).ok()?;
    // The field is signed on some machines and longer on others; the numbers have 32 bits.
    Some(stat.f_type as u32)
}

/// Other systems number their file systems differently, or not at all.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn kind_of(_file: &Path) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        // From the man page statfs(2) and linux/magic.h.
        for (magic, word) in [
            (0x6969, "NFS"),
            (0x517B, "SMB"),
            (0xFF53_4D42, "CIFS"),
            (0xFE53_4D42, "SMB2"),
            (0x6573_5546, "FUSE"),
            (0x0102_1997, "9p"),
            (0x5346_414F, "AFS"),
            (0x00C3_6400, "Ceph"),
        ] {
            assert!(
                network_file_system(magic).is_some_and(|name| name.starts_with(word)),
                "{magic:#x} {word}"
            );
        }
    }

    #[test]
    fn local_file_systems_are_let_through() {
        // ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS, bcachefs
        for magic in [
            0xEF53,
            0x5846_5342,
            0x9123_683E,
            0x0102_1994,
            0x794C_7630,
            0xF2F5_2010,
            0x2FC1_2FC1,
            0xCA45_1A4E,
        ] {
            assert_eq!(network_file_system(magic), None, "{magic:#x}");
        }
    }
}
