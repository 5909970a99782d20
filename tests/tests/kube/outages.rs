//! The control plane, the agent or its settings fail: no pod that is captured goes, and the cause is named.

use anyhow::Result;
use tests::PodSpec;
use tests::cluster::User;
use tests::cluster::pods::node_reference;

use crate::scene::{Scene, text};

#[test]
fn nothing_is_lost_while_the_control_plane_is_away() -> Result<()> {
    let Some(mut scene) = Scene::new("nothing_is_lost_while_the_control_plane_is_away")? else {
        return Ok(());
    };
    let mut a = scene.run(PodSpec::new("a").ambient())?;
    let b = scene.run(PodSpec::new("b"))?;
    scene.captured(&a)?;
    scene.outside(&b)?;

    scene.cluster.kill9();
    scene.problem(&["API server cannot be reached", "what it told last still holds"])?;
    scene.goes_through_the_proxy(&a)?;

    // An agent that starts now knows only what is pinned.
    scene.agent.kill9();
    scene.goes_through_the_proxy(&a)?;
    scene.agent.spawn()?;
    scene.problem(&["API server cannot be reached"])?;
    scene.goes_through_the_proxy(&a)?;
    scene.passes_the_proxy_by(&b)?;

    scene.cluster.restart()?;
    scene.agent.wait_until_ready()?;
    scene.no_problem()?;
    scene.captured(&a)?;
    let c = scene.run(PodSpec::new("c").ambient())?;
    scene.captured(&c)?;
    a.set_ambient(false);
    scene.cluster.update(&a)?;
    scene.outside(&a)?;

    // A running agent picks up where it was, too.
    scene.cluster.kill9();
    scene.problem(&["API server cannot be reached"])?;
    scene.cluster.restart()?;
    a.set_ambient(true);
    scene.cluster.update(&a)?;
    scene.captured(&a)?;
    scene.captured(&c)?;
    scene.no_problem()
}

#[test]
fn what_changed_while_the_agent_was_dead_is_made_good() -> Result<()> {
    let Some(mut scene) = Scene::new("what_changed_while_the_agent_was_dead_is_made_good")? else {
        return Ok(());
    };
    let mut leaves = scene.run(PodSpec::new("leaves").ambient())?;
    let deleted = scene.run(PodSpec::new("deleted").ambient())?;
    let mut joins = scene.run(PodSpec::new("joins"))?;
    scene.captured(&leaves)?;
    scene.captured(&deleted)?;
    scene.outside(&joins)?;

    scene.agent.kill9();
    leaves.set_ambient(false);
    joins.set_ambient(true);
    scene.cluster.update(&leaves)?;
    scene.cluster.update(&joins)?;
    scene.cluster.delete(&deleted)?;
    scene.goes_through_the_proxy(&leaves)?;

    scene.agent.restart()?;
    scene.outside(&leaves)?;
    scene.captured(&joins)?;
    scene.gone(deleted.uid(), deleted.ips())
}

#[test]
fn no_permission_no_kubeconfig_and_a_wrong_node_name_are_told_and_let_no_pod_go() -> Result<()> {
    let Some(mut scene) =
        Scene::new("no_permission_no_kubeconfig_and_a_wrong_node_name_are_told_and_let_no_pod_go")?
    else {
        return Ok(());
    };
    let a = scene.run(PodSpec::new("a").ambient())?;
    scene.captured(&a)?;
    let agent = scene.cluster.kubeconfig(User::Agent);
    let nobody = scene.cluster.kubeconfig(User::Nobody);
    let absent = scene.node.run_dir().join("absent.kubeconfig");

    scene.replace_agent(&["--kubeconfig", text(&nobody)?])?;
    for resource in ["pods", "namespaces", "nodes"] {
        let refused = format!("the agent may not list {resource}:");
        let rule = format!(r#"resources: [\"{resource}\"], verbs: [\"list\", \"watch\"]"#);
        scene.problem(&[&refused, &rule, r#"User \"nobody\" cannot list"#])?;
    }
    scene.goes_through_the_proxy(&a)?;

    scene.replace_agent(&["--kubeconfig", text(&absent)?])?;
    scene.problem(&[text(&absent)?, "--kubeconfig"])?;
    scene.goes_through_the_proxy(&a)?;
    std::fs::copy(&agent, &absent)?;
    scene.agent.wait_until_ready()?;
    scene.no_problem()?;
    scene.captured(&a)?;

    scene.replace_agent(&["--kubeconfig", text(&agent)?, "--node", "wrong-name"])?;
    let wrong = ["Node wrong-name", "no such node", "NODE_NAME"];
    scene.problem(&wrong)?;
    scene.goes_through_the_proxy(&a)?;
    scene.cluster.node_object("wrong-name")?;
    scene.agent.wait_until_ready()?;
    scene.no_problem()?;
    // The name was right after all, and the pod is another node's.
    scene.passes_the_proxy_by(&a)?;
    scene.cluster.delete_object(&node_reference("wrong-name"))?;
    scene.problem(&["Node wrong-name", "was deleted"])
}
