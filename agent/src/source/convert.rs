//! Kubernetes objects → facts: only what the rules read is kept, and what cannot be used is refused with the object,
//! the field and the fix.

use std::net::IpAddr;

use agent_core::facts::{BadObject, NamespaceFacts, Phase, PodFacts, StringMap};
use agent_core::ids::{ClusterId, NamespaceRef, NodeRef, PodRef, PodUid};
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Longest UID in bytes that maps and the ZDS protocol carry; a UUID has 36.
pub const MAX_UID: usize = 63;
/// Longest namespace name in bytes (an RFC 1123 label).
pub const MAX_NAMESPACE: usize = 63;
/// Longest pod name in bytes (an RFC 1123 subdomain).
pub const MAX_NAME: usize = 253;

/// `kubectl apply` keeps a copy of the whole object here: large, and no rule reads it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The facts of a pod.
///
/// What Kubernetes fills in by default is filled in: namespace and service account `default`. A pod without addresses
/// is fine: it has none yet.
///
/// # Errors
/// When a field that identifies the pod is missing or too long, or an address is not one.
pub fn pod(cluster: &ClusterId, pod: &Pod) -> Result<PodFacts, BadObject> {
    let object = pod_object(&pod.metadata);
    let refuse = |problem: String, fix: &str| BadObject { object: object.clone(), problem, fix: fix.to_owned() };
    let identity = identity(&pod.metadata).map_err(|(problem, fix)| refuse(problem, fix))?;
    let ips = addresses(pod.status.as_ref()).map_err(|(problem, fix)| refuse(problem, fix))?;
    Ok(PodFacts {
        pod: identity,
        node: NodeRef { cluster: cluster.clone(), name: node_name(pod.spec.as_ref()) },
        service_account: service_account(pod.spec.as_ref()),
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        annotations: annotations(&pod.metadata),
        host_network: pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false),
        phase: phase(pod.status.as_ref()),
        ips,
        created: pod.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
    })
}

/// The facts of a namespace: its metadata is all that is read.
///
/// # Errors
/// When the name is missing or too long.
pub fn namespace(cluster: &ClusterId, metadata: &ObjectMeta) -> Result<NamespaceFacts, BadObject> {
    let name = metadata.name.clone().unwrap_or_default();
    checked("metadata.name", &name, MAX_NAMESPACE).map_err(|(problem, fix)| BadObject {
        object: namespace_object(metadata),
        problem,
        fix: fix.to_owned(),
    })?;
    Ok(NamespaceFacts {
        namespace: NamespaceRef { cluster: cluster.clone(), name },
        labels: metadata.labels.clone().unwrap_or_default(),
    })
}

/// What a pod is called in messages: `Pod namespace/name`.
#[must_use]
pub fn pod_object(metadata: &ObjectMeta) -> String {
    let (namespace, name) = pod_name(metadata);
    format!("Pod {namespace}/{}", if name.is_empty() { "(no name)" } else { &name })
}

/// What a namespace is called in messages: `Namespace name`.
#[must_use]
pub fn namespace_object(metadata: &ObjectMeta) -> String {
    format!("Namespace {}", metadata.name.as_deref().unwrap_or("(no name)"))
}

/// Namespace and name of a pod; a pod that names no namespace is in `default`, as for kubectl.
#[must_use]
pub fn pod_name(metadata: &ObjectMeta) -> (String, String) {
    let namespace = metadata.namespace.clone().filter(|namespace| !namespace.is_empty());
    (namespace.unwrap_or_else(|| "default".to_owned()), metadata.name.clone().unwrap_or_default())
}

/// A field's problem and the fix.
type Refusal = (String, &'static str);

fn identity(metadata: &ObjectMeta) -> Result<PodRef, Refusal> {
    let (namespace, name) = pod_name(metadata);
    let uid = metadata.uid.clone().unwrap_or_default();
    checked("metadata.name", &name, MAX_NAME)?;
    checked("metadata.namespace", &namespace, MAX_NAMESPACE)?;
    checked("metadata.uid", &uid, MAX_UID)?;
    Ok(PodRef { uid: PodUid(uid), namespace, name })
}

fn checked(field: &str, value: &str, longest: usize) -> Result<(), Refusal> {
    let length = value.len();
    match length {
        0 if field == "metadata.uid" => Err((
            format!("{field} is missing"),
            "set it to the pod's UID (kubectl get pod -o yaml prints it); it tells this pod from a later one",
        )),
        0 => Err((format!("{field} is missing"), "set it to the name of the object")),
        _ if length > longest => Err((
            format!("{field} has {length} bytes, more than {longest}"),
            "shorten it to what Kubernetes allows",
        )),
        _ => Ok(()),
    }
}

fn node_name(spec: Option<&PodSpec>) -> String {
    spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default()
}

fn service_account(spec: Option<&PodSpec>) -> String {
    spec.and_then(|spec| spec.service_account_name.clone())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "default".to_owned())
}

fn annotations(metadata: &ObjectMeta) -> StringMap {
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    annotations.remove(LAST_APPLIED);
    annotations
}

fn phase(status: Option<&PodStatus>) -> Phase {
    match status.and_then(|status| status.phase.as_deref()) {
        // "Unknown" says that the kubelet is silent; the containers may well run.
        Some("Running" | "Unknown") => Phase::Running,
        Some("Succeeded" | "Failed") => Phase::Terminal,
        _ => Phase::Pending,
    }
}

fn addresses(status: Option<&PodStatus>) -> Result<Vec<IpAddr>, Refusal> {
    let Some(status) = status else { return Ok(Vec::new()) };
    match status.pod_ips.as_deref() {
        Some([]) | None => status
            .pod_ip
            .iter()
            .filter(|ip| !ip.is_empty())
            .map(|ip| address("status.podIP", ip))
            .collect(),
        Some(ips) => ips
            .iter()
            .enumerate()
            .map(|(index, ip)| address(&format!("status.podIPs[{index}].ip"), &ip.ip))
            .collect(),
    }
}

fn address(field: &str, text: &str) -> Result<IpAddr, Refusal> {
    text.parse::<IpAddr>().map(|ip| ip.to_canonical()).map_err(|_| {
        (format!("{field} {text:?} is not an IP address"), "write an IPv4 or IPv6 address without prefix length or zone")
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;

    fn cluster() -> ClusterId {
        ClusterId::from("Kubernetes")
    }

    fn parsed(value: &Value) -> Result<PodFacts, BadObject> {
        pod(&cluster(), &serde_json::from_value::<Pod>(value.clone()).expect("a pod that decodes"))
    }

    fn merged(patch: &Value) -> Value {
        let mut pod = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u-1"}});
        merge(&mut pod, patch);
        pod
    }

    fn merge(into: &mut Value, patch: &Value) {
        match (into, patch) {
            (Value::Object(into), Value::Object(patch)) => {
                for (key, value) in patch {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            (into, patch) => *into = patch.clone(),
        }
    }

    #[test]
    fn a_full_pod_becomes_facts() {
        let facts = parsed(&json!({
            "metadata": {
                "name": "web-0", "namespace": "shop", "uid": "7e4f", "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"app": "web"},
                "annotations": {"ambient.istio.io/redirection": "enabled", LAST_APPLIED: "{}"},
            },
            "spec": {"nodeName": "n1", "serviceAccountName": "shopkeeper", "hostNetwork": true, "containers": []},
            "status": {"phase": "Running", "podIP": "10.0.0.9",
                       "podIPs": [{"ip": "::ffff:10.0.0.1"}, {"ip": "fd00::1"}]},
        }));
        let expected = PodFacts {
            pod: PodRef { uid: "7e4f".into(), namespace: "shop".into(), name: "web-0".into() },
            node: NodeRef { cluster: cluster(), name: "n1".into() },
            service_account: "shopkeeper".into(),
            labels: StringMap::from([("app".into(), "web".into())]),
            annotations: StringMap::from([("ambient.istio.io/redirection".into(), "enabled".into())]),
            host_network: true,
            phase: Phase::Running,
            ips: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            created: 1_767_323_045,
        };
        assert_eq!(facts, Ok(expected));
    }

    #[test]
    fn what_is_absent_is_what_kubernetes_takes_it_for() {
        let facts = parsed(&json!({"metadata": {"name": "web", "uid": "u"}})).unwrap();
        assert_eq!(facts.pod.namespace, "default");
        assert_eq!(facts.service_account, "default");
        assert_eq!((facts.node.name.as_str(), facts.created), ("", 0));
        assert_eq!((facts.ips.len(), facts.phase, facts.host_network), (0, Phase::Pending, false));
    }

    #[test]
    fn addresses_come_from_pod_ips_else_from_pod_ip() {
        let table = [
            (json!({"podIP": "10.0.0.1"}), vec!["10.0.0.1"]),
            (json!({"podIP": "10.0.0.1", "podIPs": []}), vec!["10.0.0.1"]),
            (json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.2"}]}), vec!["10.0.0.2"]),
            (json!({"podIP": ""}), vec![]),
            (json!({}), vec![]),
        ];
        for (status, expected) in table {
            let ips = parsed(&merged(&json!({"status": status}))).unwrap().ips;
            let expected: Vec<IpAddr> = expected.iter().map(|ip| ip.parse().unwrap()).collect();
            assert_eq!(ips, expected, "{status}");
        }
    }

    #[test]
    fn phases_tell_running_from_ended() {
        let table = [
            ("Pending", Phase::Pending),
            ("Running", Phase::Running),
            ("Unknown", Phase::Running),
            ("Succeeded", Phase::Terminal),
            ("Failed", Phase::Terminal),
            ("", Phase::Pending),
        ];
        for (text, expected) in table {
            assert_eq!(parsed(&merged(&json!({"status": {"phase": text}}))).unwrap().phase, expected, "{text:?}");
        }
    }

    #[test]
    fn a_bad_pod_is_refused_with_object_field_and_fix() {
        let long = |length: usize| "x".repeat(length);
        let table = [
            (json!({"metadata": {"uid": null}}), "Pod shop/web", "metadata.uid is missing"),
            (json!({"metadata": {"uid": ""}}), "Pod shop/web", "metadata.uid is missing"),
            (json!({"metadata": {"name": null}}), "Pod shop/(no name)", "metadata.name is missing"),
            (json!({"metadata": {"uid": long(64)}}), "Pod shop/web", "metadata.uid has 64 bytes, more than 63"),
            (
                json!({"metadata": {"namespace": long(64)}}),
                &format!("Pod {}/web", long(64)),
                "metadata.namespace has 64 bytes, more than 63",
            ),
            (
                json!({"metadata": {"name": long(254)}}),
                &format!("Pod shop/{}", long(254)),
                "metadata.name has 254 bytes, more than 253",
            ),
            (
                json!({"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.0/24"}]}}),
                "Pod shop/web",
                "status.podIPs[1].ip \"10.0.0.0/24\" is not an IP address",
            ),
            (json!({"status": {"podIP": "web"}}), "Pod shop/web", "status.podIP \"web\" is not an IP address"),
        ];
        for (patch, object, problem) in table {
            let bad = parsed(&merged(&patch)).unwrap_err();
            assert_eq!((bad.object.as_str(), bad.problem.as_str()), (object, problem), "{patch}");
            assert!(!bad.fix.is_empty(), "{patch}");
        }
    }

    #[test]
    fn the_longest_names_are_accepted() {
        let pod = merged(&json!({"metadata": {
            "name": "n".repeat(MAX_NAME), "namespace": "s".repeat(MAX_NAMESPACE), "uid": "u".repeat(MAX_UID),
        }}));
        assert!(parsed(&pod).is_ok());
    }

    #[test]
    fn a_namespace_is_its_name_and_labels() {
        let meta = |value: Value| serde_json::from_value::<ObjectMeta>(value).unwrap();
        let facts = namespace(&cluster(), &meta(json!({"name": "shop", "labels": {"a": "b"}}))).unwrap();
        assert_eq!(facts.namespace, NamespaceRef { cluster: cluster(), name: "shop".into() });
        assert_eq!(facts.labels.get("a").map(String::as_str), Some("b"));

        let bad = namespace(&cluster(), &meta(json!({}))).unwrap_err();
        assert_eq!(bad.object, "Namespace (no name)");
        assert_eq!(bad.problem, "metadata.name is missing");
        let bad = namespace(&cluster(), &meta(json!({"name": "s".repeat(64)}))).unwrap_err();
        assert_eq!(bad.problem, "metadata.name has 64 bytes, more than 63");
    }
}
