//! Kubernetes objects → facts, as tables.

use std::net::IpAddr;

use agent_core::facts::{BadObject, Phase, PodFacts, StringMap};
use agent_core::ids::{ClusterId, NamespaceRef, NodeRef, PodRef};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::source::convert::{MAX_NAME, MAX_NAMESPACE, MAX_UID, namespace, pod};

fn cluster() -> ClusterId {
    ClusterId::from("Kubernetes")
}

fn parsed(value: &Value) -> Result<PodFacts, BadObject> {
    pod(
        &cluster(),
        &serde_json::from_value::<Pod>(value.clone()).expect("a pod that decodes"),
    )
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
    let status = |name: &str, id: Option<&str>| json!({"name": name, "containerID": id, "image": "i", "imageID": "", "ready": true, "restartCount": 0});
    let facts = parsed(&json!({
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "7e4f", "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"app": "web"},
            "annotations": {"ambient.istio.io/redirection": "enabled", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {"nodeName": "n1", "serviceAccountName": "shopkeeper", "hostNetwork": true, "containers": []},
        "status": {"phase": "Running", "podIP": "10.0.0.9",
                   "podIPs": [{"ip": "::ffff:10.0.0.1"}, {"ip": "fd00::1"}],
                   "initContainerStatuses": [status("init", Some("containerd://1"))],
                   "containerStatuses": [status("web", Some("containerd://2")), status("waits", None)]},
    }));
    let expected = PodFacts {
        pod: PodRef {
            uid: "7e4f".into(),
            namespace: "shop".into(),
            name: "web-0".into(),
        },
        node: NodeRef {
            cluster: cluster(),
            name: "n1".into(),
        },
        service_account: "shopkeeper".into(),
        labels: StringMap::from([("app".into(), "web".into())]),
        annotations: StringMap::from([("ambient.istio.io/redirection".into(), "enabled".into())]),
        host_network: true,
        phase: Phase::Running,
        ips: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        containers: vec!["containerd://1".into(), "containerd://2".into()],
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
    assert_eq!(
        (facts.ips.len(), facts.phase, facts.host_network),
        (0, Phase::Pending, false)
    );
}

#[test]
fn addresses_come_from_pod_ips_else_from_pod_ip() {
    let table = [
        (json!({"podIP": "10.0.0.1"}), vec!["10.0.0.1"]),
        (json!({"podIP": "10.0.0.1", "podIPs": []}), vec!["10.0.0.1"]),
        (
            json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.2"}]}),
            vec!["10.0.0.2"],
        ),
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
        assert_eq!(
            parsed(&merged(&json!({"status": {"phase": text}})))
                .unwrap()
                .phase,
            expected,
            "{text:?}"
        );
    }
}

#[test]
fn a_bad_pod_is_refused_with_object_field_and_fix() {
    let long = |length: usize| "x".repeat(length);
    let table = [
        (
            json!({"metadata": {"uid": null}}),
            "Pod shop/web",
            "metadata.uid is missing",
        ),
        (
            json!({"metadata": {"uid": ""}}),
            "Pod shop/web",
            "metadata.uid is missing",
        ),
        (
            json!({"metadata": {"name": null}}),
            "Pod shop/(no name)",
            "metadata.name is missing",
        ),
        (
            json!({"metadata": {"uid": long(64)}}),
            "Pod shop/web",
            "metadata.uid has 64 bytes, more than 63",
        ),
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
        (
            json!({"status": {"podIP": "web"}}),
            "Pod shop/web",
            "status.podIP \"web\" is not an IP address",
        ),
        (
            json!({"metadata": {"uid": "u\0x"}}),
            "Pod shop/web",
            "metadata.uid \"u\\0x\" has control characters",
        ),
        (
            json!({"metadata": {"name": "a\nb", "namespace": "c\u{1b}[2J"}}),
            "Pod c\\u{1b}[2J/a\\nb",
            "metadata.name \"a\\nb\" has control characters",
        ),
    ];
    for (patch, object, problem) in table {
        let bad = parsed(&merged(&patch)).unwrap_err();
        assert_eq!(
            (bad.object.as_str(), bad.problem.as_str()),
            (object, problem),
            "{patch}"
        );
        assert!(!bad.fix.is_empty(), "{patch}");
    }
}

#[test]
fn addresses_that_no_pod_can_have_are_not_the_pods() {
    let table = [
        "0.0.0.0",
        "::",
        "127.15.1.1",
        "::1",
        "::ffff:127.0.0.1",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
    ];
    for ip in table {
        let ips = |status: Value| parsed(&merged(&json!({ "status": status }))).unwrap().ips;
        let two = ips(json!({"podIPs": [{"ip": ip}, {"ip": "10.0.0.1"}]}));
        assert_eq!(two, ["10.0.0.1".parse::<IpAddr>().unwrap()], "{ip}");
        assert_eq!(ips(json!({ "podIP": ip })), [] as [IpAddr; 0], "{ip}");
    }
}

#[test]
fn of_the_annotations_only_those_that_a_rule_reads_are_kept_and_of_these_the_beginning() {
    let long = "é".repeat(100_000);
    let facts = parsed(&merged(&json!({"metadata": {"annotations": {
        "example.com/large": long, "ambient.istio.io/dns-capture": long, "sidecar.istio.io/status": "",
    }}})))
    .unwrap();
    let kept: Vec<_> = facts
        .annotations
        .iter()
        .map(|(name, value)| (name.as_str(), value.len()))
        .collect();
    assert_eq!(
        kept,
        [
            ("ambient.istio.io/dns-capture", 1024),
            ("sidecar.istio.io/status", 0)
        ]
    );
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
    assert_eq!(
        facts.namespace,
        NamespaceRef {
            cluster: cluster(),
            name: "shop".into()
        }
    );
    assert_eq!(facts.labels.get("a").map(String::as_str), Some("b"));

    let bad = namespace(&cluster(), &meta(json!({}))).unwrap_err();
    assert_eq!(bad.object, "Namespace (no name)");
    assert_eq!(bad.problem, "metadata.name is missing");
    let bad = namespace(&cluster(), &meta(json!({"name": "s".repeat(64)}))).unwrap_err();
    assert_eq!(bad.problem, "metadata.name has 64 bytes, more than 63");
}
