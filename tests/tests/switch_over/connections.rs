//! Connections that were open before the switch-over live on, and the rules that they need stay as long.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use tests::istio::remains;
use tests::process::Process;
use tests::wait;

use crate::scene::{Load, Scene, backends};

#[test]
fn open_connections_live_on_and_their_rules_go_with_them() -> Result<()> {
    for backend in backends("open_connections_live_on_and_their_rules_go_with_them") {
        let mut scene = Scene::new(backend)?;
        let load = Load::start(&scene)?;
        let mut open: Vec<Process> = Vec::new();
        for (from, to) in [(&scene.client, &scene.outside), (&scene.outside, &scene.server)] {
            for destination in Scene::<()>::at(to) {
                let mut held = from.spawn(&["hold", "5", &destination.to_string(), "--check"])?;
                ensure!(held.json::<Value>()?["alive"] == 5, "{backend:?} {destination}");
                open.push(held);
            }
        }
        scene.switch()?;
        for pod in [&scene.client, &scene.server] {
            let what = format!("{} to be captured without its redirecting rules", pod.name());
            wait::asking(Duration::from_secs(10), &what, || {
                let remains = remains(pod.netns(), backend)?;
                let redirects = remains.iter().any(|rule| rule.contains("REDIRECT"));
                Ok((!redirects && !remains.is_empty()).then_some(()))
            })?;
            let uid = pod.uid().to_owned();
            scene.agent.wait_for("the reason in the status", |status| {
                let pod = status.pods.iter().find(|pod| pod.uid == uid)?;
                pod.reason
                    .to_string()
                    .contains("before the switch-over")
                    .then_some(())
            })?;
        }
        load.goes_on(50)?;
        for held in &mut open {
            held.close_stdin();
            let alive = &held.json::<Value>()?["alive"];
            ensure!(alive == 5, "{backend:?}: {alive} of 5 connections live on");
        }
        drop(open);
        scene.wait_until_gone()?;
        scene.assert_flawless(load)?;
        scene.foreign_rules_are_untouched()?;
    }
    Ok(())
}
