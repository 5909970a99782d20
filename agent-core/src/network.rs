//! Which network a pod's addresses belong to.

use crate::facts::{NamespaceFacts, Place, PodFacts, StringMap};
use crate::ids::NetworkName;
use crate::labels::NETWORK;

/// The network of a pod: its own label `topology.istio.io/network`, else that of the cluster's system namespace
/// ([`Place::system_namespace`]), else [`Place::default_network`]. A label without a value says nothing, as in istiod.
#[must_use]
pub fn network_of(pod: &PodFacts, system_namespace: Option<&NamespaceFacts>, place: &Place) -> NetworkName {
    named_in(&pod.labels)
        .or_else(|| system_namespace.and_then(|namespace| named_in(&namespace.labels)))
        .unwrap_or_else(|| place.default_network.clone())
}

fn named_in(labels: &StringMap) -> Option<NetworkName> {
    labels
        .get(NETWORK)
        .filter(|name| !name.is_empty())
        .map(|name| NetworkName(name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{namespace, place, pod};

    #[test]
    fn the_pod_speaks_before_the_system_namespace_and_that_before_the_default() {
        let rows = [
            ("nothing is said", None, None, "default-net"),
            (
                "no system namespace is known, but the pod says",
                Some("pod-net"),
                None,
                "pod-net",
            ),
            (
                "the system namespace says nothing",
                None,
                Some(None),
                "default-net",
            ),
            (
                "the system namespace says",
                None,
                Some(Some("cluster-net")),
                "cluster-net",
            ),
            ("both say", Some("pod-net"), Some(Some("cluster-net")), "pod-net"),
            (
                "the pod's label has no value",
                Some(""),
                Some(Some("cluster-net")),
                "cluster-net",
            ),
            ("no label has a value", Some(""), Some(Some("")), "default-net"),
        ];
        for (name, on_pod, on_namespace, expected) in rows {
            let mut pod = pod("a");
            pod.labels
                .extend(on_pod.map(|value| (NETWORK.to_owned(), value.to_owned())));
            let system = on_namespace.map(|value| {
                let mut system = namespace("istio-system");
                system
                    .labels
                    .extend(value.map(|value: &str| (NETWORK.to_owned(), value.to_owned())));
                system
            });
            let place = Place {
                default_network: "default-net".into(),
                ..place()
            };
            assert_eq!(
                network_of(&pod, system.as_ref(), &place).as_str(),
                expected,
                "{name}"
            );
        }
    }
}
