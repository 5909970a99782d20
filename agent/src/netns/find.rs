//! The network namespace of a pod: that of its oldest process, if it owns an address of the pod.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use agent_core::ids::PodRef;

use crate::netns::NetnsId;
use crate::netns::enter::{EnterError, inspect};
use crate::netns::holders::holders;
use crate::netns::index::PodIndex;
use crate::netns::processes::Proc;
use crate::ports::{FindNetns, Netns, PortError, PortHolder};

/// Finds a pod's namespace by the processes in the pod's cgroup.
pub struct CgroupFinder {
    index: PodIndex,
    proc: Proc,
    node: NetnsId,
}

impl CgroupFinder {
    /// Over the cgroup v2 tree at `cgroup_root` and the procfs at `proc_root`. `node` is the node's own network
    /// namespace, which is never a pod's.
    ///
    /// # Errors
    /// When `node` cannot be examined.
    pub fn new(cgroup_root: &Path, proc_root: &Path, node: impl AsFd) -> io::Result<Self> {
        let proc = Proc::new(proc_root);
        Ok(Self {
            index: PodIndex::new(cgroup_root, proc.clone()),
            proc,
            node: NetnsId::of(node)?,
        })
    }

    /// The oldest process in each network namespace, oldest first. Processes that end meanwhile are left out; those that
    /// live and may not be looked at are told in `unseen`: who took them for ended would wait for ever without a word.
    fn candidates(&self, pids: &[u32], unseen: &mut String) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for pid in pids {
            match self.candidate(*pid) {
                Ok(candidate) => candidates.push(candidate),
                Err(error) => {
                    if let Some(why) = self.proc.why_unseen(*pid, &error) {
                        let _ = write!(unseen, "; process {pid} {why}");
                    }
                }
            }
        }
        candidates.sort_by_key(|candidate| (candidate.start_time, candidate.pid));
        let mut seen = Vec::new();
        candidates.retain(|candidate| {
            let new = !seen.contains(&candidate.netns);
            seen.push(candidate.netns);
            new
        });
        candidates
    }

    fn candidate(&self, pid: u32) -> io::Result<Candidate> {
        Ok(Candidate {
            pid,
            start_time: self.proc.start_time(pid)?,
            netns: self.proc.netns_id(pid)?,
        })
    }

    fn examine(&self, candidate: &Candidate, addresses: &[IpAddr]) -> Result<Netns, Rejection> {
        if candidate.netns == self.node {
            return Err(Rejection::Node);
        }
        let fd = OwnedFd::from(self.proc.open_netns(candidate.pid)?);
        let facts = inspect(&fd)?;
        if facts.addresses.iter().any(|ip| addresses.contains(ip)) {
            Ok(Netns {
                fd: Arc::new(fd),
                cookie: facts.cookie,
            })
        } else {
            Err(Rejection::Foreign {
                owned: facts.addresses,
            })
        }
    }
}

impl FindNetns for CgroupFinder {
    fn find(&mut self, pod: &PodRef, addresses: &[IpAddr]) -> Result<Option<Netns>, PortError> {
        let pids = self.index.processes(&pod.uid).map_err(|error| {
            failure(
                pod,
                format!("the cgroup tree or procfs cannot be read: {error}; check how they are mounted"),
            )
        })?;
        let mut rejected = String::new();
        for candidate in self.candidates(&pids, &mut rejected) {
            match self.examine(&candidate, addresses) {
                Ok(netns) => return Ok(Some(netns)),
                Err(why) => {
                    let Candidate { pid, netns, .. } = candidate;
                    let _ = write!(rejected, "; process {pid} is in namespace {}: {why}", netns.inode);
                }
            }
        }
        if rejected.is_empty() {
            return Ok(None);
        }
        Err(failure(
            pod,
            format!("no process is in a namespace that owns one of {addresses:?}{rejected}"),
        ))
    }

    fn holders(&mut self, pod: &PodRef) -> Vec<PortHolder> {
        holders(&self.proc, &self.index.processes(&pod.uid).unwrap_or_default())
    }
}

fn failure(pod: &PodRef, cause: String) -> PortError {
    PortError {
        operation: "finding the network namespace",
        object: pod.to_string(),
        cause,
        retryable: true,
    }
}

/// A process whose namespace may be the pod's.
struct Candidate {
    pid: u32,
    start_time: u64,
    netns: NetnsId,
}

/// Why a namespace is not the pod's.
#[derive(Debug, thiserror::Error)]
enum Rejection {
    #[error("it is the node's own")]
    Node,
    #[error("it owns {owned:?}")]
    Foreign { owned: Vec<IpAddr> },
    #[error("it cannot be opened: {0}")]
    Open(#[from] io::Error),
    #[error(transparent)]
    Inspect(#[from] EnterError),
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Instant;

    use agent_core::ids::PodUid;

    use super::*;
    use crate::netns::enter;
    use crate::netns::fixture::{TestCgroup, TestNetns, needs_root};

    const UID: &str = "863b91d4-4b68-4efa-917f-4b560e3e86aa";

    fn pod(uid: &str) -> PodRef {
        PodRef {
            uid: PodUid::from(uid),
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
        }
    }

    fn finder(cgroup: &TestCgroup) -> CgroupFinder {
        let node = File::open("/proc/self/ns/net").unwrap();
        CgroupFinder::new(cgroup.path(), Path::new("/proc"), node).unwrap()
    }

    fn ips(text: &str) -> Vec<IpAddr> {
        vec![text.parse().unwrap()]
    }

    #[test]
    fn the_namespace_that_owns_the_pods_address_is_found() {
        needs_root!();
        let cgroup = TestCgroup::new("found");
        let netns = TestNetns::new(&["10.77.0.1/32"]);
        cgroup.add(&format!("kubepods/pod{UID}/c1"), netns.pid());
        let mut finder = finder(&cgroup);

        let found = finder.find(&pod(UID), &ips("10.77.0.1")).unwrap().unwrap();
        assert_eq!(NetnsId::of(&found).unwrap(), NetnsId::of(&netns.fd).unwrap());
        assert_eq!(found.cookie, enter::cookie(&netns.fd).unwrap());
    }

    #[test]
    fn finding_a_known_pod_costs_well_below_a_millisecond() {
        needs_root!();
        let cgroup = TestCgroup::new("cost");
        let netns = TestNetns::new(&["10.77.0.4/32"]);
        cgroup.add(&format!("kubepods/pod{UID}/c1"), netns.pid());
        let mut finder = finder(&cgroup);
        let mut costs: Vec<_> = (0..200)
            .map(|_| {
                let start = Instant::now();
                finder.find(&pod(UID), &ips("10.77.0.4")).unwrap().unwrap();
                start.elapsed()
            })
            .collect();
        costs.sort();
        let median = costs[costs.len() / 2];
        eprintln!("find: median {median:?}, worst {:?}", costs.last().unwrap());
        assert!(median.as_micros() < 1000, "{median:?}");
    }

    #[test]
    fn a_pod_without_processes_has_no_namespace_yet() {
        needs_root!();
        let cgroup = TestCgroup::new("empty");
        assert!(
            finder(&cgroup)
                .find(&pod(UID), &ips("10.77.0.1"))
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_strangers_namespace_and_the_nodes_own_are_rejected_with_their_processes() {
        needs_root!();
        let cgroup = TestCgroup::new("stranger");
        let stranger = TestNetns::new(&["10.77.0.2/32"]);
        let on_node = TestNetns::of_the_node();
        cgroup.add(&format!("kubepods/pod{UID}/c1"), stranger.pid());
        cgroup.add(&format!("kubepods/pod{UID}/c2"), on_node.pid());

        let error = finder(&cgroup).find(&pod(UID), &ips("10.77.0.1")).unwrap_err();
        assert!(error.retryable);
        let text = error.to_string();
        assert!(
            text.contains(&format!("process {} ", stranger.pid())) && text.contains("10.77.0.2"),
            "{text}"
        );
        assert!(
            text.contains(&format!("process {} ", on_node.pid())) && text.contains("the node's own"),
            "{text}"
        );
    }

    #[test]
    fn of_two_namespaces_with_the_address_that_of_the_older_process_wins() {
        needs_root!();
        let cgroup = TestCgroup::new("older");
        let older = TestNetns::new(&["10.77.0.3/32"]);
        let younger = TestNetns::new(&["10.77.0.3/32"]);
        // The folder of the younger one comes first, whatever the order of the listing.
        cgroup.add(&format!("kubepods/pod{UID}"), younger.pid());
        cgroup.add(&format!("kubepods/pod{UID}/c1"), older.pid());
        let found = finder(&cgroup)
            .find(&pod(UID), &ips("10.77.0.3"))
            .unwrap()
            .unwrap();
        assert_eq!(found.cookie, enter::cookie(&older.fd).unwrap());
    }
}
