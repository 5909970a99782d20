//! What the plugin says: on standard error, in a file of the node, and in the agent's log.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests::requires;

use crate::scene::Scene;

#[test]
fn a_failure_is_told_in_all_places_and_an_ordinary_pod_in_none() -> Result<()> {
    if !requires::root("a_failure_is_told_in_all_places_and_an_ordinary_pod_in_none") {
        return Ok(());
    }
    let mut scene = Scene::new()?;
    let file = scene.plugin.run_dir().join("istio-cni.log");
    let pod = scene.sandbox("web")?;
    let answer = scene.plugin.add(&pod)?;
    assert!(answer.success && answer.complained.is_empty(), "{answer:?}");
    assert!(!file.exists(), "there was nothing to say");

    scene.proxy = None;
    let unserved = scene.sandbox("unserved")?;
    let answer = scene.plugin.add(&unserved)?;
    assert!(!answer.success);
    let said: Value = serde_json::from_str(&answer.complained).with_context(|| answer.complained.clone())?;
    let labels = ["level", "command", "namespace", "pod", "uid"].map(|key| said[key].clone());
    let expected = ["error", "ADD", "default", "unserved", unserved.uid()].map(Value::from);
    assert_eq!(labels, expected, "{said}");
    let message = said["msg"].as_str().context("a message")?;
    assert!(message.contains("no proxy is connected"), "{message}");
    assert_eq!(fs::read_to_string(&file)?, answer.complained);
    // The plugin does not wait for the agent, which counts its answers later than it says something.
    let again = format!("CNI plugin: {message}");
    scene.agent.wait_for_log(&again)?;
    Ok(())
}

#[test]
fn every_pod_is_told_at_level_debug_and_none_at_level_none() -> Result<()> {
    if !requires::root("every_pod_is_told_at_level_debug_and_none_at_level_none") {
        return Ok(());
    }
    let scene = Scene::new()?;
    let pod = scene.sandbox("web")?;
    let debug = scene.plugin.clone().with("plugin_log_level", "debug").add(&pod)?;
    let said: Value = serde_json::from_str(&debug.complained).with_context(|| debug.complained.clone())?;
    assert_eq!(said["level"], json!("debug"));
    assert!(
        said["msg"].to_string().contains("the agent lets the pod through"),
        "{said}"
    );
    let file = scene.plugin.run_dir().join("istio-cni.log");
    assert!(!file.exists(), "the file is for what is worth keeping");
    let silent = scene
        .plugin
        .clone()
        .with("plugin_log_level", "none")
        .call_with("ADD", b"garbage")?;
    // Without a configuration nobody knows the level.
    assert!(
        !silent.success && silent.complained.contains("not as it should be"),
        "{silent:?}"
    );
    let silent = scene
        .plugin
        .with("plugin_log_level", "none")
        .with("prevResult", 7)
        .call("ADD")?;
    assert!(!silent.success && silent.complained.is_empty(), "{silent:?}");
    Ok(())
}
