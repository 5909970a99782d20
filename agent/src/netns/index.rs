//! Which processes belong to which pod: an index of the pods' cgroup folders, walked once for all pods.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent_core::cgroup_path::pod_folder_uid;
use agent_core::ids::PodUid;

use crate::netns::processes::{self, Proc};

/// An index answers a miss by itself for this long, and for ten times what the walk took: pods that have no process
/// yet cannot make the agent walk the tree all the time.
const FRESH: Duration = Duration::from_millis(20);

/// Folders of pods by UID. Rebuilt when a pod is asked for that it does not hold.
pub(super) struct PodIndex {
    cgroup_root: PathBuf,
    proc: Proc,
    /// Folders in the cgroup v2 tree.
    folders: HashMap<PodUid, PathBuf>,
    /// Processes by procfs, where the v2 tree does not tell them.
    scanned: HashMap<PodUid, Vec<u32>>,
    /// Whether the v2 tree may not tell all: pods may be in v1 hierarchies only, or the tree shows the processes of
    /// another PID namespace.
    scans: bool,
    fresh: Duration,
    fresh_until: Option<Instant>,
}

impl PodIndex {
    pub(super) fn new(cgroup_root: &Path, proc: Proc) -> Self {
        Self {
            cgroup_root: cgroup_root.to_owned(),
            scans: proc.has_cgroup_v1(),
            proc,
            folders: HashMap::new(),
            scanned: HashMap::new(),
            fresh: FRESH,
            fresh_until: None,
        }
    }

    /// The pod's processes; none when it has not started or is gone.
    ///
    /// # Errors
    /// When the cgroup tree or procfs cannot be read at all.
    pub(super) fn processes(&mut self, uid: &PodUid) -> io::Result<Vec<u32>> {
        if let Some(pids) = self.look_up(uid) {
            return Ok(pids);
        }
        if self.fresh_until.is_some_and(|until| Instant::now() < until) {
            return Ok(Vec::new());
        }
        let start = Instant::now();
        self.folders = pod_folders(&self.cgroup_root)?;
        let mut pids = self.look_up(uid);
        if pids.is_none() && self.scans {
            self.scanned = self.proc.of_pods()?;
            pids = self.look_up(uid);
        }
        let end = Instant::now();
        self.fresh_until = Some(end + self.fresh.max(10 * (end - start)));
        Ok(pids.unwrap_or_default())
    }

    /// The processes as far as the index knows; `None` is a miss.
    fn look_up(&mut self, uid: &PodUid) -> Option<Vec<u32>> {
        if let Some(folder) = self.folders.get(uid) {
            match processes::in_cgroup(folder) {
                Ok(mut pids) => {
                    self.scans |= pids.contains(&0);
                    pids.retain(|pid| *pid != 0);
                    if !pids.is_empty() || !self.scans {
                        return Some(pids);
                    }
                }
                Err(_) => {
                    self.folders.remove(uid);
                }
            }
        }
        let mut pids = self.scanned.get(uid)?.clone();
        // The number of a process that ended may have gone to a stranger.
        pids.retain(|pid| self.proc.pod(*pid).as_ref() == Some(uid));
        (!pids.is_empty()).then_some(pids)
    }
}

/// Every pod's folder below `root`. Nothing below a pod's folder is looked at: what runs within a pod is not this
/// node's business.
fn pod_folders(root: &Path) -> io::Result<HashMap<PodUid, PathBuf>> {
    let mut pods = HashMap::new();
    let mut pending = processes::subfolders(root)?;
    while let Some(folder) = pending.pop() {
        match folder.file_name().and_then(|name| pod_folder_uid(name.to_str()?)) {
            Some(uid) => {
                pods.insert(uid, folder);
            }
            None => pending.extend(processes::subfolders(&folder).unwrap_or_default()),
        }
    }
    Ok(pods)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const UID: &str = "863b91d4-4b68-4efa-917f-4b560e3e86aa";

    /// A cgroup tree and a procfs of plain files.
    struct Node(tempfile::TempDir);

    impl Node {
        fn new(cgroups_of_init: &str) -> Self {
            let node = Self(tempfile::tempdir().unwrap());
            node.write("cgroup/cgroup.procs", "1\n");
            node.write("proc/1/cgroup", cgroups_of_init);
            node
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn index(&self) -> PodIndex {
            let proc = Proc::new(&self.0.path().join("proc"));
            PodIndex::new(&self.0.path().join("cgroup"), proc)
        }
    }

    fn expire(index: &mut PodIndex) {
        index.fresh_until = None;
    }

    fn processes(index: &mut PodIndex, uid: &str) -> Vec<u32> {
        let mut pids = index.processes(&PodUid::from(uid)).unwrap();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn processes_are_found_in_the_pods_folder_and_below_it() {
        let node = Node::new("0::/\n");
        let pod = format!(
            "cgroup/kubepods.slice/kubepods-pod{}.slice",
            UID.replace('-', "_")
        );
        node.write(&format!("{pod}/cgroup.procs"), "");
        node.write(&format!("{pod}/cri-a.scope/cgroup.procs"), "10\n");
        node.write(&format!("{pod}/cri-b.scope/inner/cgroup.procs"), "12\n11\n");
        node.write(&format!("{pod}/cri-b.scope/cgroup.procs"), "");
        assert_eq!(processes(&mut node.index(), UID), [10, 11, 12]);
    }

    #[test]
    fn one_walk_serves_all_pods_and_a_miss_waits_for_the_next() {
        let node = Node::new("0::/\n");
        let mut index = node.index();
        index.fresh = Duration::from_secs(3600);
        let uid = |n: u32| format!("00000000-0000-0000-0000-{n:012}");
        for n in 0..250 {
            node.write(
                &format!("cgroup/kubepods/pod{}/cgroup.procs", uid(n)),
                &format!("{}\n", n + 2),
            );
        }
        for n in 0..250 {
            assert_eq!(processes(&mut index, &uid(n)), [n + 2]);
        }
        node.write(&format!("cgroup/kubepods/pod{UID}/cgroup.procs"), "500\n");
        assert_eq!(
            processes(&mut index, UID),
            [0; 0],
            "a fresh index does not walk again"
        );
        expire(&mut index);
        assert_eq!(processes(&mut index, UID), [500]);
    }

    #[test]
    fn a_folder_that_is_gone_is_a_miss_and_one_without_processes_is_not() {
        let node = Node::new("0::/\n");
        node.write(&format!("cgroup/kubepods/pod{UID}/cgroup.procs"), "");
        let mut index = node.index();
        assert_eq!(processes(&mut index, UID), [0; 0]);
        assert!(index.look_up(&PodUid::from(UID)).is_some());

        fs::remove_dir_all(node.0.path().join("cgroup/kubepods")).unwrap();
        node.write(&format!("cgroup/kubepods/burstable/pod{UID}/cgroup.procs"), "7\n");
        expire(&mut index);
        assert_eq!(processes(&mut index, UID), [7]);
    }

    #[test]
    fn pods_that_only_v1_hierarchies_know_are_found_by_their_processes() {
        let node = Node::new("5:cpu:/\n0::/\n");
        node.write("proc/20/cgroup", &format!("5:cpu:/kubepods/pod{UID}/c1\n0::/\n"));
        node.write("proc/21/cgroup", "5:cpu:/system.slice\n0::/\n");
        let mut index = node.index();
        assert_eq!(processes(&mut index, UID), [20]);
        node.write("proc/20/cgroup", "5:cpu:/system.slice\n0::/\n");
        assert_eq!(
            processes(&mut index, UID),
            [0; 0],
            "the number belongs to somebody else now"
        );
    }

    #[test]
    fn processes_of_another_pid_namespace_are_found_by_procfs() {
        let node = Node::new("0::/\n");
        node.write(&format!("cgroup/kubepods/pod{UID}/cgroup.procs"), "0\n0\n");
        node.write("proc/30/cgroup", &format!("0::/kubepods/pod{UID}/c1\n"));
        assert_eq!(processes(&mut node.index(), UID), [30]);
    }

    #[test]
    fn a_root_that_cannot_be_read_is_an_error() {
        let node = Node::new("0::/\n");
        fs::remove_dir_all(node.0.path().join("cgroup")).unwrap();
        assert!(node.index().processes(&PodUid::from(UID)).is_err());
    }
}
