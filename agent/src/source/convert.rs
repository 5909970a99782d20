//! Kubernetes objects → facts: only what the rules read is kept, and what cannot be used is refused with the object,
//! the field and the fix.

use std::net::{IpAddr, Ipv4Addr};

use agent_core::facts::{BadObject, NamespaceFacts, Phase, PodFacts, StringMap};
use agent_core::ids::{ClusterId, NamespaceRef, NodeRef, PodRef, PodUid};
use agent_core::labels::ANNOTATIONS;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Longest UID in bytes that maps and the ZDS protocol carry; a UUID has 36.
pub const MAX_UID: usize = 63;
/// Longest namespace name in bytes (an RFC 1123 label).
pub const MAX_NAMESPACE: usize = 63;
/// Longest pod name in bytes (an RFC 1123 subdomain).
pub const MAX_NAME: usize = 253;

/// Longest value of an annotation in bytes that is kept, of the 256 KiB that a pod may carry: what is longer means nothing
/// to any rule, and stays meaningless when it is cut.
const MAX_ANNOTATION: usize = 1024;

/// The facts of a pod.
///
/// What Kubernetes fills in by default is filled in: namespace and service account `default`. A pod without addresses
/// is fine: it has none yet.
///
/// # Errors
/// When a field that identifies the pod is missing or too long, or an address is not one.
pub fn pod(cluster: &ClusterId, pod: &Pod) -> Result<PodFacts, BadObject> {
    let object = pod_object(&pod.metadata);
    let refuse = |problem: String, fix: &str| BadObject {
        object: object.clone(),
        problem,
        fix: fix.to_owned(),
    };
    let identity = identity(&pod.metadata).map_err(|(problem, fix)| refuse(problem, fix))?;
    let ips = addresses(pod.status.as_ref()).map_err(|(problem, fix)| refuse(problem, fix))?;
    Ok(PodFacts {
        pod: identity,
        node: NodeRef {
            cluster: cluster.clone(),
            name: node_name(pod.spec.as_ref()),
        },
        service_account: service_account(pod.spec.as_ref()),
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        annotations: annotations(&pod.metadata),
        host_network: pod
            .spec
            .as_ref()
            .and_then(|spec| spec.host_network)
            .unwrap_or(false),
        phase: phase(pod.status.as_ref()),
        ips,
        containers: containers(pod.status.as_ref()),
        created: pod
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(0, |time| time.0.as_second()),
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
        namespace: NamespaceRef {
            cluster: cluster.clone(),
            name,
        },
        labels: metadata.labels.clone().unwrap_or_default(),
    })
}

/// What a pod is called in messages: `Pod namespace/name`.
#[must_use]
pub fn pod_object(metadata: &ObjectMeta) -> String {
    let (namespace, name) = pod_name(metadata);
    format!("Pod {}/{}", printable(&namespace), named(&name))
}

/// What a namespace is called in messages: `Namespace name`.
#[must_use]
pub fn namespace_object(metadata: &ObjectMeta) -> String {
    format!(
        "Namespace {}",
        named(metadata.name.as_deref().unwrap_or_default())
    )
}

fn named(name: &str) -> String {
    if name.is_empty() {
        return "(no name)".to_owned();
    }
    printable(name)
}

/// Names that are refused are told too, to terminals among others.
fn printable(name: &str) -> String {
    name.chars()
        .flat_map(|char| {
            let escaped = char.is_control().then(|| char.escape_debug());
            let plain = escaped.is_none().then_some(char);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

/// Namespace and name of a pod; a pod that names no namespace is in `default`, as for kubectl.
#[must_use]
pub fn pod_name(metadata: &ObjectMeta) -> (String, String) {
    let namespace = metadata
        .namespace
        .clone()
        .filter(|namespace| !namespace.is_empty());
    (
        namespace.unwrap_or_else(|| "default".to_owned()),
        metadata.name.clone().unwrap_or_default(),
    )
}

/// A field's problem and the fix.
type Refusal = (String, &'static str);

fn identity(metadata: &ObjectMeta) -> Result<PodRef, Refusal> {
    let (namespace, name) = pod_name(metadata);
    let uid = metadata.uid.clone().unwrap_or_default();
    checked("metadata.name", &name, MAX_NAME)?;
    checked("metadata.namespace", &namespace, MAX_NAMESPACE)?;
    checked("metadata.uid", &uid, MAX_UID)?;
    Ok(PodRef {
        uid: PodUid(uid),
        namespace,
        name,
    })
}

fn checked(field: &str, value: &str, longest: usize) -> Result<(), Refusal> {
    let length = value.len();
    match length {
        0 if field == "metadata.uid" => Err((
            format!("{field} is missing"),
            "set it to the pod's UID (kubectl get pod -o yaml prints it); it tells this pod from a later one",
        )),
        0 => Err((format!("{field} is missing"), "set it to the name of the object")),
        // They would end a row of the maps early, and write to people's terminals.
        _ if value.contains(char::is_control) => Err((
            format!("{field} {value:?} has control characters"),
            "write it as Kubernetes has it",
        )),
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

/// Those that a rule reads: whoever may make pods could fill the agent's memory with the others.
fn annotations(metadata: &ObjectMeta) -> StringMap {
    let all = metadata.annotations.iter().flatten();
    all.filter(|(name, _)| ANNOTATIONS.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), beginning(value, MAX_ANNOTATION).to_owned()))
        .collect()
}

fn beginning(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
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
    let Some(status) = status else {
        return Ok(Vec::new());
    };
    let mut ips: Vec<IpAddr> = match status.pod_ips.as_deref() {
        Some([]) | None => status
            .pod_ip
            .iter()
            .filter(|ip| !ip.is_empty())
            .map(|ip| address("status.podIP", ip))
            .collect::<Result<_, _>>(),
        Some(ips) => ips
            .iter()
            .enumerate()
            .map(|(index, ip)| address(&format!("status.podIPs[{index}].ip"), &ip.ip))
            .collect(),
    }?;
    ips.retain(|ip| !is_nobodys(ip));
    Ok(ips)
}

fn containers(status: Option<&PodStatus>) -> Vec<String> {
    let of_status = |status: &PodStatus| {
        let all = [&status.init_container_statuses, &status.container_statuses];
        let all = all.into_iter().flatten().flatten();
        all.filter_map(|container| container.container_id.clone())
            .collect()
    };
    status.map(of_status).unwrap_or_default()
}

fn address(field: &str, text: &str) -> Result<IpAddr, Refusal> {
    text.parse::<IpAddr>().map(|ip| ip.to_canonical()).map_err(|_| {
        (
            format!("{field} {text:?} is not an IP address"),
            "write an IPv4 or IPv6 address without prefix length or zone",
        )
    })
}

/// An address that no interface of a pod has for itself. In the maps it would be one of the pod's own, and what the pod
/// sends would come from there. Pods in the network of a node that calls itself 127.0.0.1 have such, hence no complaint.
fn is_nobodys(ip: &IpAddr) -> bool {
    ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || *ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}
