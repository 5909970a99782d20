//! The kube source and the status writer against a real kube-apiserver with etcd. `KUBEBUILDER_ASSETS` names the folder
//! with both programs; run them with `cargo test -p agent -- --ignored real_kube`.

use agent_core::ids::PodRef;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::real_api::Server;
use super::view::View;
use crate::ports::{PodStatus, Redirection};
use crate::source::status::{KubeStatus, REDIRECTION};

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Resource + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

fn pod(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": name}},
           "spec": {"nodeName": node, "serviceAccountName": "shopkeeper", "containers": [{"name": "c", "image": "i"}]}})
}

async fn patch<K: Clone + DeserializeOwned + std::fmt::Debug>(api: &Api<K>, name: &str, patch: &Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

#[tokio::test]
#[ignore = "needs KUBEBUILDER_ASSETS"]
async fn facts_survive_a_restart_of_the_server() {
    let mut server = Server::start().await;
    let client = server.admin().await;
    let namespaces = Api::<Namespace>::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": "shop"}})).await;
    let pods = Api::<Pod>::namespaced(client, "shop");
    create(&pods, pod("a", "n1")).await;
    create(&pods, pod("elsewhere", "n2")).await;

    let mut view = server.follow("admin");
    view.until("the lists", View::current).await;
    assert_eq!(view.names(), ["a"]);
    let first = view.pods.values().next().unwrap().clone();
    assert_eq!(
        (first.node.name.as_str(), first.service_account.as_str()),
        ("n1", "shopkeeper")
    );
    assert!(first.created > 0);

    let addresses = json!({"status": {"phase": "Running", "podIP": "10.1.0.1",
                                      "podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}]}});
    pods.patch_status("a", &PatchParams::default(), &Patch::Merge(addresses))
        .await
        .unwrap();
    view.until("the addresses", |view| {
        view.pods.values().any(|pod| pod.ips.len() == 2)
    })
    .await;
    create(&pods, pod("b", "n1")).await;
    patch(
        &namespaces,
        "shop",
        &json!({"metadata": {"labels": {"istio.io/dataplane-mode": "ambient"}}}),
    )
    .await;
    let labelled = |view: &View| {
        view.namespaces["shop"]
            .labels
            .contains_key("istio.io/dataplane-mode")
    };
    view.until("pod and label", |view| {
        view.names() == ["a", "b"] && labelled(view)
    })
    .await;

    server.kill();
    view.until("the absence", |view| {
        view.problem()
            .is_some_and(|problem| problem.contains("cannot be reached"))
    })
    .await;
    assert_eq!(view.names(), ["a", "b"]);
    server.restart().await;
    view.until("the return", View::current).await;
    assert_eq!(view.lists, 1, "the watch is resumed, not listed again");
    pods.delete("b", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    patch(&pods, "a", &json!({"metadata": {"labels": {"app": "after"}}})).await;
    let after =
        |view: &View| view.names() == ["a"] && view.pods.values().all(|pod| pod.labels["app"] == "after");
    view.until("changes after the return", after).await;
}

#[tokio::test]
#[ignore = "needs KUBEBUILDER_ASSETS"]
async fn missing_rights_are_named_and_found_once_given() {
    let server = Server::start().await;
    let client = server.admin().await;
    let mut view = server.follow("nobody");
    let both =
        |problem: &str| problem.contains("may not list namespaces") && problem.contains("may not list pods");
    view.until("the problems", |view| view.problem().is_some_and(both))
        .await;
    let problem = view.problem().unwrap();
    for part in [
        "User \"nobody\" cannot list",
        r#"{apiGroups: [""], resources: ["pods"]"#,
    ] {
        assert!(problem.contains(part), "{part} in {problem}");
    }

    let rule =
        json!({"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["get", "list", "watch"]});
    create(
        &Api::<ClusterRole>::all(client.clone()),
        json!({"metadata": {"name": "reader"}, "rules": [rule]}),
    )
    .await;
    create(
        &Api::<ClusterRoleBinding>::all(client),
        json!({"metadata": {"name": "reader"},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
               "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}]}),
    )
    .await;
    view.until("the right", View::current).await;
    assert!(view.namespaces.contains_key("default"));

    let mut unknown = server.follow("unknown");
    unknown
        .until("the refusal", |view| {
            view.problem()
                .is_some_and(|problem| problem.contains("credentials"))
        })
        .await;
}

#[tokio::test]
#[ignore = "needs KUBEBUILDER_ASSETS"]
async fn the_annotation_is_written_for_this_pod_only() {
    let server = Server::start().await;
    let pods = Api::<Pod>::namespaced(server.admin().await, "default");
    let created = create(&pods, pod("a", "n1")).await;
    let a = PodRef {
        uid: created.metadata.uid.as_deref().unwrap().into(),
        namespace: "default".into(),
        name: "a".into(),
    };
    let earlier = PodRef {
        uid: "11111111-2222-3333-4444-555555555555".into(),
        ..a.clone()
    };
    let gone = PodRef {
        name: "gone".into(),
        ..a.clone()
    };
    let annotation = async || {
        pods.get("a")
            .await
            .unwrap()
            .metadata
            .annotations
            .and_then(|all| all.get(REDIRECTION).cloned())
    };

    let status = KubeStatus::new(server.connection("admin"));
    for (pod, state, expected) in [
        (&a, Redirection::Pending, Some("pending")),
        (&a, Redirection::Enabled, Some("enabled")),
        (&earlier, Redirection::Absent, Some("enabled")),
        (&gone, Redirection::Enabled, Some("enabled")),
        (&a, Redirection::Absent, None),
        (&a, Redirection::Absent, None),
        (&earlier, Redirection::Enabled, None),
    ] {
        status.write(pod, state).await.unwrap();
        assert_eq!(annotation().await.as_deref(), expected, "{pod} {state:?}");
    }

    let refused = KubeStatus::new(server.connection("nobody"))
        .write(&a, Redirection::Enabled)
        .await
        .unwrap_err();
    assert!(
        refused
            .cause
            .contains(r#"resources: ["pods/status"], verbs: ["patch"]"#),
        "{refused}"
    );
}
