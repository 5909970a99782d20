//! What is attached at the moment, read from the pins: for `status` and `cleanup`.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::pins::{Pins, PinsError, names};
use super::plan::{NODE, PROXY};
use crate::sys::bpf;

/// A link that should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkState {
    /// Its program.
    pub program: String,
    /// Inode of the cgroup that it is attached to; 0 if it is not attached.
    pub cgroup_id: u64,
    /// It is attached.
    pub attached: bool,
}

fn link(folder: &Path, program: &str) -> LinkState {
    let target = bpf::get_pinned(&folder.join(program))
        .and_then(bpf::link_info)
        .map_or(0, |info| info.target);
    LinkState {
        program: program.to_owned(),
        cgroup_id: target,
        attached: target != 0,
    }
}

/// The links at the node's root cgroup.
#[must_use]
pub fn node_links(pins: &Pins) -> Vec<LinkState> {
    NODE.iter()
        .map(|program| link(&pins.node_links(), program.name))
        .collect()
}

/// The links at proxies' cgroups.
///
/// # Errors
/// When the pins cannot be listed.
pub fn proxy_links(pins: &Pins) -> Result<Vec<LinkState>, PinsError> {
    let proxies = names(&pins.proxies())?;
    Ok(proxies
        .iter()
        .flat_map(|id| {
            PROXY
                .iter()
                .map(move |program| link(&pins.proxies().join(id), program.name))
        })
        .collect())
}

/// Every pin in a folder and below it, files before their folders, the folder itself last; none if it is not there.
///
/// # Errors
/// When a folder cannot be listed.
pub fn pins_in(folder: &Path) -> Result<Vec<PathBuf>, PinsError> {
    let mut found = Vec::new();
    for name in names(folder)? {
        let path = folder.join(name);
        if path.is_dir() {
            found.extend(pins_in(&path)?);
        } else {
            found.push(path);
        }
    }
    if folder.is_dir() {
        found.push(folder.to_owned());
    }
    Ok(found)
}
