//! `meshgate counters`: what was decided for each pod's connections, since it was enrolled.

use agent_common::counters::PodCounters;
use agent_common::limits::GONE;
use agent_common::pod::NetnsKey;
use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};

use super::Exit;
use super::output::{self, Format};
use crate::config::Paths;
use crate::datapath::pins::Pins;
use crate::datapath::tables::Tables;

/// Whose counters.
#[derive(Args, Debug)]
pub struct CountersArgs {
    /// One pod: namespace/name, or its UID
    #[arg(long)]
    pod: Option<String>,
}

/// One pod's counters, or the node's.
struct Row {
    pod: String,
    uid: String,
    counters: PodCounters,
}

/// Shows the counters.
///
/// # Errors
/// When the maps cannot be read, or the pod is not captured.
pub fn execute(paths: &Paths, format: Format, args: &CountersArgs) -> anyhow::Result<Exit> {
    let mut rows = rows(&Tables::open(&Pins::new(&paths.bpffs))?)?;
    if let Some(wanted) = &args.pod {
        rows.retain(|row| row.pod == *wanted || row.uid == *wanted);
        if rows.is_empty() {
            bail!("{wanted} is not captured on this node; see: meshgate pods");
        }
    }
    match format {
        Format::Json => output::json(&rows.iter().map(as_json).collect::<Vec<_>>())?,
        Format::Table => output::lines(table(&rows))?,
    }
    Ok(Exit::Fine)
}

fn rows(tables: &Tables) -> anyhow::Result<Vec<Row>> {
    let counted = tables.count()?;
    let of = |netns| counted.get(&NetnsKey { netns }).copied().unwrap_or_default();
    let mut rows: Vec<Row> = tables
        .entries()?
        .into_iter()
        .map(|entry| Row {
            pod: format!("{}/{}", entry.pod.namespace, entry.pod.name),
            uid: entry.pod.uid.0,
            counters: of(entry.netns.0),
        })
        .collect();
    rows.sort_by(|a, b| a.pod.cmp(&b.pod));
    rows.extend([("(gone)", GONE), ("(node)", 0)].map(|(name, netns)| Row {
        pod: name.to_owned(),
        uid: String::new(),
        counters: of(netns),
    }));
    Ok(rows)
}

fn as_json(row: &Row) -> Value {
    let counted: serde_json::Map<_, _> = row
        .counters
        .fields()
        .map(|(name, _, value)| (name.to_owned(), json!(value)))
        .collect();
    json!({"pod": row.pod, "uid": row.uid, "counters": counted})
}

/// One line for each counter that is not zero.
fn table(rows: &[Row]) -> Vec<String> {
    let cells: Vec<_> = rows
        .iter()
        .flat_map(|row| {
            row.counters
                .fields()
                .filter(|(_, _, value)| *value > 0)
                .map(|(name, meaning, value)| {
                    [
                        row.pod.clone(),
                        name.to_owned(),
                        value.to_string(),
                        meaning.trim().to_owned(),
                    ]
                })
        })
        .collect();
    if cells.is_empty() {
        return vec!["nothing counted yet: no connection of a captured pod has started".to_owned()];
    }
    output::table(["POD", "COUNTER", "VALUE", "MEANING"], &cells)
}
