//! Facts for the tests of this crate: one plain pod, one plain namespace, one node.

use crate::facts::{NamespaceFacts, Phase, Place, PodFacts, StringMap};
use crate::ids::{NamespaceRef, NodeRef, PodRef};

/// Node `node-1` of cluster `Kubernetes`, in the unnamed network.
pub(crate) fn place() -> Place {
    Place {
        node: node("node-1"),
        default_network: "".into(),
        system_namespace: "istio-system".to_owned(),
    }
}

/// A node of cluster `Kubernetes`.
pub(crate) fn node(name: &str) -> NodeRef {
    NodeRef {
        cluster: "Kubernetes".into(),
        name: name.to_owned(),
    }
}

/// A running pod `uid` in namespace `default` on [`place`], without labels; its address is 10.0.0.1.
pub(crate) fn pod(uid: &str) -> PodFacts {
    PodFacts {
        pod: PodRef {
            uid: uid.into(),
            namespace: "default".to_owned(),
            name: uid.to_owned(),
        },
        node: place().node,
        service_account: "default".to_owned(),
        labels: StringMap::new(),
        annotations: StringMap::new(),
        host_network: false,
        phase: Phase::Running,
        ips: vec!["10.0.0.1".parse().unwrap()],
        containers: Vec::new(),
        created: 100,
    }
}

/// A namespace of cluster `Kubernetes` without labels.
pub(crate) fn namespace(name: &str) -> NamespaceFacts {
    NamespaceFacts {
        namespace: NamespaceRef {
            cluster: "Kubernetes".into(),
            name: name.to_owned(),
        },
        labels: StringMap::new(),
    }
}
