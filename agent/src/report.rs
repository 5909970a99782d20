//! The agent's own account of itself, `<run dir>/status.json`: written by the agent on every change, read by the CLI, and
//! by people when the agent is dead. What is captured is told by the maps; this adds what is not, and why.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The whole account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the agent.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Cluster of this node.
    pub cluster: String,
    /// Name of this node.
    pub node: String,
    /// The source: `kube` or `file:PATH`.
    pub source: String,
    /// Sockets that the agent made.
    #[serde(default)]
    pub sockets: Vec<PathBuf>,
    /// What the node needs to be ready for pods.
    #[serde(default)]
    pub conditions: Vec<ConditionReport>,
    /// What was found wrong in the kernel since the agent started, and put right.
    #[serde(default)]
    pub repairs: RepairReport,
    /// Proxies connected over ZDS.
    pub proxies: Vec<ProxyReport>,
    /// Peers of the ZDS socket that were turned away since the agent started.
    pub zds_errors: ZdsErrors,
    /// What the CNI plugin was answered since the agent started.
    #[serde(default)]
    pub cni: CniReport,
    /// All pods of this node.
    pub pods: Vec<PodReport>,
    /// What is wrong at the moment.
    pub problems: Vec<Problem>,
}

/// Something that the node needs to be ready for pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionReport {
    /// `install`: the CNI plugin is on the node; `watch`: all pods are known and proxies get theirs.
    pub name: String,
    /// It holds.
    pub ready: bool,
    /// What is missing; empty if nothing.
    pub missing: String,
}

/// What was found wrong in the kernel and put right; the log says each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairReport {
    /// Links of what is gone, or missing although others were there, at the start.
    pub links: u64,
    /// Links and maps that somebody unpinned since.
    pub pins: u64,
    /// Rows of maps that belonged to no pod.
    pub rows: u64,
    /// Versions of the layouts of which only leftovers were there.
    pub versions: u64,
}

/// A proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyReport {
    /// Process id.
    pub pid: u32,
    /// Its cgroup.
    pub cgroup: String,
    /// It has the whole snapshot.
    pub synced: bool,
}

/// Peers of the ZDS socket that were turned away, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZdsErrors {
    /// They sent what the protocol does not allow.
    pub protocol: u64,
    /// They did not answer in time.
    pub timeout: u64,
    /// It cannot be told who they are.
    pub unknown_peer: u64,
    /// The programs could not be attached to their cgroup.
    pub attach: u64,
}

/// What the CNI plugin was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniReport {
    /// Answers by HTTP status.
    pub answers: BTreeMap<u16, u64>,
    /// Pods that were let through uncaptured by the failure policy.
    pub let_through: u64,
    /// Lines of the plugin's log that could not be read.
    pub dropped_log_lines: u64,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodReport {
    /// Kubernetes UID.
    pub uid: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// `outside`, `waiting` (wanted, no network namespace yet), `pending` (captured, the proxy has not accepted it) or
    /// `enabled`.
    pub state: String,
    /// Why it is in this state, or its last error; empty if there is nothing to say.
    pub reason: String,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// With what.
    pub object: String,
    /// What.
    pub problem: String,
    /// What to do.
    pub fix: String,
}

impl Report {
    /// Reads the account; `None` if there is none.
    ///
    /// # Errors
    /// When the file cannot be read or is not one; names it.
    pub fn read(run_dir: &Path) -> io::Result<Option<Self>> {
        let path = path(run_dir);
        let read = std::fs::read(&path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let told = format!("reading {}: {error}", path.display());
                Err(io::Error::new(error.kind(), told))
            }
            Ok(report) => Ok(Some(report)),
        }
    }

    /// Writes the account, whole or not at all.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&self, run_dir: &Path) -> io::Result<()> {
        let (path, fresh) = (path(run_dir), unfinished(run_dir));
        std::fs::create_dir_all(run_dir)?;
        std::fs::write(&fresh, serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(fresh, path)
    }
}

/// Where the account is.
#[must_use]
pub fn path(run_dir: &Path) -> PathBuf {
    run_dir.join("status.json")
}

/// Where the next account is while it is being written.
#[must_use]
pub fn unfinished(run_dir: &Path) -> PathBuf {
    run_dir.join(".status.json.new")
}
