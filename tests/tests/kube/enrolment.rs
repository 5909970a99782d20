//! What users and kubelets do to pods and namespaces.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::PodSpec;
use tests::cluster::pods::reference;

use crate::scene::{SHOP, Scene};

const MODE: &str = "istio.io/dataplane-mode";

#[test]
fn labels_of_namespaces_and_pods_decide_at_once_both_ways() -> Result<()> {
    let Some(mut scene) = Scene::new("labels_of_namespaces_and_pods_decide_at_once_both_ways")? else {
        return Ok(());
    };
    let mut a = scene.run(PodSpec::new("a"))?;
    let none = scene.run(PodSpec::new("none").label(MODE, "none"))?;
    let mut own = scene.run(PodSpec::new("own").ambient())?;
    scene.outside(&a)?;
    scene.captured(&own)?;

    scene.cluster.namespace(SHOP, &[(MODE, "ambient")])?;
    scene.captured(&a)?;
    scene.outside(&none)?;

    a.set_ambient(false);
    scene.cluster.update(&a)?;
    scene.outside(&a)?;
    a.set_label(MODE, None);
    scene.cluster.update(&a)?;
    scene.captured(&a)?;

    a.set_annotation("sidecar.istio.io/status", Some("{}"));
    scene.cluster.update(&a)?;
    scene.outside(&a)?;
    a.set_annotation("sidecar.istio.io/status", None);
    scene.cluster.update(&a)?;
    scene.captured(&a)?;

    scene.cluster.namespace(SHOP, &[])?;
    scene.outside(&a)?;
    scene.captured(&own)?;
    own.set_label(MODE, None);
    scene.cluster.update(&own)?;
    scene.outside(&own)
}

#[test]
fn pods_of_another_node_and_of_the_nodes_network_are_never_captured() -> Result<()> {
    let Some(mut scene) = Scene::new("pods_of_another_node_and_of_the_nodes_network_are_never_captured")?
    else {
        return Ok(());
    };
    // Its sandbox is here, so that nothing but its node name speaks against it.
    let spec = PodSpec::new("elsewhere").namespace(SHOP).ambient();
    let uid = scene.cluster.create("another-node", &spec)?;
    let elsewhere = scene.node.pod_with(spec.uid(&uid))?;
    scene.cluster.report(&elsewhere, "Running")?;

    let node_ip = format!("10.{}.0.1", scene.node.subnet());
    let host = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "host", "namespace": SHOP, "labels": {MODE: "ambient"}},
        "spec": {
            "nodeName": scene.node.name(),
            "hostNetwork": true,
            "containers": [{"name": "application", "image": "example.com/application:1"}],
        },
    });
    let host_uid = scene.cluster.apply(&host)?["metadata"]["uid"].clone();
    let status = json!({"phase": "Running", "podIP": node_ip, "podIPs": [{"ip": node_ip}]});
    let mut reported = host.clone();
    reported["status"] = status;
    scene.cluster.patch_status(&reported)?;

    // Events come in order: what was made before the last one is known.
    let last = scene.run(PodSpec::new("last").ambient())?;
    scene.captured(&last)?;
    let host_uid = host_uid.as_str().context("a UID")?;
    let told = scene.agent.wait_for_pod_state(host_uid, "outside")?;
    ensure!(told.reason.to_string().contains("hostNetwork"), "{told:?}");
    let pods = scene.agent.status()?.pods;
    ensure!(pods.iter().all(|pod| pod.uid != elsewhere.uid()), "{pods:?}");
    scene.passes_the_proxy_by(&elsewhere)?;
    let mapped = scene.mapped()?;
    ensure!(last.ips().iter().all(|ip| mapped.contains(ip)), "{mapped:?}");
    let others = elsewhere.ips().iter().copied().chain([node_ip.parse()?]);
    ensure!(others.into_iter().all(|ip| !mapped.contains(&ip)), "{mapped:?}");
    ensure!(scene.cluster.redirection(&elsewhere)?.is_none());
    let destination = scene.server.v4();
    let seen = scene
        .node
        .load(&["connect", &SocketAddr::new(destination, 80).to_string()])?;
    ensure!(seen["read"] == "ok", "{seen}");
    let through = scene.proxy.connections()?;
    ensure!(
        through.iter().all(|c| c.peer.ip().to_string() != node_ip),
        "{through:?}"
    );
    Ok(())
}

#[test]
fn a_pod_is_followed_through_its_life_and_its_address_through_several() -> Result<()> {
    let Some(mut scene) = Scene::new("a_pod_is_followed_through_its_life_and_its_address_through_several")?
    else {
        return Ok(());
    };
    // A job that has ended keeps its object and loses its sandbox; its address goes to the next pod.
    let job = scene.run(PodSpec::new("job").ambient())?;
    scene.captured(&job)?;
    scene.cluster.report(&job, "Succeeded")?;
    let told = scene.agent.wait_for_pod_state(job.uid(), "outside")?;
    ensure!(told.reason.to_string().contains("has ended"), "{told:?}");
    let host = job.host();
    drop(job);
    let next = scene.run(PodSpec::new("next").ambient().host(host))?;
    scene.captured(&next)?;

    // The sandbox of a pod crashed and was made anew.
    let renewed = scene.cluster.renew_sandbox(&scene.node, next)?;
    let addresses = renewed.ips().to_vec();
    scene.served_again(&renewed)?;
    scene.captured(&renewed)?;

    // A StatefulSet makes its pod anew, under the same name.
    let uid = renewed.uid().to_owned();
    scene.cluster.delete(&renewed)?;
    drop(renewed);
    let again = scene.run(PodSpec::new("next").ambient())?;
    ensure!(again.uid() != uid);
    scene.captured(&again)?;
    scene.gone(&uid, &addresses)?;

    // A pod that is deleted leaves nothing.
    let (uid, addresses) = (again.uid().to_owned(), again.ips().to_vec());
    scene.cluster.delete(&again)?;
    scene.gone(&uid, &addresses)
}

#[test]
fn an_annotation_that_somebody_removed_is_written_again() -> Result<()> {
    let Some(mut scene) = Scene::new("an_annotation_that_somebody_removed_is_written_again")? else {
        return Ok(());
    };
    let a = scene.run(PodSpec::new("a").ambient())?;
    scene.captured(&a)?;
    let mut removed = reference(&a);
    removed["metadata"]["annotations"] = json!({"ambient.istio.io/redirection": null});
    scene.cluster.patch(&removed)?;
    scene.cluster.wait_for_redirection(&a, Some("enabled"))
}
