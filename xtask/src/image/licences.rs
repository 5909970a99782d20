//! The licences of the libraries that the shipped binaries are linked with: every one asks to go along with a copy.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use crate::command::{ask, cargo};
use crate::workspace::{Workspace, host};

/// The crates whose binaries are shipped.
const SHIPPED: [&str; 2] = ["agent", "agent-cni"];
/// How names of licence files begin, in lower case.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "copyright"];

/// Each text once, below the names of the crates that come with it.
pub(super) fn of_dependencies(workspace: &Workspace) -> anyhow::Result<Vec<u8>> {
    let mut metadata = cargo();
    metadata
        .args(["metadata", "--format-version=1", "--filter-platform", &host()])
        .current_dir(&workspace.root);
    let text = ask(&mut metadata).context("`cargo metadata` failed: is a Cargo.toml broken?")?;
    let metadata: Value = serde_json::from_str(&text).context("`cargo metadata` printed no JSON")?;
    let linked = linked(&metadata);
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in array(&metadata["packages"]) {
        if !linked.contains(string(&package["id"])) || package["source"].is_null() {
            continue;
        }
        let title = format!(
            "{} {} ({})",
            string(&package["name"]),
            string(&package["version"]),
            package["license"].as_str().unwrap_or("see its text")
        );
        for text in files(Path::new(string(&package["manifest_path"])))? {
            texts.entry(text).or_default().insert(title.clone());
        }
    }
    Ok(written(&texts).into_bytes())
}

/// Ids of the packages that are compiled into what is shipped: over normal dependencies, not those of builds and tests.
fn linked(metadata: &Value) -> BTreeSet<&str> {
    let nodes: HashMap<&str, &Value> = array(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| (string(&node["id"]), node))
        .collect();
    let is_shipped =
        |package: &&Value| package["source"].is_null() && SHIPPED.contains(&string(&package["name"]));
    let mut open: Vec<&str> = array(&metadata["packages"])
        .iter()
        .filter(is_shipped)
        .map(|package| string(&package["id"]))
        .collect();
    let mut linked = BTreeSet::new();
    while let Some(id) = open.pop() {
        if linked.insert(id) {
            let dependencies = nodes.get(id).map_or(&[][..], |node| array(&node["deps"]));
            let normal = dependencies.iter().filter(|dependency| {
                array(&dependency["dep_kinds"])
                    .iter()
                    .any(|kind| kind["kind"].is_null())
            });
            open.extend(normal.map(|dependency| string(&dependency["pkg"])));
        }
    }
    linked
}

/// The texts beside a package's manifest.
fn files(manifest: &Path) -> anyhow::Result<Vec<String>> {
    let folder = manifest.parent().context("a manifest without a folder")?;
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if NAMES.iter().any(|start| name.starts_with(start)) && entry.file_type()?.is_file() {
            let text = fs::read(entry.path())?;
            texts.push(String::from_utf8_lossy(&text).trim().to_owned());
        }
    }
    Ok(texts)
}

fn written(texts: &BTreeMap<String, BTreeSet<String>>) -> String {
    let line = "=".repeat(80);
    let mut written = String::from(
        "Libraries that are linked into meshgate and meshgate-cni, with their licences.\n\
         The C library in them is that of the machine that built them (glibc: LGPL-2.1-or-later).\n",
    );
    let mut by_crates: Vec<_> = texts.iter().map(|(text, crates)| (crates, text)).collect();
    by_crates.sort();
    for (crates, text) in by_crates {
        let crates: Vec<&str> = crates.iter().map(String::as_str).collect();
        // Writing to a string cannot fail.
        let _ = write!(written, "\n{line}\n{}\n{line}\n\n{text}\n", crates.join("\n"));
    }
    written
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_only_builds_and_tests_use_is_not_linked() {
        let package = |name: &str| json!({"id": name, "name": name, "source": if name == "agent" { Value::Null } else { json!("registry") }});
        let dependency = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("agent"), package("a"), package("b"), package("c"), package("d")],
            "resolve": {"nodes": [
                {"id": "agent", "deps": [dependency("a", Value::Null), dependency("b", json!("dev")), dependency("c", json!("build"))]},
                {"id": "a", "deps": [dependency("d", Value::Null), dependency("agent", Value::Null)]},
            ]},
        });
        assert_eq!(linked(&metadata), BTreeSet::from(["agent", "a", "d"]));
    }

    #[test]
    fn a_text_of_two_crates_is_written_once() {
        let crates = BTreeSet::from(["a 1 (MIT)".to_owned(), "b 2 (MIT)".to_owned()]);
        let written = written(&BTreeMap::from([("Permission is granted".to_owned(), crates)]));
        assert_eq!(written.matches("Permission").count(), 1);
        assert!(written.contains("a 1 (MIT)\nb 2 (MIT)\n"), "{written}");
    }
}
