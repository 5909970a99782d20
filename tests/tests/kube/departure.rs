//! The agent is told to stop: it tells an upgrade from its removal by its DaemonSet, in time whatever the API server
//! does, and pods stay captured either way.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::PodSpec;
use tests::cluster::User;
use tests::cluster::pods::node_reference;

use crate::scene::{Scene, text};

/// What Kubernetes gives a pod to end, with room for everything that is not the question.
const GRACE: Duration = Duration::from_secs(20);

fn daemonset(pod: &Value) -> Value {
    let labels = json!({"k8s-app": "istio-cni-node"});
    let mut spec = json!({"containers": [{"name": "install-cni", "image": "meshgate"}]});
    if let (Some(spec), Some(pod)) = (spec.as_object_mut(), pod.as_object()) {
        spec.extend(pod.clone());
    }
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "istio-cni-node", "namespace": "istio-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    })
}

fn affinity(zone: &str) -> Value {
    let wanted = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]);
    json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}
    }}})
}

impl Scene {
    /// Stops the agent, looks at what it says, and starts it again.
    fn leaves(&mut self, says: &str) -> Result<()> {
        self.stops(says)?;
        self.agent.restart()?;
        self.knows_its_owner()
    }

    fn stops(&mut self, says: &str) -> Result<()> {
        let (before, began) = (self.agent.log().len(), Instant::now());
        ensure!(self.agent.stop()?.success(), "{}", self.agent.log());
        ensure!(began.elapsed() < GRACE, "{:?}", began.elapsed());
        let log = self.agent.log();
        let said = log[before..].lines().find(|line| line.contains("stopping"));
        let said = said.with_context(|| log.clone())?;
        ensure!(said.contains(says), "{said}, expected {says:?}");
        Ok(())
    }

    /// The agent has asked once while it worked.
    fn knows_its_owner(&mut self) -> Result<()> {
        self.agent.wait_for_log("asked for its DaemonSet")
    }
}

#[test]
fn the_agents_end_is_an_upgrade_or_its_removal_as_the_daemonset_says() -> Result<()> {
    let Some(mut scene) = Scene::new("the_agents_end_is_an_upgrade_or_its_removal_as_the_daemonset_says")?
    else {
        return Ok(());
    };
    let pod = scene.run(PodSpec::new("a").ambient())?;
    scene.captured(&pod)?;
    let (apply, delete) = (
        |scene: &Scene, object: &Value| scene.cluster.apply(object).map(drop),
        |scene: &Scene, object: &Value| scene.cluster.delete_object(object),
    );
    let zone = |scene: &Scene, zone: &str| -> Result<()> {
        let mut node = node_reference(scene.node.name());
        node["metadata"]["labels"] = json!({"zone": zone});
        scene.cluster.patch(&node).map(drop)
    };
    apply(&scene, &daemonset(&json!({})))?;
    let kubeconfig = scene.cluster.kubeconfig(User::Agent);
    scene.replace_agent(&[
        "--kubeconfig",
        text(&kubeconfig)?,
        "--pod-namespace",
        "istio-system",
    ])?;
    scene.agent.wait_until_ready()?;
    scene.knows_its_owner()?;

    scene.leaves("another agent follows")?;
    apply(&scene, &daemonset(&affinity("east")))?;
    zone(&scene, "east")?;
    scene.leaves("another agent follows")?;
    zone(&scene, "west")?;
    scene.leaves("does not want this node any more")?;
    apply(&scene, &daemonset(&json!({"affinity": null})))?;

    // A finalizer keeps it while it is being deleted.
    let mut held = daemonset(&json!({}));
    held["metadata"]["finalizers"] = json!(["meshgate.test/held"]);
    apply(&scene, &held)?;
    delete(&scene, &held)?;
    scene.leaves("is being deleted")?;
    held["metadata"]["finalizers"] = Value::Null;
    scene.cluster.patch(&held)?;
    scene.leaves("the DaemonSet is gone")?;
    apply(&scene, &daemonset(&json!({})))?;

    // A removal takes the rights away in the same moment.
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "meshgate", "namespace": "istio-system"},
    });
    delete(&scene, &role)?;
    let right = json!({"group": "apps", "namespace": "istio-system", "resource": "daemonsets", "verb": "get",
                       "name": "istio-cni-node"});
    scene.cluster.wait_until_agent_may(&right, false)?;
    scene.stops("the agent's role is gone")?;
    scene.agent.spawn()?;
    scene.agent.wait_until_ready()?;
    scene
        .agent
        .wait_for_log("a removal of the agent will look like an upgrade")?;
    scene.stops("the agent may not get daemonsets")?;

    scene.agent.spawn()?;
    scene.agent.wait_until_ready()?;
    scene.cluster.kill9();
    scene.problem(&["API server cannot be reached"])?;
    scene.stops("if it was removed, run `meshgate cleanup`")?;
    scene.goes_through_the_proxy(&pod)
}

#[test]
fn credentials_that_do_not_count_any_more_mean_removal() -> Result<()> {
    let Some(mut scene) = Scene::new("credentials_that_do_not_count_any_more_mean_removal")? else {
        return Ok(());
    };
    let of_agent: Value = serde_json::from_slice(&fs::read(scene.cluster.kubeconfig(User::Agent))?)?;
    let mut of_nobody = of_agent;
    of_nobody["users"][0]["user"]["token"] = json!("of a service account that is gone");
    let kubeconfig = scene.node.run_dir().join("gone.kubeconfig");
    fs::write(&kubeconfig, of_nobody.to_string())?;
    scene.replace_agent(&[
        "--kubeconfig",
        text(&kubeconfig)?,
        "--pod-namespace",
        "istio-system",
    ])?;
    scene.problem(&["does not accept the agent's credentials"])?;
    scene.stops("the service account is gone")
}

#[test]
fn who_wants_no_safe_upgrade_gets_none() -> Result<()> {
    let Some(mut scene) = Scene::new("who_wants_no_safe_upgrade_gets_none")? else {
        return Ok(());
    };
    let kubeconfig = scene.cluster.kubeconfig(User::Agent);
    let flags = ["--kubeconfig", text(&kubeconfig)?, "--disable-safe-upgrade"];
    scene.replace_agent(&flags)?;
    scene.agent.wait_until_ready()?;
    scene.stops("AMBIENT_DISABLE_SAFE_UPGRADE is set")
}
