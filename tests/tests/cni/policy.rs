//! What becomes of a pod about which nobody can say whether it belongs to the mesh.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use anyhow::Result;
use tests::cni::Plugin;
use tests::{Node, PodSpec, requires};

use crate::scene::{QUICK, Scene, assert_passed};

#[test]
fn a_dead_agent_holds_pods_back_unless_the_policy_is_ignore() -> Result<()> {
    if !requires::root("a_dead_agent_holds_pods_back_unless_the_policy_is_ignore") {
        return Ok(());
    }
    let mut scene = Scene::new()?;
    let mut pod = scene.sandbox("web")?;
    scene.agent.kill9();
    let hasty = scene.plugin.clone().with("agent_timeout_seconds", 1);
    for closed in [hasty.clone(), hasty.clone().with("failure_policy", "Fail")] {
        let answer = closed.add(&pod)?;
        assert!(!answer.success);
        assert_eq!(answer.printed["code"], 11, "{}", answer.printed);
        assert!(
            answer.error().contains("none runs outside the mesh unseen"),
            "{}",
            answer.error()
        );
    }
    let answer = hasty.with("failure_policy", "Ignore").add(&pod)?;
    assert_passed(&answer, &pod);
    assert!(answer.took >= Duration::from_secs(1) && answer.took < Duration::from_secs(1) + QUICK);
    assert!(
        answer.complained.contains("OUTSIDE THE MESH"),
        "{}",
        answer.complained
    );
    // The pod runs now, and the agent captures it when it is there again.
    pod.start()?;
    scene.node.apply(&[&pod])?;
    scene.agent.restart()?;
    scene.agent.wait_for_pod_state(pod.uid(), "enabled")?;
    Ok(())
}

#[test]
fn an_agent_that_listens_and_says_nothing_is_no_answer_either() -> Result<()> {
    if !requires::root("an_agent_that_listens_and_says_nothing_is_no_answer_either") {
        return Ok(());
    }
    let node = Node::new()?;
    let plugin = Plugin::new(&node)?.with("agent_timeout_seconds", 1);
    std::fs::create_dir_all(plugin.run_dir())?;
    let _silent = [node.plugin_socket(), plugin.run_dir().join("log.sock")].map(UnixListener::bind);
    let pod = node.sandbox(PodSpec::new("web").ambient())?;
    let answer = plugin.add(&pod)?;
    assert!(
        answer.error().contains("it listens, but says nothing"),
        "{}",
        answer.error()
    );
    // That it has something to say in the log does not keep the pod waiting.
    assert!(answer.took < Duration::from_secs(1) + QUICK, "{:?}", answer.took);
    assert_passed(&plugin.clone().with("failure_policy", "Ignore").add(&pod)?, &pod);
    let wrong = plugin.with("failure_policy", "Open").add(&pod)?;
    assert_eq!(wrong.printed["code"], 7, "{}", wrong.printed);
    assert!(
        wrong.error().contains(r#""Open" is neither Fail nor Ignore"#),
        "{}",
        wrong.error()
    );
    Ok(())
}

#[test]
fn an_agent_whose_source_does_not_know_the_pod_decides_by_its_own_policy() -> Result<()> {
    if !requires::root("an_agent_whose_source_does_not_know_the_pod_decides_by_its_own_policy") {
        return Ok(());
    }
    let mut scene = Scene::with_agent(&["--cni-failure-policy", "Ignore"])?;
    scene.start_proxy()?;
    let mut late = scene.node.sandbox(PodSpec::new("late").ambient())?;
    // The plugin's own policy is for an agent that is silent, and this one is not.
    assert_passed(
        &scene.plugin.clone().with("failure_policy", "Fail").add(&late)?,
        &late,
    );
    scene.agent.wait_for("the pod to be counted", |status| {
        (status.cni["let_through"] == 1 && status.cni["answers"]["200"] == 1).then_some(())
    })?;
    assert!(
        scene.agent.log().contains("OUTSIDE THE MESH"),
        "{}",
        scene.agent.log()
    );
    late.start()?;
    scene.node.apply(&[&late])?;
    scene.agent.wait_for_pod_state(late.uid(), "enabled")?;
    // What is known to belong to the mesh and cannot be captured fails all the same.
    scene.proxy = None;
    let pod = scene.sandbox("web")?;
    let answer = scene.plugin.clone().with("failure_policy", "Ignore").add(&pod)?;
    assert!(
        !answer.success && answer.error().contains("no proxy"),
        "{}",
        answer.error()
    );
    Ok(())
}
