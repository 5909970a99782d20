//! What enrolment needs of the outside: a datapath, a proxy, a place for the status. Traits exist only here,
//! because only here a fake is needed.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_core::announce::Announcement;
use agent_core::entry::{NetnsCookie, PodEntry};
use agent_core::ids::{PodRef, PodUid};
pub use agent_core::plan::Redirection;
use agent_core::predecessor::{Cleared, Clearing};

/// A pod's network namespace, held open.
#[derive(Clone, Debug)]
pub struct Netns {
    /// The namespace.
    pub fd: Arc<OwnedFd>,
    /// Its cookie.
    pub cookie: NetnsCookie,
}

/// What is wrong, for the operator: operation, object, cause and probable fix in one line.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of {object}: {cause}")]
pub struct PortError {
    /// What was tried.
    pub operation: &'static str,
    /// On what.
    pub object: String,
    /// Why it failed and what to do.
    pub cause: String,
    /// Whether the same call can succeed later without a change of its arguments.
    pub retryable: bool,
}

/// The kernel side: links and maps. All calls are idempotent and take microseconds; none blocks.
pub trait Datapath: Send {
    /// Attaches the inbound program to the pod's namespace (or keeps the link that is there) and, in `wire` mode, adds
    /// what the namespace needs. Nothing is captured by it before [`Datapath::capture`].
    ///
    /// # Errors
    /// When the kernel refuses; nothing is left attached then.
    fn attach(&mut self, netns: &Netns, entry: &PodEntry) -> Result<(), PortError>;

    /// Writes or replaces the pod's entries: from here on its connections go through the proxy.
    ///
    /// # Errors
    /// When a map is full; entries that were written by this call are taken back.
    fn capture(&mut self, entry: &PodEntry) -> Result<(), PortError>;

    /// Removes the entries of this pod, and only of this one: the UID decides.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn release(&mut self, uid: &PodUid) -> Result<(), PortError>;

    /// Detaches the inbound program of this pod's namespace and removes what `wire` mode added. The namespace may be
    /// gone.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn detach(&mut self, netns: NetnsCookie) -> Result<(), PortError>;

    /// Whether Istio's agent left rules in a pod's namespace.
    ///
    /// # Errors
    /// When the kernel does not answer.
    fn has_rules(&self, netns: &Netns) -> Result<bool, PortError>;

    /// Removes the rules that Istio's agent left in a namespace, and nothing else. The namespace may be gone.
    ///
    /// # Errors
    /// When the kernel refuses, or somebody else changes a table at the same time.
    fn clear(
        &mut self,
        netns: NetnsCookie,
        held: Option<&Netns>,
        clearing: Clearing,
    ) -> Result<Cleared, PortError>;

    /// What the maps hold now.
    ///
    /// # Errors
    /// When a map cannot be read.
    fn captured(&self) -> Result<Vec<PodEntry>, PortError>;

    /// Removes what is in the maps and belongs to no pod that was ever named there; returns how much it was. Called once,
    /// when all pods of the node are as they should be, as far as they can be.
    ///
    /// # Errors
    /// When a map cannot be read or written.
    fn sweep(&mut self) -> Result<usize, PortError>;

    /// Makes again what is missing of the links and maps that belong to no single pod, and tells which pods' links are
    /// missing. Called when somebody has removed pins.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn repair(&mut self) -> Result<Repaired, PortError>;

    /// Attaches the proxy's programs to the cgroup of a proxy process, and adopts its listeners that are older. Called
    /// when a proxy connects, before its first pod. Returns how many listeners were adopted.
    ///
    /// # Errors
    /// When the cgroup is the node's root (every process would be the proxy) or the kernel refuses.
    fn attach_proxy(&mut self, peer: &ProxyPeer) -> Result<usize, PortError>;

    /// Removes the links of proxies whose cgroup is gone or empty, and re-adopts the listeners of `alive` ones.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn retire_proxies(&mut self, alive: &[ProxyPeer]) -> Result<(), PortError>;
}

/// What [`Datapath::repair`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Pins that were brought from a bpffs that is not mounted any more.
    pub moved: usize,
    /// What was missing and is there again, in words.
    pub made: Vec<String>,
    /// Network namespaces of captured pods whose link is missing.
    pub lost: BTreeSet<NetnsCookie>,
}

/// Who is at the other end of a ZDS connection (`SO_PEERCRED`, then `/proc/<pid>/cgroup`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyPeer {
    /// Process id in the agent's PID namespace.
    pub pid: u32,
    /// Folder of its cgroup v2, under the cgroup mount.
    pub cgroup: PathBuf,
}

/// What a proxy is told of a pod (ZDS `WorkloadInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// UID, namespace, name.
    pub pod: PodRef,
    /// Service account.
    pub service_account: String,
}

/// The proxies behind ZDS.
pub trait Proxy: Send + Sync {
    /// Adds a pod at the newest connection and waits for its ack; also remembers it for connections that come later,
    /// whatever the outcome. A pod without `netns` is remembered as one to keep (ZDS `Keep`) and is not sent now.
    ///
    /// # Errors
    /// No connection, a transport error, or the proxy's own refusal: all retryable.
    fn add(
        &self,
        workload: Workload,
        netns: Option<Arc<OwnedFd>>,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Forgets the pod and tells all connections. No connection is success.
    ///
    /// # Errors
    /// A transport error.
    fn del(&self, uid: &PodUid) -> impl Future<Output = Result<(), PortError>> + Send;
}

/// Where the state of a pod is written.
pub trait PodStatus: Send + Sync {
    /// Writes or clears the annotation; a pod that is gone is success.
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached.
    fn write(&self, pod: &PodRef, state: Redirection) -> impl Future<Output = Result<(), PortError>> + Send;
}

/// Where the owner of a pod looks for what is wrong with it.
pub trait PodEvents: Send + Sync {
    /// Writes an event of the pod, or that it happened once more. A pod or namespace that is gone is success.
    ///
    /// # Errors
    /// When the API server refuses or cannot be reached.
    fn publish(&self, announcement: &Announcement) -> impl Future<Output = Result<(), PortError>> + Send;
}

/// What had happened to a pod that was compared with its wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// It was seen for the first time.
    Add,
    /// It, its namespace or what was done for it changed.
    Update,
    /// It is gone.
    Delete,
}

/// Who counts what enrolment does.
pub trait Observer: Send {
    /// The source told something.
    fn told(&self);

    /// A pod was compared with its wish.
    fn reconciled(&self, event: Reconciled);

    /// A pod is served, so long after its network namespace was there.
    fn enrolled(&self, after: Duration);
}

/// Finds the network namespace of a pod.
pub trait FindNetns: Send {
    /// The namespace of the pod with this UID, which owns at least one of `addresses`; `None` when it has no process
    /// yet.
    ///
    /// # Errors
    /// When the namespaces found belong to somebody else: none of them owns an address of the pod.
    fn find(&mut self, pod: &PodRef, addresses: &[IpAddr]) -> Result<Option<Netns>, PortError>;

    /// The pod's processes that hold ports of the proxy's, one for each port.
    fn holders(&mut self, pod: &PodRef) -> Vec<PortHolder>;
}

/// A process of a pod that holds a port of the proxy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortHolder {
    /// The port.
    pub port: u16,
    /// Its process id, as the agent sees it.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, pid, name } = self;
        write!(
            f,
            "port {port}, which is the proxy's, is held by process {pid} ({name}): let it use another one"
        )
    }
}

/// Borrow of a namespace's descriptor.
impl std::os::fd::AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
