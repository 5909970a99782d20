//! `meshgate maps dump|get`: the maps with names and addresses instead of numbers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use agent_common::address::AddressKey;
use agent_common::flow::{Flow, handover};
use agent_common::limits::GONE;
use agent_common::pod::NetnsKey;
use agent_core::ids::NetworkName;
use anyhow::{Context, bail};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Exit;
use super::output::{self, Format};
use super::pods;
use crate::config::Paths;
use crate::datapath::pins::Pins;
use crate::datapath::plan::MAPS;
use crate::datapath::rows::text;
use crate::datapath::tables::Tables;

/// What to read.
#[derive(Subcommand, Debug)]
pub enum MapsCommand {
    /// Print a map, or all of them
    #[command(after_help = "Example: meshgate maps dump PODS\nThe same with bpftool: docs/bpftool.md")]
    Dump(DumpArgs),
    /// Print the entry of an address, with its pod
    #[command(after_help = "Example: meshgate maps get --network '' --ip 10.0.0.7")]
    Get(GetArgs),
}

/// Which map.
#[derive(Args, Debug)]
pub struct DumpArgs {
    /// Name of the map; all if left out
    #[arg(value_parser = PossibleValuesParser::new(listed()))]
    name: Option<String>,
}

/// Which address.
#[derive(Args, Debug)]
pub struct GetArgs {
    /// Name of the network; empty is the default network
    #[arg(long, default_value = "")]
    network: String,
    /// The address
    #[arg(long)]
    ip: IpAddr,
}

/// Reads the maps.
///
/// # Errors
/// When they cannot be read, or there is no such map or entry.
pub fn execute(paths: &Paths, format: Format, command: &MapsCommand) -> anyhow::Result<Exit> {
    let tables = Tables::open(&Pins::new(&paths.bpffs))?;
    match command {
        MapsCommand::Dump(args) => dump(&tables, format, args.name.as_deref()),
        MapsCommand::Get(args) => get(&tables, format, args),
    }
}

/// The maps that can be listed: socket storage can be read for one socket only.
fn listed() -> impl Iterator<Item = &'static str> {
    MAPS.iter()
        .copied()
        .filter(|name| !["SOCKETS", "ASKED"].contains(name))
}

fn dump(tables: &Tables, format: Format, name: Option<&str>) -> anyhow::Result<Exit> {
    let names: Vec<&str> = match name {
        None => listed().collect(),
        Some(name) => vec![name],
    };
    let mut all = serde_json::Map::new();
    for name in names {
        all.insert(name.to_owned(), Value::Array(entries(tables, name)?));
    }
    match format {
        Format::Json => output::json(&all)?,
        Format::Table => {
            for (name, entries) in &all {
                let entries = entries.as_array().map(Vec::as_slice).unwrap_or_default();
                output::lines([format!("{name} ({})", entries.len())])?;
                output::lines(entries.iter().map(|entry| format!("  {}", sentence(entry))))?;
            }
        }
    }
    Ok(Exit::Fine)
}

fn get(tables: &Tables, format: Format, args: &GetArgs) -> anyhow::Result<Exit> {
    let networks = tables.network_names()?;
    let shown = if args.network.is_empty() {
        "the default network"
    } else {
        &args.network
    };
    let Some(id) = networks
        .iter()
        .find(|(_, name)| name.0 == args.network)
        .map(|(id, _)| *id)
    else {
        bail!("no pod is captured in {shown}; see the networks with: meshgate maps dump NETWORKS");
    };
    let key = AddressKey {
        network: id,
        ip: args.ip.into(),
    };
    let owner = tables.addresses.get(&key, 0).map_err(|_| {
        anyhow::anyhow!(
            "no captured pod has {} in {shown}; see the pods with: meshgate pods",
            args.ip
        )
    })?;
    let pods = tables.entries()?;
    let pod = pods
        .iter()
        .find(|pod| pod.netns.0 == owner.netns)
        .context("the entry's pod is being removed")?;
    let entry = json!({
        "network": args.network, "network_id": id, "ip": args.ip, "netns_cookie": owner.netns,
        "generation": format!("{:016x}", owner.generation), "pod": pods::row(pod),
    });
    match format {
        Format::Json => output::json(&entry)?,
        Format::Table => output::lines([
            format!("address     {} in {shown} (network {id})", args.ip),
            format!("pod         {}", pod.pod),
            format!("state       {}", if pod.enabled { "enabled" } else { "pending" }),
            format!("netns       cookie {}", owner.netns),
            format!("generation  {:016x}", owner.generation),
        ])?,
    }
    Ok(Exit::Fine)
}

/// The entries of one map, in words.
fn entries(tables: &Tables, name: &str) -> anyhow::Result<Vec<Value>> {
    let networks = tables.network_names()?;
    let names: BTreeMap<NetnsKey, String> = tables
        .names
        .iter()
        .filter_map(Result::ok)
        .map(|(key, row)| (key, format!("{}/{}", text(&row.namespace), text(&row.name))))
        .collect();
    let words = Words {
        networks: &networks,
        names: &names,
    };
    let mut entries = match name {
        "PODS" => rows(tables.pods.iter(), |(key, pod)| {
            json!({"netns_cookie": key.netns, "pod": words.pod(key.netns), "network": words.network(pod.network),
                   "ip4": ip(pod.ip4), "ip6": ip(pod.ip6), "flags": pod.flags,
                   "generation": format!("{:016x}", pod.generation)})
        })?,
        "ADDRESSES" => rows(tables.addresses.iter(), |(key, owner)| {
            json!({"network": words.network(key.network), "ip": IpAddr::from(key.ip), "netns_cookie": owner.netns,
                   "pod": words.pod(owner.netns), "generation": format!("{:016x}", owner.generation)})
        })?,
        "NAMES" => rows(tables.names.iter(), |(key, row)| {
            json!({"netns_cookie": key.netns, "namespace": text(&row.namespace), "name": text(&row.name),
                   "uid": text(&row.uid), "enabled": row.state != 0, "inbound": row.inbound != 0})
        })?,
        "NETWORKS" => networks
            .iter()
            .map(|(id, name)| json!({"id": id, "name": name.0}))
            .collect(),
        "SETTINGS" => rows(
            tables.settings.iter(),
            |row| json!({"node_netns_cookie": row.node_netns, "node_network": words.network(row.node_network)}),
        )?,
        "LISTENERS" => rows(
            tables.listeners.iter(),
            |(key, cookie)| json!({"netns_cookie": key.netns, "pod": words.pod(key.netns), "slot": key.slot, "socket_cookie": cookie}),
        )?,
        "HANDOVER" => rows(tables.handover.iter(), |(flow, row)| {
            let kind = if row.kind == handover::OUTBOUND {
                "outbound"
            } else {
                "inbound"
            };
            json!({"flow": words.flow(&flow), "kind": kind, "socket_cookie": row.socket,
                   "endpoint": endpoint(row.endpoint.ip.into(), row.endpoint.port)})
        })?,
        "TRUSTED" => rows(
            tables.trusted.iter(),
            |(flow, row)| json!({"flow": words.flow(&flow), "socket_cookie": row.socket}),
        )?,
        _ => tables
            .count()?
            .iter()
            .map(|(key, counters)| {
                let counted: serde_json::Map<_, _> = counters
                    .fields()
                    .map(|(name, _, value)| (name.to_owned(), json!(value)))
                    .collect();
                json!({"netns_cookie": key.netns, "pod": words.pod(key.netns), "counters": counted})
            })
            .collect(),
    };
    entries.sort_by_key(Value::to_string);
    Ok(entries)
}

/// Names for the numbers in the maps.
struct Words<'a> {
    networks: &'a BTreeMap<u32, NetworkName>,
    names: &'a BTreeMap<NetnsKey, String>,
}

impl Words<'_> {
    fn network(&self, id: u32) -> String {
        self.networks
            .get(&id)
            .map_or_else(|| format!("#{id}"), |name| name.0.clone())
    }

    fn pod(&self, netns: u64) -> String {
        let unknown = || {
            let name = match netns {
                0 => "(node)",
                GONE => "(gone)",
                _ => "",
            };
            name.to_owned()
        };
        self.names
            .get(&NetnsKey { netns })
            .cloned()
            .unwrap_or_else(unknown)
    }

    fn flow(&self, flow: &Flow) -> Value {
        json!({"pod": self.pod(flow.netns), "netns_cookie": flow.netns,
               "source": endpoint(flow.source.into(), flow.source_port),
               "destination": endpoint(flow.destination.into(), flow.destination_port)})
    }
}

fn rows<T, E: std::error::Error + Send + Sync + 'static>(
    iter: impl Iterator<Item = Result<T, E>>,
    row: impl Fn(T) -> Value,
) -> anyhow::Result<Vec<Value>> {
    iter.map(|entry| entry.map(&row).context("reading the map"))
        .collect()
}

fn ip(ip: agent_common::address::Ip) -> Option<IpAddr> {
    (!ip.is_none()).then(|| ip.into())
}

fn endpoint(ip: IpAddr, port: u32) -> String {
    match ip {
        IpAddr::V4(ip) => format!("{ip}:{port}"),
        IpAddr::V6(ip) => format!("[{ip}]:{port}"),
    }
}

/// An entry in one line: `name=value` of what is not zero or empty.
fn sentence(entry: &Value) -> String {
    let Some(fields) = entry.as_object() else {
        return entry.to_string();
    };
    let word = |(name, value): (&String, &Value)| match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Number(number) if number.as_u64() == Some(0) && name != "slot" && name != "id" => None,
        Value::String(text) => Some(format!("{name}={text}")),
        Value::Object(_) => Some(format!("{name}=({})", sentence(value))),
        other => Some(format!("{name}={other}")),
    };
    fields.iter().filter_map(word).collect::<Vec<_>>().join(" ")
}
