//! What a node is without an agent: files, settings, rules and routes, to be compared before and after.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::netns::Netns;
use crate::node::Node;
use crate::pod::Pod;

/// Texts by what they are of.
pub type State = BTreeMap<String, String>;

/// Files that tests write themselves.
const OURS: [&str; 3] = ["manifests", ".jsonl", ".log"];

/// The state of a node and its pods.
///
/// # Errors
/// When something cannot be read.
pub fn of(node: &Node, pods: &[&Pod]) -> Result<State> {
    let mut state = State::new();
    for folder in [node.run_dir(), node.bpffs()] {
        files(folder, &mut state);
    }
    let pods = pods.iter().map(|pod| (pod.name(), pod.netns()));
    for (name, netns) in pods.chain([("the node", node.netns())]) {
        network(name, netns, &mut state)?;
    }
    Ok(state)
}

/// What is in one and not in the other, for people; empty when they are the same.
#[must_use]
pub fn difference(now: &State, before: &State) -> Vec<String> {
    let keys = now
        .keys()
        .chain(before.keys().filter(|key| !now.contains_key(*key)));
    let changed = keys.filter(|key| now.get(*key) != before.get(*key));
    changed
        .map(|key| format!("{key}: {:?}, was {:?}", now.get(key), before.get(key)))
        .collect()
}

fn files(folder: &Path, state: &mut State) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if OURS.iter().any(|ours| name.ends_with(ours)) {
            continue;
        }
        // The agent's log is there, and the folder with it.
        if name != "agent" {
            state.insert(path.display().to_string(), String::new());
        }
        if path.is_dir() {
            files(&path, state);
        }
    }
}

/// Rules, routes, addresses' owners aside, and every setting that is a file.
fn network(name: &str, netns: &Netns, state: &mut State) -> Result<()> {
    let questions = [
        "-4 rule",
        "-6 rule",
        "-4 route show table all",
        "-6 route show table all",
        "link",
    ];
    for question in questions {
        let output = Command::new("ip")
            .args(["-n", netns.name()])
            .args(question.split(' '))
            .output()?;
        ensure!(output.status.success(), "ip {question}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        // Times go on and link-local addresses come by themselves.
        let lines = text
            .lines()
            .filter(|line| !line.contains("fe80::") && !line.contains("ff00::"))
            .map(|line| line.split(" expires ").next().unwrap_or(line));
        let text = lines.collect::<Vec<_>>().join("\n");
        state.insert(format!("{name}: ip {question}"), text);
    }
    let settings = netns.run(|| {
        let mut settings = State::new();
        for family in ["core", "ipv4", "ipv6"] {
            read_settings(&Path::new("/proc/sys/net").join(family), &mut settings);
        }
        settings
    });
    let settings = settings.context("reading the settings")?;
    state.extend(
        settings
            .into_iter()
            .map(|(path, value)| (format!("{name}: {path}"), value)),
    );
    Ok(())
}

fn read_settings(folder: &Path, settings: &mut State) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match fs::read_to_string(&path) {
            Ok(value) => drop(settings.insert(path.display().to_string(), value)),
            Err(_) if path.is_dir() => read_settings(&path, settings),
            // Some can only be written.
            Err(_) => {}
        }
    }
}
