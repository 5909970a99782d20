//! A namespace's label, set and removed with pods running.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tests::cluster::kubectl::Running;

use crate::scene::{MODE, Namespace, Scene, container, controller, spec};
use crate::shared::Shared;

const PODS: usize = 30;

#[test]
fn thirty_running_pods_follow_their_namespaces_label() -> Result<()> {
    let Some(shared) = Shared::get("thirty_running_pods_follow_their_namespaces_label")? else {
        return Ok(());
    };
    let scene = shared.beside_others();
    let shop = scene.namespace("labelled", &[])?;
    let pods = many(&shop, PODS)?;
    all(&scene, &pods, "outside")?;
    scene.outside(&pods[0])?;

    shop.kubectl(&["label", "namespace", &shop.name, &format!("{MODE}=ambient")])?;
    all(&scene, &pods, "enabled")?;
    for pod in pods.iter().step_by(10) {
        scene.captured(pod)?;
    }

    shop.kubectl(&["label", "namespace", &shop.name, &format!("{MODE}-")])?;
    all(&scene, &pods, "outside")?;
    for pod in pods.iter().step_by(10) {
        scene.outside(pod)?;
    }
    Ok(())
}

fn all(scene: &Scene, pods: &[Running], state: &str) -> Result<()> {
    let began = Instant::now();
    scene.all_told_of(pods, state)?;
    println!("{} pods were {state} after {:?}", pods.len(), began.elapsed());
    pods.iter().try_for_each(|pod| scene.annotated(pod, state))
}

/// Makes a Deployment of pods that do nothing, and waits until all are ready.
pub(crate) fn many(shop: &Namespace<'_>, count: usize) -> Result<Vec<Running>> {
    let template = spec(&[container("application", &["sleep"])]);
    shop.apply(&mut [controller("Deployment", "many", count, &template)])?;
    shop.kubectl(&["rollout", "status", "deployment/many", "--timeout=120s"])?;
    let names = shop.kubectl(&["get", "pods", "--output=name"])?;
    let pods = names.lines().map(|name| {
        let name = name.strip_prefix("pod/").context("a pod's name")?;
        shop.running(name)
    });
    let pods = pods.collect::<Result<Vec<_>>>()?;
    ensure!(pods.len() == count, "{} pods", pods.len());
    Ok(pods)
}
