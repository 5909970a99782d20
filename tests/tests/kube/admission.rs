//! New pods while the API server is away: what is known decides, what is not known is held back or let through as the
//! policy says, and the pod's event tells which of the two it is.

use anyhow::{Result, ensure};
use tests::cluster::User;
use tests::cni::Plugin;
use tests::{Pod, PodSpec};

use crate::scene::{SHOP, Scene, text};

impl Scene {
    /// The sandbox of a pod of the mesh that the API server has put on the node.
    pub(crate) fn scheduled(&self, name: &str) -> Result<Pod> {
        let spec = PodSpec::new(name).namespace(SHOP).ambient();
        let uid = self.cluster.create(self.node.name(), &spec)?;
        self.node.sandbox(spec.uid(&uid))
    }
}

#[test]
fn without_an_api_server_known_pods_start_and_unknown_ones_are_told_why_not() -> Result<()> {
    let Some(mut scene) =
        Scene::new("without_an_api_server_known_pods_start_and_unknown_ones_are_told_why_not")?
    else {
        return Ok(());
    };
    let plugin = Plugin::new(&scene.node)?;
    let known = scene.scheduled("known")?;
    scene.agent.wait_for("the pod to be known", |status| {
        status.pods.iter().any(|pod| pod.uid == known.uid()).then_some(())
    })?;
    // Nobody has told of it, and the API server could be asked.
    let spec = PodSpec::new("unknown").namespace(SHOP).ambient();
    let unknown = scene.node.sandbox(spec)?;
    let answer = plugin.add(&unknown)?;
    ensure!(!answer.success && answer.printed["code"] == 11, "{answer:?}");
    ensure!(
        answer
            .error()
            .contains("can be reached and has not told of the pod"),
        "{}",
        answer.error()
    );

    scene.cluster.kill9();
    scene.problem(&["API server cannot be reached"])?;
    let answer = plugin.add(&unknown)?;
    ensure!(!answer.success && answer.printed["code"] == 11, "{answer:?}");
    let error = answer.error();
    ensure!(
        error.contains("API server cannot be reached") && error.contains("check that it runs"),
        "{error}"
    );
    ensure!(
        plugin
            .clone()
            .with("failure_policy", "Ignore")
            .add(&unknown)?
            .printed["code"]
            == 11
    );
    // What was told before decides: the pod is captured, though its annotation must wait.
    let answer = plugin.add(&known)?;
    ensure!(answer.success, "{}", answer.error());
    Ok(())
}

#[test]
fn with_policy_ignore_pods_start_without_an_api_server_and_are_captured_later() -> Result<()> {
    let Some(mut scene) =
        Scene::new("with_policy_ignore_pods_start_without_an_api_server_and_are_captured_later")?
    else {
        return Ok(());
    };
    let plugin = Plugin::new(&scene.node)?;
    let mut pod = scene.scheduled("late")?;
    scene.cluster.kill9();
    // This agent has never reached the API server: it knows nothing at all.
    let kubeconfig = scene.cluster.kubeconfig(User::Agent);
    scene.replace_agent(&[
        "--kubeconfig",
        text(&kubeconfig)?,
        "--cni-failure-policy",
        "Ignore",
    ])?;
    scene.problem(&["API server cannot be reached"])?;
    let answer = plugin.add(&pod)?;
    ensure!(answer.success, "{}", answer.error());
    scene.agent.wait_for("the pod to be counted", |status| {
        (status.cni["let_through"] == 1).then_some(())
    })?;
    scene
        .agent
        .wait_for_log("OUTSIDE THE MESH, because the failure policy is Ignore")?;
    pod.start()?;
    scene.passes_the_proxy_by(&pod)?;

    scene.cluster.restart()?;
    scene.cluster.report(&pod, "Running")?;
    scene.captured(&pod)
}
