//! How much the maps hold.

/// Pods on one node that can be enrolled at a time (Kubernetes' default limit is 110 for all pods).
pub const PODS: usize = 4096;
/// Addresses of enrolled pods: room for four each.
pub const ADDRESSES: usize = 4 * PODS;
/// Key of the entry in `COUNTERS` with the sums of pods that are gone, so that the node's sums only grow. No network
/// namespace has this cookie, and no program counts there.
pub const GONE: u64 = u64::MAX;
/// Networks that one agent can know.
pub const NETWORKS: usize = 1024;
/// Connections between connect and accept, at a time.
pub const HANDOVERS: usize = 65_536;
/// Open connections of the node's own processes to enrolled pods.
pub const TRUSTED: usize = 65_536;
/// Listeners of proxies: up to [`LISTENER_SLOTS`] for each pod.
pub const LISTENERS: usize = LISTENER_SLOTS as usize * PODS;
/// Listeners of one pod that are kept: rolling proxies and worker threads share a port (`SO_REUSEPORT`).
pub const LISTENER_SLOTS: u32 = 8;
