//! Istio's own plugin, unmodified, against this agent.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::cluster::User;
use tests::cni::{Answer, Plugin, feed};
use tests::{Pod, PodSpec, requires};

use crate::scene::{SHOP, Scene};

/// Its configuration, as Istio's installer writes it for an ambient mesh.
fn config(scene: &Scene) -> Result<Value> {
    let run_dir = scene.node.plugin_socket();
    let run_dir = run_dir.parent().context("a socket without a folder")?;
    // It asks the API server by itself.
    std::fs::copy(
        scene.cluster.kubeconfig(User::Admin),
        run_dir.join("istio-cni-kubeconfig"),
    )?;
    Ok(json!({
        "cniVersion": "1.0.0",
        "name": "k8s-pod-network",
        "type": "istio-cni",
        "plugin_log_level": "info",
        "cni_agent_run_dir": run_dir,
        "ambient_enabled": true,
        "enablement_selectors": [{"podSelector": {"matchLabels": {"istio.io/dataplane-mode": "ambient"}}}],
        "exclude_namespaces": ["kube-system"],
        "pod_namespace": "istio-system",
    }))
}

fn add(scene: &Scene, program: &Path, config: &Value, pod: &Pod) -> Result<Answer> {
    let mut config = config.clone();
    config["prevResult"] = Plugin::previous(pod);
    let args = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_UID={}",
        pod.namespace(),
        pod.name(),
        pod.uid()
    );
    let mut command = scene.node.command("runtime", program)?;
    command
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", "0123abcd")
        .env("CNI_NETNS", pod.netns().path())
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", "/opt/cni/bin")
        .env("CNI_ARGS", args);
    feed(&mut command, config.to_string().as_bytes())?.wait()
}

#[test]
fn istios_own_plugin_works_with_the_agent() -> Result<()> {
    let name = "istios_own_plugin_works_with_the_agent";
    let Some(program) = requires::program(name, "MESHGATE_ISTIO_CNI") else {
        return Ok(());
    };
    let Some(mut scene) = Scene::new(name)? else {
        return Ok(());
    };
    let config = config(&scene)?;
    let mut pod = scene.scheduled("web")?;
    let answer = add(&scene, &program, &config, &pod)?;
    ensure!(answer.success, "{}\n{}", answer.error(), answer.complained);
    ensure!(
        answer.printed["ips"] == Plugin::previous(&pod)["ips"],
        "{}",
        answer.printed
    );
    scene.agent.wait_for_log("CNI: captured")?;
    pod.start()?;
    scene.cluster.report(&pod, "Running")?;
    scene.captured(&pod)?;

    // A pod outside the mesh it decides about alone.
    let spec = PodSpec::new("outside").namespace(SHOP);
    let uid = scene.cluster.create(scene.node.name(), &spec)?;
    let outside = scene.node.sandbox(spec.uid(&uid))?;
    let answer = add(&scene, &program, &config, &outside)?;
    ensure!(answer.success, "{}\n{}", answer.error(), answer.complained);

    // What keeps a pod out it repeats.
    scene.proxy.process().kill();
    let unserved = scene.scheduled("unserved")?;
    let answer = add(&scene, &program, &config, &unserved)?;
    ensure!(
        !answer.success && answer.error().contains("no proxy is connected"),
        "{}",
        answer.error()
    );
    Ok(())
}
