//! What cgroupfs and procfs say of processes: which belong to a pod, their age, their network namespace.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use agent_core::cgroup_path::pod_uid_of;
use agent_core::ids::PodUid;

use crate::netns::NetnsId;

/// Processes of a cgroup and of those below it (`cgroup.procs`, Linux Documentation/admin-guide/cgroup-v2.rst).
/// Processes outside the reader's PID namespace come as 0.
///
/// # Errors
/// When the folder is gone or cannot be read. Folders below that vanish meanwhile are no error.
pub(super) fn in_cgroup(folder: &Path) -> io::Result<Vec<u32>> {
    let mut pids = procs(folder)?;
    let mut folders = subfolders(folder)?;
    while let Some(folder) = folders.pop() {
        pids.extend(procs(&folder).unwrap_or_default());
        folders.extend(subfolders(&folder).unwrap_or_default());
    }
    Ok(pids)
}

fn procs(folder: &Path) -> io::Result<Vec<u32>> {
    match fs::read_to_string(folder.join("cgroup.procs")) {
        Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
        // A threaded cgroup does not tell its processes; the domain above it does.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The folders in a folder.
pub(super) fn subfolders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(folders.map(|entry| entry.path()).collect())
}

/// procfs, wherever it is mounted.
#[derive(Clone, Debug)]
pub(super) struct Proc {
    root: PathBuf,
}

impl Proc {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    fn path(&self, pid: u32, name: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(name)
    }

    /// The process' network namespace, opened.
    pub(super) fn open_netns(&self, pid: u32) -> io::Result<File> {
        File::open(self.path(pid, "ns/net"))
    }

    /// The identity of the process' network namespace.
    pub(super) fn netns_id(&self, pid: u32) -> io::Result<NetnsId> {
        let stat = rustix::fs::stat(self.path(pid, "ns/net"))?;
        Ok(NetnsId {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    /// When the process began, in clock ticks since boot.
    pub(super) fn start_time(&self, pid: u32) -> io::Result<u64> {
        let stat = fs::read_to_string(self.path(pid, "stat"))?;
        start_time(&stat)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/PID/stat has no field 22"))
    }

    /// Why a process that lives cannot be looked at; `None` when it has ended, which is no reason to complain.
    pub(super) fn why_unseen(&self, pid: u32, error: &io::Error) -> Option<String> {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Some(format!(
                "may not be looked at ({error}): the agent needs CAP_SYS_PTRACE"
            )),
            io::ErrorKind::NotFound if is_alive(pid) && !self.root.join(pid.to_string()).exists() => {
                Some(format!(
                    "is hidden by the procfs at {} (hidepid): the agent needs CAP_SYS_PTRACE",
                    self.root.display()
                ))
            }
            _ => None,
        }
    }

    /// A file that tells of the process.
    pub(super) fn read(&self, pid: u32, name: &str) -> io::Result<String> {
        fs::read_to_string(self.path(pid, name))
    }

    /// Inodes of the sockets that the process has open; none of a process that has ended.
    pub(super) fn sockets(&self, pid: u32) -> Vec<u64> {
        let descriptors = fs::read_dir(self.path(pid, "fd")).into_iter().flatten().flatten();
        let inode = |descriptor: fs::DirEntry| {
            let target = fs::read_link(descriptor.path()).ok()?;
            let number = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            number.parse().ok()
        };
        descriptors.filter_map(inode).collect()
    }

    /// The pod that the process belongs to.
    pub(super) fn pod(&self, pid: u32) -> Option<PodUid> {
        pod_of_cgroups(&fs::read_to_string(self.path(pid, "cgroup")).ok()?)
    }

    /// Whether controllers are mounted as cgroup v1 beside or instead of v2.
    pub(super) fn has_cgroup_v1(&self) -> bool {
        let cgroups = fs::read_to_string(self.path(1, "cgroup")).unwrap_or_default();
        cgroups.lines().any(|line| !line.starts_with("0::"))
    }

    /// All processes of pods. Reads a file for each process on the node.
    pub(super) fn of_pods(&self) -> io::Result<HashMap<PodUid, Vec<u32>>> {
        let mut pods = HashMap::<_, Vec<_>>::new();
        for entry in fs::read_dir(&self.root)?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if let Some(uid) = self.pod(pid) {
                pods.entry(uid).or_default().push(pid);
            }
        }
        Ok(pods)
    }
}

/// Whether there is a process of this number; one that may not be signalled is there too.
fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Field 22 of `/proc/PID/stat` (proc_pid_stat(5)). Field 2, the name, may hold spaces and parentheses.
fn start_time(stat: &str) -> Option<u64> {
    let (_, fields_from_3) = stat.rsplit_once(')')?;
    fields_from_3.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// The pod that the lines of `/proc/PID/cgroup` (cgroups(7)) name. Nobody's process if two hierarchies name two pods.
fn pod_of_cgroups(lines: &str) -> Option<PodUid> {
    let paths = lines.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut pods = paths.filter_map(pod_uid_of);
    let pod = pods.next()?;
    pods.all(|other| other == pod).then_some(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "863b91d4-4b68-4efa-917f-4b560e3e86aa";
    const OTHER: &str = "aaaabbbb-cccc-dddd-eeee-ffff00001111";

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 70298968 20";
        for name in ["(pause)", "(a b)", "(a) S 9 (b)", "()"] {
            assert_eq!(
                start_time(&format!("12 {name} {rest}")),
                Some(70_298_968),
                "{name}"
            );
        }
        assert_eq!(start_time("12 (pause) S 1 2"), None);
        assert_eq!(start_time(""), None);
    }

    #[test]
    fn a_process_belongs_to_the_pod_that_all_its_hierarchies_name() {
        let cases = [
            (format!("5:cpu:/kubepods/pod{UID}/c1\n0::/\n"), Some(UID)),
            (format!("0::/kubepods/pod{UID}/c1\n"), Some(UID)),
            (
                format!("0::/kubepods/pod{OTHER}/c1/kubepods/pod{UID}/c2\n"),
                Some(OTHER),
            ),
            (
                format!("5:cpu:/kubepods/pod{UID}/c1\n0::/kubepods/pod{OTHER}/c1\n"),
                None,
            ),
            ("0::/system.slice/sshd.service\n".to_owned(), None),
            (String::new(), None),
        ];
        for (lines, pod) in cases {
            assert_eq!(pod_of_cgroups(&lines), pod.map(PodUid::from), "{lines}");
        }
    }
}
