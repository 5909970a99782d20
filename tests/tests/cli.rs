//! The command line: every verb with and without an agent, its exit code, its table and its JSON.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use agent::datapath::plan::PROXY;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests::process::said;
use tests::{Agent, Mesh, Node, Pins, programs, requires};

/// Every verb that reads.
const READING: [&[&str]; 5] = [
    &["status"],
    &["pods"],
    &["maps", "dump"],
    &["counters"],
    &["preflight"],
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The JSON of a verb, and its exit code.
fn json_of(agent: &Agent, verb: &[&str]) -> Result<(Option<i32>, Value)> {
    let (code, out, err) = agent.said(&[verb, &["-o", "json"]].concat())?;
    let value = serde_json::from_str(&out).with_context(|| format!("{verb:?}: {out}{err}"))?;
    Ok((code, value))
}

fn names(value: &Value) -> BTreeSet<String> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect()
}

/// The field names that docs/cli.md gives under a heading: first column of the table there.
fn documented(heading: &str) -> Result<BTreeSet<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let section = text
        .split("\n#")
        .find(|section| section.trim_start_matches('#').trim_start().starts_with(heading))
        .with_context(|| format!("no heading {heading}"))?;
    let fields = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    Ok(fields.map(str::to_owned).collect())
}

fn is_documented(heading: &str, value: &Value) -> Result<()> {
    assert_eq!(
        names(value),
        documented(heading)?,
        "docs/cli.md, {heading}: {value}"
    );
    Ok(())
}

#[test]
fn json_has_the_documented_names_with_and_without_an_agent() -> Result<()> {
    if !requires::root("json_has_the_documented_names_with_and_without_an_agent") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    mesh.check()?;
    mesh.node.write_text("bad.yaml", "{")?;
    mesh.agent
        .wait_for("a problem", |status| status.problems.first().cloned())?;
    let (code, status) = json_of(&mesh.agent, &["status"])?;
    assert_eq!((code, &status["state"]), (Some(3), &json!("degraded")));
    is_documented("Proxy in `status`", &status["proxies"][0])?;
    is_documented("Condition in `status`", &status["conditions"][0])?;
    is_documented("`log-level`", &mesh.agent.cli_json(&["log-level"])?)?;
    fs::remove_file(mesh.node.manifests().join("bad.yaml"))?;
    mesh.agent
        .wait_for("no problem", |status| status.problems.is_empty().then_some(()))?;
    let (code, fine) = json_of(&mesh.agent, &["status"])?;
    assert_eq!((code, &fine["state"]), (Some(0), &json!("ok")), "{fine}");
    mesh.agent.kill9();
    let (code, dead) = json_of(&mesh.agent, &["status"])?;
    assert_eq!((code, &dead["agent_running"]), (Some(3), &json!(false)));
    for status in [&status, &fine, &dead] {
        is_documented("`status`", status)?;
        is_documented("Pods in `status`", &status["pods"])?;
        is_documented("Link in `status`", &status["node_links"][0])?;
        assert_eq!(status["pods"]["enabled"], 2, "{status}");
    }
    is_documented("Problem", &status["problems"][0])?;
    let (code, pods) = json_of(&mesh.agent, &["pods"])?;
    assert_eq!(code, Some(0));
    let pods = pods.as_array().context("an array")?;
    let states: Vec<_> = pods
        .iter()
        .map(|pod| (pod["name"].as_str(), pod["state"].as_str()))
        .collect();
    let expected = [
        ("client", "enabled"),
        ("outside", "outside"),
        ("server", "enabled"),
    ];
    assert_eq!(states, expected.map(|(name, state)| (Some(name), Some(state))));
    for pod in pods {
        is_documented("`pods`", pod)?;
    }
    let (code, counters) = json_of(&mesh.agent, &["counters", "--pod", "default/client"])?;
    assert_eq!((code, counters.as_array().map(Vec::len)), (Some(0), Some(1)));
    is_documented("`counters`", &counters[0])?;
    assert_eq!(counters[0]["counters"]["outbound_captured"], 200);
    let address = mesh.server.v6().to_string();
    let (code, entry) = json_of(&mesh.agent, &["maps", "get", "--network", "", "--ip", &address])?;
    assert_eq!(
        (code, entry["pod"]["uid"].as_str()),
        (Some(0), Some(mesh.server.uid()))
    );
    is_documented("`maps get`", &entry)?;
    let (code, maps) = json_of(&mesh.agent, &["maps", "dump"])?;
    assert_eq!(code, Some(0));
    is_documented("`maps dump`", &maps)?;
    assert_eq!(maps["PODS"].as_array().map(Vec::len), Some(2));
    let (code, checks) = json_of(&mesh.agent, &["preflight"])?;
    is_documented("`preflight`", &checks[0])?;
    let lacking = |check: &&Value| !matches!(check["result"].as_str(), Some("ok" | "note"));
    let lacking: Vec<_> = checks.as_array().into_iter().flatten().filter(lacking).collect();
    assert_eq!((code, lacking.len()), (Some(0), 0), "{lacking:?}");
    let (code, cleaned) = json_of(&mesh.agent, &["cleanup"])?;
    assert_eq!(code, Some(0));
    is_documented("`cleanup`", &cleaned)
}

#[test]
fn tables_say_what_people_look_for() -> Result<()> {
    if !requires::root("tables_say_what_people_look_for") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    mesh.check()?;
    let address = mesh.client.v4().to_string();
    let get = ["maps", "get", "--ip", &address];
    let links = format!("{0} of {0} attached", PROXY.len());
    let cases: [(&[&str], &[&str]); 7] = [
        (
            &["status"],
            &["state         ok", &links, "2 enabled", "1 connected"],
        ),
        (
            &["pods"],
            &["NAMESPACE", "default", "client", "enabled", "outside", &address],
        ),
        (&["counters"], &["default/client", "outbound_captured", "200"]),
        (
            &["maps", "dump"],
            &["PODS (2)", "ADDRESSES (4)", "pod=default/client"],
        ),
        (&["maps", "dump", "NAMES"], &["NAMES (2)", "name=server"]),
        (&get, &["default/client", mesh.client.uid(), "enabled"]),
        (
            &["preflight"],
            &["sk_lookup in network namespaces", "5.9", "cgroup v2", "bpffs"],
        ),
    ];
    for agent_runs in [true, false] {
        for (verb, wanted) in cases {
            let (code, out, err) = mesh.agent.said(verb)?;
            let degraded = !agent_runs && verb == ["status"];
            assert_eq!(
                code,
                Some(if degraded { 3 } else { 0 }),
                "{verb:?} {agent_runs}: {out}{err}"
            );
            let missing: Vec<_> = wanted
                .iter()
                .filter(|word| !(out.contains(**word) || degraded))
                .collect();
            assert!(missing.is_empty(), "{verb:?} lacks {missing:?}:\n{out}");
        }
        mesh.agent.kill9();
    }
    Ok(())
}

#[test]
fn without_anything_installed_each_verb_says_so() -> Result<()> {
    if !requires::root("without_anything_installed_each_verb_says_so") {
        return Ok(());
    }
    let node = Node::new()?;
    let agent = Agent::stopped(&node, "kube", &[])?;
    let (code, status) = json_of(&agent, &["status"])?;
    assert_eq!((code, &status["node"]), (Some(3), &json!("")), "{status}");
    assert_eq!(
        agent.said(&["pods"])?,
        (Some(0), "no pods on this node\n".into(), String::new())
    );
    for verb in [
        ["maps", "dump"].as_slice(),
        &["counters"],
        &["maps", "get", "--ip", "10.0.0.1"],
    ] {
        let (code, out, err) = agent.said(verb)?;
        assert_eq!((code, out.as_str()), (Some(1), ""), "{verb:?}");
        assert!(
            err.contains("no map") && err.contains("meshgate run"),
            "{verb:?}: {err}"
        );
    }
    for _ in 0..2 {
        let (code, out, err) = agent.said(&["cleanup"])?;
        assert_eq!(code, Some(0), "{err}");
        assert!(out.contains("left     nothing"), "{out}");
    }
    Ok(())
}

#[test]
fn wrong_usage_is_2_and_what_is_not_there_is_1() -> Result<()> {
    if !requires::root("wrong_usage_is_2_and_what_is_not_there_is_1") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let cases: [(&[&str], i32, &str); 9] = [
        (&["nonsense"], 2, "nonsense"),
        (&["status", "--nonsense"], 2, "--nonsense"),
        (&["status", "-o", "xml"], 2, "xml"),
        (&["maps"], 2, "Usage"),
        (&["maps", "get", "--ip", "10.0.0.999"], 2, "10.0.0.999"),
        (&["run", "--source", "xds"], 2, "file:PATH"),
        (&["maps", "get", "--ip", "192.0.2.1"], 1, "192.0.2.1"),
        (
            &["maps", "get", "--network", "mars", "--ip", "192.0.2.1"],
            1,
            "mars",
        ),
        (&["counters", "--pod", "default/nobody"], 1, "default/nobody"),
    ];
    for (verb, wanted, word) in cases {
        let (code, out, err) = mesh.agent.said(verb)?;
        assert_eq!((code, out.as_str()), (Some(wanted), ""), "{verb:?}: {err}");
        assert!(err.contains(word), "{verb:?}: {err}");
    }
    let (code, _, err) = mesh.agent.said(&["maps", "dump", "SOCKETS"])?;
    assert_eq!(code, Some(2), "{err}");
    Ok(())
}

#[test]
fn every_verb_has_help_with_an_example() -> Result<()> {
    let meshgate = programs::find("meshgate")?;
    let more: [&[&str]; 5] = [&["run"], &["cleanup"], &["maps", "get"], &["maps"], &[]];
    for verb in READING.iter().chain(&more) {
        let output = Command::new(&meshgate).args(*verb).arg("--help").output()?;
        let (code, out, err) = said(&output);
        assert_eq!(code, Some(0), "{verb:?}: {err}");
        assert!(out.contains("Example: meshgate"), "{verb:?}:\n{out}");
    }
    Ok(())
}

#[test]
fn bpftool_prints_named_fields() -> Result<()> {
    const NAME: &str = "bpftool_prints_named_fields";
    if !requires::root(NAME) {
        return Ok(());
    }
    if Command::new("bpftool").arg("version").output().is_err() {
        requires::skip(NAME, "bpftool is not installed");
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let dump = |map: &str| -> Result<Value> {
        let pin = Pins::of(&mesh.node).folder().join("maps").join(map);
        let output = Command::new("bpftool")
            .args(["map", "dump", "-j", "pinned"])
            .arg(pin)
            .output()?;
        serde_json::from_slice(&output.stdout).with_context(|| text(&output.stderr))
    };
    for (map, key, value) in [
        ("PODS", "netns", "generation"),
        ("ADDRESSES", "network", "netns"),
        ("NAMES", "netns", "uid"),
    ] {
        let dumped = dump(map)?;
        let entry = &dumped[0]["formatted"];
        assert!(
            !entry["key"][key].is_null() && !entry["value"][value].is_null(),
            "{map}: {dumped}"
        );
    }
    Ok(())
}
