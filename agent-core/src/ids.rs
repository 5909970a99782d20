//! Names of things, each fully qualified: an address has a network, a node has a cluster, a pod is its UID.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Declares a newtype around a string, so that a cluster is never taken for a network.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// A cluster, as istiod names it (`CLUSTER_ID`, "Kubernetes" by default).
    ClusterId
}
name! {
    /// A network (label `topology.istio.io/network`); empty is the default network.
    NetworkName
}
name! {
    /// The UID of a pod: its identity. Usually a UUID, but any text for static pods.
    PodUid
}

impl PodUid {
    /// A number for this UID that maps can hold (FNV-1a, 64 bits; never 0).
    #[must_use]
    pub fn generation(&self) -> u64 {
        let hash = self.0.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hash.max(1)
    }
}

/// A node within its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeRef {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node's name.
    pub name: String,
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.name)
    }
}

/// A namespace within its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamespaceRef {
    /// The cluster.
    pub cluster: ClusterId,
    /// The namespace's name.
    pub name: String,
}

/// An address within its network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NetworkAddress {
    /// The network.
    pub network: NetworkName,
    /// The address; never v4-mapped.
    pub ip: IpAddr,
}

impl fmt::Display for NetworkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.ip)
    }
}

/// What people call a pod, beside its UID.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodRef {
    /// The UID: the pod's identity.
    pub uid: PodUid,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.namespace, self.name, self.uid)
    }
}

/// A pod, as a container runtime names it to CNI plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPod {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// The UID, if the runtime tells it: Istio's plugin and old runtimes do not.
    pub uid: Option<PodUid>,
}

impl fmt::Display for SandboxPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_tell_uids_apart_and_are_never_zero() {
        let a = PodUid::from("11111111-2222-3333-4444-555555555555");
        let b = PodUid::from("11111111-2222-3333-4444-555555555556");
        assert_ne!(a.generation(), b.generation());
        assert_eq!(a.generation(), a.clone().generation());
        assert_ne!(PodUid::default().generation(), 0);
    }
}
