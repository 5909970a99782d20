//! What a pod's owner sees of the mesh in `kubectl describe pod`: why the pod is not captured, once, and that it is.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::WatchParams;
use kube::core::WatchEvent;
use tests::cluster::User;
use tests::wait::LIMIT;
use tests::{Agent, Cluster, Node, Pod, PodSpec, Proxy, requires};
use tokio::time::timeout;

use crate::scene::{SHOP, text};

/// The events of a pod by reason, as they are when `check` holds.
fn events_when(
    cluster: &Cluster,
    pod: &Pod,
    what: &str,
    check: impl Fn(&BTreeMap<String, Event>) -> bool + Sync,
) -> Result<BTreeMap<String, Event>> {
    cluster.call(async |client| {
        let api: Api<Event> = Api::namespaced(client, SHOP);
        let mut of_pod = BTreeMap::new();
        let seen = async {
            let params = WatchParams::default();
            // From the start: what is there comes first.
            let mut stream = std::pin::pin!(api.watch(&params, "0").await?);
            while !check(&of_pod) {
                match stream.next().await.context("the watch ended")?? {
                    WatchEvent::Added(event) | WatchEvent::Modified(event) => {
                        let regarding = event.regarding.as_ref().and_then(|pod| pod.uid.as_deref());
                        if regarding == Some(pod.uid()) {
                            of_pod.insert(event.reason.clone().unwrap_or_default(), event);
                        }
                    }
                    other => ensure!(matches!(other, WatchEvent::Bookmark(_)), "{other:?}"),
                }
            }
            Ok(())
        };
        let waited = timeout(LIMIT, seen).await;
        match waited {
            Ok(seen) => seen.map(|()| of_pod),
            Err(_) => anyhow::bail!("waited {LIMIT:?} for {what}; {of_pod:#?}"),
        }
    })
}

#[test]
fn a_pod_that_cannot_be_captured_has_one_event_with_cause_and_fix_and_one_when_it_is() -> Result<()> {
    let name = "a_pod_that_cannot_be_captured_has_one_event_with_cause_and_fix_and_one_when_it_is";
    let Some(assets) = requires::control_plane(name) else {
        return Ok(());
    };
    let node = Node::new()?;
    let cluster = Cluster::start(&node, &assets)?;
    cluster.namespace(SHOP, &[])?;
    let kubeconfig = cluster.kubeconfig(User::Agent);
    let mut agent = Agent::start_with(&node, "kube", &["--kubeconfig", text(&kubeconfig)?])?;

    // Nobody is told of a pod which is as it should be, or outside.
    let outside = cluster.run(&node, PodSpec::new("outside").namespace(SHOP))?;
    agent.wait_for_pod_state(outside.uid(), "outside")?;
    let ignored = PodSpec::new("a")
        .namespace(SHOP)
        .ambient()
        .annotation("ambient.istio.io/bypass-inbound-capture", "maybe");
    let pod = cluster.run(&node, ignored)?;
    agent.wait_for_pod_state(pod.uid(), "pending")?;
    let events = events_when(&cluster, &pod, "two events", |events| events.len() == 2)?;
    let failed = events.get("MeshCaptureFailed").context("MeshCaptureFailed")?;
    let note = failed.note.clone().unwrap_or_default();
    for part in ["connections are refused", "ztunnel runs on node", node.name()] {
        ensure!(note.contains(part), "{part} in {note}");
    }
    ensure!(
        failed.type_.as_deref() == Some("Warning") && failed.series.is_none(),
        "{failed:?}"
    );
    ensure!(
        failed.reporting_instance.as_deref() == Some(node.name()),
        "{failed:?}"
    );
    let ignored = events
        .get("MeshAnnotationIgnored")
        .context("MeshAnnotationIgnored")?;
    let told = ignored.note.clone().unwrap_or_default();
    ensure!(told.contains("bypass-inbound-capture is ignored"), "{told}");

    // An agent that is restarted tells the same, and it is still the one event.
    agent.restart()?;
    agent.wait_for_pod_state(pod.uid(), "pending")?;
    let again = events_when(&cluster, &pod, "it to be told again", |events| {
        events
            .get("MeshAnnotationIgnored")
            .is_some_and(|event| event.series.is_some())
    })?;
    let series = again["MeshAnnotationIgnored"]
        .series
        .as_ref()
        .context("a series")?;
    ensure!(series.count == 2, "{series:?}");

    // The proxy comes, and the pod is captured after all. The agent must have told the trouble itself.
    events_when(&cluster, &pod, "the trouble to be told again", |events| {
        events
            .get("MeshCaptureFailed")
            .is_some_and(|event| event.series.is_some() || event.note.as_deref() != Some(note.as_str()))
    })?;
    let _proxy = Proxy::start(&node, "proxy", &[])?;
    agent.wait_for_pod_state(pod.uid(), "enabled")?;
    let events = events_when(&cluster, &pod, "the end of the trouble", |events| {
        events.contains_key("MeshCaptured")
    })?;
    ensure!(events["MeshCaptured"].type_.as_deref() == Some("Normal"));

    let all = cluster.call(async |client| {
        let api: Api<Event> = Api::namespaced(client, SHOP);
        Ok(api.list(&kube::api::ListParams::default()).await?.items)
    })?;
    let of = |reason: &str| {
        all.iter()
            .filter(|event| event.reason.as_deref() == Some(reason))
            .count()
    };
    ensure!(
        of("MeshAnnotationIgnored") == 1 && of("MeshCaptured") == 1,
        "{all:#?}"
    );
    // The cause differs: an agent that has just started knows less of it.
    ensure!(of("MeshCaptureFailed") <= 2, "{all:#?}");
    let about_others = all.iter().filter(|event| {
        let name = event.regarding.as_ref().and_then(|pod| pod.name.as_deref());
        name != Some(pod.name())
    });
    ensure!(about_others.count() == 0, "{all:#?}");
    Ok(())
}
