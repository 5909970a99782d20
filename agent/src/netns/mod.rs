//! Network namespaces: entering one, its cookie and addresses, finding a pod's.

pub mod addresses;
pub mod by_cookie;
pub mod enter;
pub mod find;
#[cfg(test)]
pub(crate) mod fixture;
mod holders;
mod index;
mod processes;

use std::io;
use std::os::fd::AsFd;

/// What tells two network namespaces apart while both exist: device and inode of their nsfs file (namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NetnsId {
    /// Device of nsfs.
    pub device: u64,
    /// Inode number, the one that `ip netns` and `lsns` show.
    pub inode: u64,
}

impl NetnsId {
    /// The identity of an open namespace.
    ///
    /// # Errors
    /// When the descriptor cannot be examined.
    pub fn of(netns: impl AsFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(netns)?;
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }
}
