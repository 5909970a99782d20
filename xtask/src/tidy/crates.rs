//! Which crates may depend on which of ours, and what the pure ones must not reach even so.

use anyhow::Context as _;
use serde_json::Value;

use crate::command::{ask, cargo};
use crate::workspace::Workspace;

/// Each crate and those of ours that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("agent-common", &[]),
    ("agent-ebpf", &["agent-common"]),
    ("agent-core", &["agent-common"]),
    ("agent-cni", &["agent-core"]),
    ("agent", &["agent-common", "agent-core"]),
    ("tests", &["agent", "agent-common", "agent-core"]),
    // xtask never depends on the agent: it must build when the agent does not.
    ("xtask", &[]),
];
/// Crates that do I/O: the rules in agent-core and the types in agent-common stay free of it.
const IO: &[&str] = &["kube", "libc", "notify", "rtnetlink", "rustix", "tokio"];
const PURE: &[&str] = &["agent-common", "agent-core"];
const TABLE: &str = "xtask/src/tidy/crates.rs";

pub(super) fn problems(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let mut metadata = cargo();
    metadata
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(&workspace.root);
    let text = ask(&mut metadata).context("`cargo metadata` failed: is a Cargo.toml broken?")?;
    let metadata: Value = serde_json::from_str(&text).context("`cargo metadata` printed no JSON")?;
    Ok(array(&metadata["packages"]).iter().flat_map(of_package).collect())
}

fn of_package(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let Some((_, allowed)) = ALLOWED.iter().find(|(crate_name, _)| *crate_name == name) else {
        return vec![format!(
            "crate {name} is not in the table in {TABLE}: what may it depend on?"
        )];
    };
    // Development dependencies do not ship.
    let dependencies = array(&package["dependencies"])
        .iter()
        .filter(|dependency| dependency["kind"].is_null());
    let names = dependencies.filter_map(|dependency| dependency["name"].as_str());
    let ours = |dependency: &str| ALLOWED.iter().any(|(crate_name, _)| *crate_name == dependency);
    let forbidden = |dependency: &&str| {
        (ours(dependency) && !allowed.contains(dependency))
            || (PURE.contains(&name) && IO.contains(dependency))
    };
    names
        .filter(forbidden)
        .map(|d| format!("crate {name} must not depend on {d} (table in {TABLE})"))
        .collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Value {
        let dependencies: Vec<_> = dependencies
            .iter()
            .map(|d| json!({"name": d, "kind": null}))
            .collect();
        json!({"name": name, "dependencies": dependencies})
    }

    #[test]
    fn a_crate_keeps_to_its_row() {
        assert_eq!(of_package(&package("agent", &["agent-core", "tokio"])), [""; 0]);
        assert_eq!(of_package(&package("xtask", &["agent"])).len(), 1);
        assert_eq!(of_package(&package("new", &[])).len(), 1);
    }

    #[test]
    fn the_rules_do_no_io_but_their_tests_may() {
        assert_eq!(of_package(&package("agent-core", &["tokio", "serde"])).len(), 1);
        let mut tests = package("agent-core", &["tokio"]);
        tests["dependencies"][0]["kind"] = json!("dev");
        assert_eq!(of_package(&tests), [""; 0]);
    }
}
