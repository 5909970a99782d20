//! Commands in the documents do what the documents say: each is run here, against a running node.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tests::{Mesh, requires};

/// Lines of a document's `sh` blocks that start with this word, without comments.
fn commands(document: &str, program: &str) -> Result<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document);
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut found = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        match line.trim() {
            "```sh" => in_block = true,
            "```" => in_block = false,
            command if in_block && command.split(' ').next() == Some(program) => {
                found.push(command.split("  #").next().unwrap_or(command).trim().to_owned());
            }
            _ => {}
        }
    }
    assert!(!found.is_empty(), "{document} has no {program} commands");
    Ok(found)
}

#[test]
fn bpftool_reads_every_map_as_the_documents_say() -> Result<()> {
    let name = "bpftool_reads_every_map_as_the_documents_say";
    if !requires::root(name) || !requires::command(name, "bpftool") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let pins = mesh.node.bpffs().display().to_string();
    for command in commands("docs/bpftool.md", "bpftool")? {
        let here = command.replace("/sys/fs/bpf", &pins);
        let output = Command::new("sh").args(["-c", &here]).output()?;
        let (printed, complained) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{command}: {complained}");
        let is_about_the_machine = command.contains("net list");
        assert!(
            is_about_the_machine || !printed.trim().is_empty(),
            "{command} prints nothing"
        );
        if command.contains("-j map dump") && command.contains("python3") {
            assert!(printed.contains(mesh.client.name()), "{command}: {printed}");
        }
    }
    Ok(())
}

#[test]
fn the_fields_of_the_maps_have_names() -> Result<()> {
    let name = "the_fields_of_the_maps_have_names";
    if !requires::root(name) || !requires::command(name, "bpftool") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let pods = mesh.node.bpffs().join("meshgate/v1/maps/PODS");
    let output = Command::new("bpftool")
        .args(["-j", "map", "dump", "pinned"])
        .arg(pods)
        .output()?;
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let value = &rows[0]["formatted"]["value"];
    for field in ["generation", "network", "flags", "ip4", "ip6"] {
        assert!(!value[field].is_null(), "no field {field} in {value}");
    }
    Ok(())
}

#[test]
fn the_commands_of_the_documents_work() -> Result<()> {
    if !requires::root("the_commands_of_the_documents_work") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let documents = ["README.md", "docs/switch-over.md"].map(|document| commands(document, "meshgate"));
    for command in documents.into_iter().collect::<Result<Vec<_>>>()?.concat() {
        let mut words: Vec<&str> = command
            .split(' ')
            .skip(1)
            .filter(|word| !word.is_empty())
            .collect();
        // These two are the agent itself, which runs, and what must not be done while it runs.
        if matches!(words[..], ["run" | "cleanup"]) {
            words.push("--help");
        }
        let client = mesh.client.v4().to_string();
        let words: Vec<&str> = words
            .into_iter()
            .map(|word| if word == "10.0.0.7" { &client } else { word })
            .collect();
        let output = mesh.agent.cli(&words)?;
        assert!(
            output.status.success(),
            "{command}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!output.stdout.is_empty(), "{command} prints nothing");
    }
    Ok(())
}
