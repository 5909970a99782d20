//! What a pod is to Kubernetes: its names, labels and addresses, and the manifest made of them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

/// Address families of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Families {
    /// IPv4 and IPv6.
    #[default]
    Dual,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// What is asked for when a pod is made.
#[derive(Clone, Debug, Default)]
pub struct PodSpec {
    /// Name.
    pub name: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Address families.
    pub families: Families,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Kubernetes UID; otherwise one that no other pod of this machine has.
    pub uid: Option<String>,
    /// Host part of its addresses; otherwise one that no other pod of the node had.
    pub host: Option<u32>,
}

impl PodSpec {
    /// A dual-stack pod in namespace `default`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            ..Self::default()
        }
    }

    /// In the mesh, by the pod's own label.
    #[must_use]
    pub fn ambient(self) -> Self {
        self.label("istio.io/dataplane-mode", "ambient")
    }

    /// With a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With these address families.
    #[must_use]
    pub fn families(mut self, families: Families) -> Self {
        self.families = families;
        self
    }

    /// With this UID, which an API server gave.
    #[must_use]
    pub fn uid(mut self, uid: &str) -> Self {
        self.uid = Some(uid.to_owned());
        self
    }

    /// With this host part of its addresses, which are given out again.
    #[must_use]
    pub fn host(mut self, host: u32) -> Self {
        self.host = Some(host);
        self
    }

    /// In this Kubernetes namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }
}

/// What Kubernetes knows of a pod that runs.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.nodeName`.
    pub node: String,
    /// `status.podIPs`.
    pub ips: Vec<IpAddr>,
    /// Which pod of this run it is: a later one has a later `metadata.creationTimestamp`.
    pub number: u32,
}

/// The pod's manifest, as the API server would show it.
#[must_use]
pub fn pod_manifest(spec: &PodSpec, identity: &Identity) -> Value {
    let ips: Vec<Value> = identity
        .ips
        .iter()
        .map(|ip| json!({ "ip": ip.to_string() }))
        .collect();
    let seconds = identity.number;
    let created = format!(
        "2026-01-01T{:02}:{:02}:{:02}Z",
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60
    );
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": spec.name,
            "namespace": spec.namespace,
            "uid": identity.uid,
            "creationTimestamp": created,
            "labels": spec.labels,
            "annotations": spec.annotations,
        },
        "spec": {
            "nodeName": identity.node,
            "serviceAccountName": "default",
            "containers": [{ "name": "application", "image": "example.com/application:1" }],
        },
        "status": {
            "phase": "Running",
            "podIP": identity.ips.first().map(ToString::to_string),
            "podIPs": ips,
            "containerStatuses": [{
                "name": "application",
                "containerID": format!("containerd://{:064x}", identity.number),
                "image": "example.com/application:1",
                "imageID": "",
                "ready": true,
                "restartCount": 0,
            }],
        },
    })
}

/// The manifest of a pod whose sandbox is being made: it is on its node, and kubelet has reported nothing yet.
#[must_use]
pub fn scheduled_manifest(spec: &PodSpec, identity: &Identity) -> Value {
    let mut manifest = pod_manifest(spec, identity);
    manifest["status"] = json!({ "phase": "Pending" });
    manifest
}

/// A Kubernetes namespace's manifest.
#[must_use]
pub fn namespace_manifest(name: &str, labels: &[(&str, &str)]) -> Value {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": name, "uid": format!("namespace-{name}"), "labels": labels },
        "status": { "phase": "Active" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_yaml_which_keeps_texts_that_look_like_something_else() {
        let spec = PodSpec::new("a")
            .ambient()
            .annotation("ambient.istio.io/dns-capture", "true")
            .label("n", "1");
        let ips = vec!["10.1.0.2".parse().unwrap(), "fd00:1::2".parse().unwrap()];
        let identity = Identity {
            uid: "u".into(),
            node: "n1".into(),
            ips,
            number: 61,
        };
        let manifest = pod_manifest(&spec, &identity);
        let yaml = serde_saphyr::to_string(&manifest).unwrap();
        let back: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(back, manifest, "{yaml}");
        assert_eq!(
            back["metadata"]["annotations"]["ambient.istio.io/dns-capture"],
            "true"
        );
        assert_eq!(back["metadata"]["creationTimestamp"], "2026-01-01T00:01:01Z");
        assert_eq!(back["status"]["podIPs"][1]["ip"], "fd00:1::2");
    }
}
