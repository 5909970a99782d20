//! What the CNI plugin reads and says: its configuration, what the runtime tells of the pod, results, errors, and the
//! event that it posts to the agent. CNI specification 1.1.0; names and wire format of Istio's plugin. In reading order:

/// In each binary of the plugin, by which it is told from Istio's: the beginning of what it says when it is called by hand.
pub const BINARY_MARK: &str = "meshgate-cni is called by container runtimes, not by hand";

pub mod version;
pub mod error;
pub mod policy;
pub mod log;

pub mod config;
pub mod args;
pub mod result;
pub mod event;

pub mod conf;
