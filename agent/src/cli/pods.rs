//! `meshgate pods`: captured ones from the maps, others from the agent's own account.

use std::collections::BTreeMap;

use agent_core::entry::PodEntry;
use serde::Serialize;

use super::Exit;
use super::output::{self, Format};
use crate::config::Paths;
use crate::datapath::pins::Pins;
use crate::datapath::tables::{Tables, TablesError};
use crate::report::Report;

/// One pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PodRow {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// Kubernetes UID.
    pub uid: String,
    /// `outside`, `waiting`, `pending` or `enabled`.
    pub state: String,
    /// Its network.
    pub network: String,
    /// Its addresses in the maps.
    pub addresses: Vec<String>,
    /// Cookie of its network namespace; 0 when it is not captured.
    pub netns_cookie: u64,
    /// Connections from outside are captured.
    pub inbound: bool,
    /// DNS questions go to the proxy.
    pub dns_capture: bool,
    /// How the application sees the client: `socket` or `wire`.
    pub client_address: &'static str,
    /// Why it is not captured, or its last error.
    pub reason: String,
}

/// Lists the pods.
///
/// # Errors
/// When the maps cannot be read.
pub fn execute(paths: &Paths, format: Format) -> anyhow::Result<Exit> {
    let account = Report::read(&paths.run_dir);
    let unreadable = account.as_ref().err().map(ToString::to_string);
    let rows = rows(paths, account.ok().flatten().unwrap_or_default())?;
    match format {
        Format::Json => output::json(&rows)?,
        Format::Table if rows.is_empty() => output::lines(["no pods on this node"])?,
        Format::Table => output::lines(table(&rows))?,
    }
    let Some(why) = unreadable else {
        return Ok(Exit::Fine);
    };
    eprintln!("warning: only what is captured is told, and no reasons: {why}");
    Ok(Exit::Degraded)
}

/// All pods of this node, with what the agent's account tells of them.
///
/// # Errors
/// When the maps cannot be read; maps that are not there hold no pods.
pub fn rows(paths: &Paths, account: Report) -> anyhow::Result<Vec<PodRow>> {
    let captured = match Tables::open(&Pins::new(&paths.bpffs)) {
        Err(TablesError::NotPinned { .. }) => Vec::new(),
        tables => tables?.entries()?,
    };
    Ok(merge(&captured, account))
}

/// The maps tell what is captured; the account tells the rest and the reasons.
fn merge(captured: &[PodEntry], report: Report) -> Vec<PodRow> {
    let mut rows: BTreeMap<String, PodRow> = captured
        .iter()
        .map(|entry| (entry.pod.uid.0.clone(), row(entry)))
        .collect();
    for pod in report.pods {
        let row = rows.entry(pod.uid.clone()).or_insert_with(|| PodRow {
            namespace: pod.namespace,
            name: pod.name,
            uid: pod.uid,
            state: if pod.state == "enabled" || pod.state == "pending" {
                "lost".to_owned()
            } else {
                pod.state
            },
            client_address: "socket",
            ..PodRow::default()
        });
        row.reason = pod.reason;
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
    rows
}

/// A captured pod.
#[must_use]
pub fn row(entry: &PodEntry) -> PodRow {
    let mut addresses = entry.addresses.clone();
    addresses.sort_unstable();
    PodRow {
        namespace: entry.pod.namespace.clone(),
        name: entry.pod.name.clone(),
        uid: entry.pod.uid.0.clone(),
        state: if entry.enabled { "enabled" } else { "pending" }.to_owned(),
        network: entry.network.0.clone(),
        addresses: addresses.iter().map(ToString::to_string).collect(),
        netns_cookie: entry.netns.0,
        inbound: entry.inbound,
        dns_capture: entry.dns,
        client_address: if entry.wire { "wire" } else { "socket" },
        reason: String::new(),
    }
}

fn table(rows: &[PodRow]) -> Vec<String> {
    let cells: Vec<_> = rows
        .iter()
        .map(|row| {
            [
                row.namespace.clone(),
                row.name.clone(),
                row.state.clone(),
                if row.network.is_empty() {
                    "-".to_owned()
                } else {
                    row.network.clone()
                },
                if row.addresses.is_empty() {
                    "-".to_owned()
                } else {
                    row.addresses.join(",")
                },
                row.reason.clone(),
            ]
        })
        .collect();
    output::table(
        ["NAMESPACE", "NAME", "STATE", "NETWORK", "ADDRESSES", "REASON"],
        &cells,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PodReport;

    #[test]
    fn a_pod_that_the_agent_believes_captured_and_the_maps_do_not_is_lost() {
        let pod = PodReport {
            uid: "u".into(),
            state: "enabled".into(),
            ..report_of()
        };
        let rows = merge(
            &[],
            Report {
                pods: vec![pod],
                ..Report::default()
            },
        );
        assert_eq!(rows[0].state, "lost");
    }

    fn report_of() -> PodReport {
        PodReport {
            uid: String::new(),
            namespace: "ns".into(),
            name: "p".into(),
            state: String::new(),
            reason: String::new(),
        }
    }
}
