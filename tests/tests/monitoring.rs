//! The alert rules and the dashboard in deploy/monitoring, by promtool and against the metrics of a real agent.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::scrape::{MONITORING, get};
use tests::{Mesh, requires};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/monitoring");
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
/// What the dashboard's variables stand for when its queries are checked.
const VARIABLES: [(&str, &str); 2] = [("$__rate_interval", "5m"), ("$node", ".*")];
/// Columns of Grafana's grid.
const COLUMNS: u64 = 24;

/// What promtool says, which must be fine.
fn promtool(program: &Path, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(FOLDER)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "promtool {arguments:?}: {said}");
    Ok(())
}

fn dashboard() -> Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(
        Path::new(FOLDER).join("dashboard.json"),
    )?)?)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The queries of the dashboard's panels, with the variables replaced.
fn queries(dashboard: &Value) -> Vec<String> {
    let targets = items(&dashboard["panels"]).flat_map(|panel| items(&panel["targets"]));
    let query = |target: &Value| {
        let text = target["expr"].as_str().unwrap_or_default().to_owned();
        VARIABLES
            .iter()
            .fold(text, |text, (name, value)| text.replace(name, value))
    };
    targets.map(query).collect()
}

/// The alerts: name and expression.
fn alerts() -> Result<Vec<(String, String)>> {
    let rules: Value = serde_saphyr::from_str(&fs::read_to_string(Path::new(FOLDER).join("alerts.yaml"))?)?;
    let text = |rule: &Value, field: &str| rule[field].as_str().unwrap_or_default().to_owned();
    let all = items(&rules["groups"]).flat_map(|group| items(&group["rules"]));
    Ok(all
        .map(|rule| (text(rule, "alert"), text(rule, "expr")))
        .collect())
}

/// The names of metrics in an expression: all of ours begin so.
fn metrics(expression: &str) -> impl Iterator<Item = &str> {
    const OURS: [&str; 5] = ["meshgate_", "istio_cni_", "ztunnel_", "nodeagent_", "process_"];
    expression
        .split(|character: char| !character.is_ascii_alphanumeric() && character != '_')
        .filter(|word| OURS.iter().any(|prefix| word.starts_with(prefix)))
}

#[test]
fn each_alert_is_silent_on_a_node_as_it_should_be_and_fires_otherwise() -> Result<()> {
    const NAME: &str = "each_alert_is_silent_on_a_node_as_it_should_be_and_fires_otherwise";
    let Some(program) = requires::program(NAME, "MESHGATE_PROMTOOL") else {
        return Ok(());
    };
    promtool(&program, &["check", "rules", "alerts.yaml"])?;
    promtool(&program, &["test", "rules", "alerts_test.yaml"])?;
    let tested = fs::read_to_string(Path::new(FOLDER).join("alerts_test.yaml"))?;
    let told = fs::read_to_string(DOCS)?;
    for (name, _) in alerts()? {
        ensure!(tested.contains(&name), "{name} has no test");
        ensure!(
            told.contains(&format!("`{name}`")),
            "docs/metrics.md has no {name}"
        );
    }
    Ok(())
}

#[test]
fn the_dashboard_is_a_model_that_grafana_can_draw() -> Result<()> {
    let dashboard = dashboard()?;
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in items(&dashboard["panels"]) {
        ensure!(ids.insert(panel["id"].as_u64().context("id")?), "{}", panel["id"]);
        let place = |side: &str| panel["gridPos"][side].as_u64().context("gridPos");
        let (x, y, w, h) = (place("x")?, place("y")?, place("w")?, place("h")?);
        ensure!(x + w <= COLUMNS && w > 0 && h > 0, "{}", panel["title"]);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            ensure!(cells.insert(cell), "{} covers another panel", panel["title"]);
        }
        for target in items(&panel["targets"]) {
            assert_eq!(target["datasource"]["uid"], "${source}", "{}", panel["title"]);
            ensure!(target["refId"].is_string(), "{}", panel["title"]);
        }
    }
    let variables: BTreeSet<_> = items(&dashboard["templating"]["list"])
        .filter_map(|variable| variable["name"].as_str())
        .collect();
    assert_eq!(variables, BTreeSet::from(["node", "source"]));
    ensure!(
        queries(&dashboard).len() > ids.len() / 2,
        "panels without queries"
    );
    Ok(())
}

#[test]
fn queries_are_of_metrics_that_the_agent_tells() -> Result<()> {
    const NAME: &str = "queries_are_of_metrics_that_the_agent_tells";
    let Some(program) = requires::program(NAME, "MESHGATE_PROMTOOL") else {
        return Ok(());
    };
    let queries = queries(&dashboard()?);
    // Prometheus' own parser: as recording rules.
    let rules: Vec<_> = queries
        .iter()
        .enumerate()
        .map(|(at, query)| json!({"record": format!("query:{at}"), "expr": query}))
        .collect();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("queries.yaml");
    fs::write(
        &file,
        json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string(),
    )?;
    promtool(&program, &["check", "rules", file.to_str().context("UTF-8")?])?;

    if !requires::root(NAME) {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let told = get(&mesh.node, MONITORING, "/metrics", "")?.body;
    let families: BTreeSet<&str> = told
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let alerts = alerts()?;
    let expressions = alerts.iter().map(|(_, expression)| expression).chain(&queries);
    for metric in expressions.flat_map(|expression| metrics(expression)) {
        let family = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|end| metric.strip_suffix(end))
            .unwrap_or(metric);
        ensure!(families.contains(family), "{metric} is not told: {families:?}");
    }
    // By Prometheus' own rules for names, types and meanings.
    let exposition = folder.path().join("metrics");
    fs::write(&exposition, &told)?;
    let checked = Command::new(&program)
        .args(["check", "metrics"])
        .stdin(fs::File::open(&exposition)?)
        .output()?;
    let said = String::from_utf8_lossy(&checked.stderr);
    // Istio has given its gauge the name of a thing that is counted.
    let wrong: Vec<_> = said.lines().filter(|line| !line.is_empty()).collect();
    ensure!(checked.status.success() && wrong.is_empty(), "{said}");
    Ok(())
}
