//! Links and their pins: make, adopt with a new program, remove.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use super::pins::unpin;
use crate::sys::bpf::{self, AttachType};

/// What happened to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was there and has the new program now.
    Adopted,
    /// It was not there, or was attached to something else.
    Attached,
}

/// Makes sure that `program` is attached to `target` by a link pinned at `pin`. A link that is there gets the program
/// without a moment in which it has none.
///
/// `identity` is what the kernel must say of the link's target: the inode of the cgroup or network namespace.
///
/// # Errors
/// What the kernel says.
pub fn ensure(
    pin: &Path,
    program: impl AsFd,
    target: impl AsFd,
    hook: AttachType,
    identity: u64,
) -> io::Result<Outcome> {
    if let Ok(link) = bpf::get_pinned(pin) {
        let same = bpf::link_info(&link).is_ok_and(|info| info.target == identity);
        if same && bpf::link_update(&link, &program).is_ok() {
            return Ok(Outcome::Adopted);
        }
        unpin(pin).map_err(io::Error::other)?;
    }
    let link = bpf::link_create(program, target, hook)?;
    bpf::pin(&link, pin)?;
    Ok(Outcome::Attached)
}

/// Gives the link pinned there another program; false when there is no link or its target is gone.
///
/// # Errors
/// What the kernel says.
pub fn update(pin: &Path, program: impl AsFd) -> io::Result<bool> {
    let link = match bpf::get_pinned(pin) {
        Ok(link) => link,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match bpf::link_update(&link, program) {
        Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => Ok(false),
        result => result.map(|()| true),
    }
}

/// Whether the link pinned there is attached to the target with this inode.
#[must_use]
pub fn is_attached(pin: &Path, identity: u64) -> bool {
    bpf::get_pinned(pin)
        .and_then(bpf::link_info)
        .is_ok_and(|info| info.target == identity)
}

/// Whether what the link pinned there was attached to is gone.
#[must_use]
pub fn is_dead(pin: &Path) -> bool {
    bpf::get_pinned(pin)
        .and_then(bpf::link_info)
        .is_ok_and(|info| info.target == 0)
}
