//! What sources say: pods and namespaces reduced to what the rules read, and the events that carry them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::ids::{ClusterId, NamespaceRef, NetworkName, NodeRef, PodRef, PodUid};

/// Labels or annotations.
pub type StringMap = BTreeMap<String, String>;

/// Phase of a pod (`status.phase`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not yet known or accepted only.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended; the address may already belong to another pod.
    Terminal,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// UID, namespace and name.
    pub pod: PodRef,
    /// Cluster and node that it runs on.
    pub node: NodeRef,
    /// `spec.serviceAccountName`.
    pub service_account: String,
    /// `metadata.labels`.
    pub labels: StringMap,
    /// `metadata.annotations`.
    pub annotations: StringMap,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// `status.phase`.
    pub phase: Phase,
    /// `status.podIPs`, else `status.podIP`; parsed, v4-mapped ones unmapped.
    pub ips: Vec<IpAddr>,
    /// `status.initContainerStatuses` and `status.containerStatuses`: `containerID`, as far as there are any. They are
    /// others when a container, or the whole sandbox, was made anew.
    pub containers: Vec<String>,
    /// `metadata.creationTimestamp`, seconds since the epoch: which of two pods is newer.
    pub created: i64,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Cluster and name.
    pub namespace: NamespaceRef,
    /// `metadata.labels`.
    pub labels: StringMap,
}

/// What a source says. A source starts each listing with `…Relist`, ends it with `…Listed`, and tells single changes
/// in between and afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A full list of pods begins: what it does not name is gone when [`Fact::PodsListed`] comes.
    PodsRelist,
    /// The list of pods is complete.
    PodsListed,
    /// A pod is there, new or changed.
    Pod(Box<PodFacts>),
    /// A pod is gone.
    PodGone(PodUid),
    /// A full list of namespaces begins.
    NamespacesRelist,
    /// The list of namespaces is complete.
    NamespacesListed,
    /// A namespace is there, new or changed.
    Namespace(NamespaceFacts),
    /// A namespace is gone.
    NamespaceGone(NamespaceRef),
    /// An object could not be understood; the others go on.
    Bad(BadObject),
    /// All earlier problems with this object are over.
    Good {
        /// The object, as in [`BadObject::object`].
        object: String,
    },
    /// The source itself has a problem (unreachable, forbidden), or has it no more.
    SourceState(SourceState),
}

/// An object that a source cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadObject {
    /// Which object: kind, namespace/name, file.
    pub object: String,
    /// Which field is wrong and how.
    pub problem: String,
    /// What to do.
    pub fix: String,
}

/// Whether a source is current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// What it told is current.
    Current,
    /// It cannot be read at the moment: what it told last still holds.
    Stale {
        /// Why, and what to do.
        problem: String,
    },
}

/// Where this agent is, and what it takes for granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// This node.
    pub node: NodeRef,
    /// Network of pods whose system namespace says nothing else.
    pub default_network: NetworkName,
    /// Namespace whose label `topology.istio.io/network` names the cluster's network (Istio: `istio-system`).
    pub system_namespace: String,
}

impl Place {
    /// The cluster of this node.
    #[must_use]
    pub fn cluster(&self) -> &ClusterId {
        &self.node.cluster
    }
}
