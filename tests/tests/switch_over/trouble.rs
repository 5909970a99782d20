//! Rules that cannot be removed: the pod is captured all the same, the status says so, and it is tried again.

use std::process::Command;

use anyhow::{Result, ensure};
use tests::Pod;
use tests::iptables;
use tests::istio::Backend;
use tests::netns::run;
use tests::requires;

use crate::scene::{Load, Scene, backends};

fn nft(pod: &Pod, arguments: &[&str]) -> Result<()> {
    run(Command::new("ip")
        .args(["netns", "exec", pod.netns().name(), "nft"])
        .args(arguments))
}

#[test]
fn rules_that_cannot_be_removed_are_told_until_they_are() -> Result<()> {
    const NAME: &str = "rules_that_cannot_be_removed_are_told_until_they_are";
    if !requires::command(NAME, "nft") {
        return Ok(());
    }
    let nft_backend = Backend::Iptables(iptables::Backend::Nft);
    let mut backends = backends(NAME);
    backends.retain(|backend| *backend == nft_backend);
    for backend in backends {
        let mut scene = Scene::new(backend)?;
        // Somebody else's map refers to a chain of Istio's: the kernel does not let it go.
        nft(
            &scene.server,
            &[
                "add map ip nat mine { type inet_service : verdict; elements = { 9999 : jump ISTIO_PRERT } ; }",
            ],
        )?;
        let load = Load::start(&scene)?;
        load.goes_on(20)?;
        scene.switch()?;
        let object = format!("{}/{}", scene.server.namespace(), scene.server.name());
        scene.agent.wait_for("the problem", |status| {
            let is_told = |problem: &serde_json::Value| {
                problem["object"].to_string().contains(&object)
                    && problem["problem"].to_string().contains("rules of Istio's agent")
            };
            status.problems.iter().any(is_told).then_some(())
        })?;
        scene.wait_until_gone_from(&scene.client)?;
        load.goes_on(50)?;
        nft(&scene.server, &["delete map ip nat mine"])?;
        scene.wait_until_gone()?;
        scene
            .agent
            .wait_for("no problem", |status| status.problems.is_empty().then_some(()))?;
        scene.assert_flawless(load)?;
        scene.foreign_rules_are_untouched()?;
        ensure!(
            scene.agent.log().matches("Device or resource busy").count() == 1,
            "said once"
        );
    }
    Ok(())
}
