//! How full the maps are and what is attached: read for metrics, at each scrape.

use aya::maps::{MapError, MapInfo};

use super::pins::{Pins, PinsError, names};
use super::plan::{NODE, PROXY};
use super::state;
use super::tables::{Tables, TablesError, map_error};

/// A map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapUsage {
    /// Its name.
    pub name: &'static str,
    /// Entries that are there.
    pub entries: usize,
    /// Entries that it has room for.
    pub capacity: u32,
}

/// Links of one sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkUsage {
    /// What they are attached to: `node`, `proxy`, `pod`.
    pub target: &'static str,
    /// Links that should be.
    pub expected: usize,
    /// Links that are attached.
    pub attached: usize,
}

/// How full the maps are that can be listed. Takes about half a microsecond for each entry.
///
/// # Errors
/// When a map cannot be read.
pub fn maps(pins: &Pins, tables: &Tables) -> Result<Vec<MapUsage>, TablesError> {
    let usage = |name: &'static str, entries: Result<usize, MapError>| {
        let info = MapInfo::from_pin(pins.map(name)).map_err(map_error(name))?;
        Ok(MapUsage {
            name,
            entries: entries.map_err(map_error(name))?,
            capacity: info.max_entries(),
        })
    };
    [
        usage("PODS", count(tables.pods.keys())),
        usage("ADDRESSES", count(tables.addresses.keys())),
        usage("NAMES", count(tables.names.keys())),
        usage("NETWORKS", count(tables.networks.keys())),
        usage("LISTENERS", count(tables.listeners.keys())),
        usage("HANDOVER", count(tables.handover.keys())),
        usage("TRUSTED", count(tables.trusted.keys())),
        usage("COUNTERS", count(tables.counters.keys())),
    ]
    .into_iter()
    .collect()
}

/// A map that changes meanwhile may give a key twice or not at all: the figure is as good as a glance.
fn count<K>(keys: impl Iterator<Item = Result<K, MapError>>) -> Result<usize, MapError> {
    keys.map(|key| key.map(drop))
        .collect::<Result<Vec<()>, _>>()
        .map(|keys| keys.len())
}

/// What is attached, of what should be. Each pod whose inbound connections are captured has one link, each proxy and the
/// node have several.
///
/// # Errors
/// When pins or maps cannot be read.
pub fn links(pins: &Pins, tables: &Tables) -> Result<[LinkUsage; 3], UsageError> {
    let attached = |links: &[state::LinkState]| links.iter().filter(|link| link.attached).count();
    let captured = tables.entries()?;
    let with_inbound = captured.iter().filter(|entry| entry.inbound);
    let is_pinned = |name: &u64| pins.pod_link(agent_core::entry::NetnsCookie(*name)).exists();
    let pinned = with_inbound.clone().map(|entry| entry.netns.0).filter(is_pinned);
    Ok([
        LinkUsage {
            target: "node",
            expected: NODE.len(),
            attached: attached(&state::node_links(pins)),
        },
        LinkUsage {
            target: "proxy",
            expected: PROXY.len() * names(&pins.proxies())?.len(),
            attached: attached(&state::proxy_links(pins)?),
        },
        LinkUsage {
            target: "pod",
            expected: with_inbound.count(),
            attached: pinned.count(),
        },
    ])
}

/// Why it cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The pins.
    #[error(transparent)]
    Pins(#[from] PinsError),
    /// The maps.
    #[error(transparent)]
    Tables(#[from] TablesError),
}
