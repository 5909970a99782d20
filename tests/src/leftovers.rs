//! Removal of everything that a node consists of, by its name: for a node that is dropped, and for what a killed run
//! left behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::{cgroup, netns};

/// What every name of a node starts with.
pub const PREFIX: &str = "meshgate-test-";

/// Where the parts of the node with this name are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Name: prefix, process id of the owner, number.
    pub name: String,
    /// Folder in the cgroup v2 tree.
    pub cgroup: PathBuf,
    /// Folder in the BPF file system.
    pub bpffs: PathBuf,
    /// Sockets, logs, manifests.
    pub run: PathBuf,
}

impl Parts {
    /// The parts under these three folders.
    #[must_use]
    pub fn new(name: &str, cgroups: &Path, bpffs: &Path) -> Self {
        Self {
            name: name.to_owned(),
            cgroup: cgroups.join(name),
            bpffs: bpffs.join(name),
            run: std::env::temp_dir().join(name),
        }
    }

    /// Kills the processes, then removes pins, namespaces and folders. Whatever is gone already is fine.
    pub fn remove(&self) {
        cgroup::remove(&self.cgroup);
        for folder in self.cgroups_v1() {
            cgroup::remove_folders(&folder);
        }
        let _ = fs::remove_dir_all(&self.bpffs);
        for name in names_in(Path::new(netns::FOLDER)) {
            if name == self.name
                || name
                    .strip_prefix(&self.name)
                    .is_some_and(|rest| rest.starts_with('.'))
            {
                netns::delete(&name);
            }
        }
        let _ = fs::remove_dir_all(&self.run);
    }

    /// Folders in the cgroup v1 hierarchies, which a container runtime makes. Their processes are in [`Parts::cgroup`]
    /// too.
    fn cgroups_v1(&self) -> Vec<PathBuf> {
        let mounts = cgroup::v1_mounts().into_iter();
        mounts.map(|mount| mount.join(&self.name)).collect()
    }

    /// What is still there, as text for people: empty when nothing is.
    #[must_use]
    pub fn remains(&self) -> Vec<String> {
        let v1 = self.cgroups_v1();
        let folders = [&self.cgroup, &self.bpffs, &self.run]
            .into_iter()
            .chain(&v1)
            .filter(|path| path.exists());
        let namespaces = names_in(Path::new(netns::FOLDER)).into_iter();
        let mine = namespaces.filter(|name| owner(name).is_some() && name.starts_with(&self.name));
        folders
            .map(|path| path.display().to_string())
            .chain(mine)
            .collect()
    }
}

/// Removes, once per process, what runs left behind whose process is dead.
pub fn sweep(cgroups: &Path, bpffs: &Path) {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| {
        let folders = [
            cgroups.to_path_buf(),
            bpffs.to_path_buf(),
            std::env::temp_dir(),
            netns::FOLDER.into(),
        ];
        let folders = folders.into_iter().chain(cgroup::v1_mounts());
        let mut nodes: Vec<String> = folders
            .flat_map(|folder| names_in(&folder))
            .filter_map(node_of)
            .collect();
        nodes.sort();
        nodes.dedup();
        for node in nodes {
            if owner(&node).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                Parts::new(&node, cgroups, bpffs).remove();
            }
        }
    });
}

/// The node that a folder or namespace belongs to: pods' namespaces are called `<node>.<pod>`.
fn node_of(name: String) -> Option<String> {
    owner(&name)?;
    Some(match name.split_once('.') {
        Some((node, _)) => node.to_owned(),
        None => name,
    })
}

/// Process id in a name of ours.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_owner_and_node() {
        assert_eq!(owner("meshgate-test-17-3"), Some(17));
        assert_eq!(owner("meshgate-test-17-3.client"), Some(17));
        assert_eq!(owner("meshgate-test-x-3"), None);
        assert_eq!(owner("cni-17"), None);
        assert_eq!(
            node_of("meshgate-test-17-3.my-pod".into()).as_deref(),
            Some("meshgate-test-17-3")
        );
        assert_eq!(
            node_of("meshgate-test-17-3".into()).as_deref(),
            Some("meshgate-test-17-3")
        );
        assert_eq!(node_of("other".into()), None);
    }
}
