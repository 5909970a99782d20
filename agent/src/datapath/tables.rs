//! The maps, typed. Opened from the pins, by the agent and by every command that reads.

use std::collections::BTreeMap;

use agent_common::address::{AddressKey, AddressOwner};
use agent_common::counters::PodCounters;
use agent_common::flow::{Flow, Handover, ListenerKey, Trusted};
use agent_common::pod::{NetnsKey, NetworkName as NetworkRow, Pod, PodName, Settings};
use agent_core::entry::PodEntry;
use agent_core::ids::NetworkName;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuHashMap, PerCpuValues};

use super::pins::Pins;
use super::rows;

/// All maps but the socket storage, which only has entries of sockets.
pub struct Tables {
    /// Enrolled pods.
    pub pods: HashMap<MapData, NetnsKey, Pod>,
    /// Their addresses.
    pub addresses: HashMap<MapData, AddressKey, AddressOwner>,
    /// Their names.
    pub names: HashMap<MapData, NetnsKey, PodName>,
    /// Networks by id.
    pub networks: HashMap<MapData, u32, NetworkRow>,
    /// The node.
    pub settings: Array<MapData, Settings>,
    /// The proxy's listeners: a SOCKHASH. Its values are read as socket cookies and written as descriptors.
    pub listeners: HashMap<MapData, ListenerKey, u64>,
    /// Connections between connect and accept.
    pub handover: HashMap<MapData, Flow, Handover>,
    /// Connections that pass.
    pub trusted: HashMap<MapData, Flow, Trusted>,
    /// Decisions.
    pub counters: PerCpuHashMap<MapData, NetnsKey, PodCounters>,
}

/// Why the maps cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// Nothing is pinned there.
    #[error("no map {name} is pinned at {path}: is the agent installed on this node? start it: meshgate run")]
    NotPinned {
        /// Name of the map.
        name: &'static str,
        /// Where it should be.
        path: String,
    },
    /// The kernel refuses.
    #[error("map {name}: {source}")]
    Map {
        /// Name of the map.
        name: &'static str,
        /// Why.
        source: MapError,
    },
}

impl Tables {
    /// Opens the pinned maps.
    ///
    /// # Errors
    /// When one is not there, or not allowed.
    pub fn open(pins: &Pins) -> Result<Self, TablesError> {
        let data = |name: &'static str| open(pins, name);
        let hash = |name| Ok::<_, TablesError>(Map::HashMap(data(name)?));
        Ok(Self {
            pods: typed("PODS", HashMap::try_from(hash("PODS")?))?,
            addresses: typed("ADDRESSES", HashMap::try_from(hash("ADDRESSES")?))?,
            names: typed("NAMES", HashMap::try_from(hash("NAMES")?))?,
            networks: typed("NETWORKS", HashMap::try_from(hash("NETWORKS")?))?,
            settings: typed("SETTINGS", Array::try_from(Map::Array(data("SETTINGS")?)))?,
            listeners: typed("LISTENERS", HashMap::try_from(hash("LISTENERS")?))?,
            handover: typed("HANDOVER", HashMap::try_from(hash("HANDOVER")?))?,
            trusted: typed("TRUSTED", HashMap::try_from(hash("TRUSTED")?))?,
            counters: typed(
                "COUNTERS",
                PerCpuHashMap::try_from(Map::PerCpuHashMap(data("COUNTERS")?)),
            )?,
        })
    }

    /// Names of the networks by id.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn network_names(&self) -> Result<BTreeMap<u32, NetworkName>, TablesError> {
        self.networks
            .iter()
            .map(|row| row.map(|(id, row)| (id, NetworkName(rows::text(&row.name)))))
            .collect::<Result<_, _>>()
            .map_err(map_error("NETWORKS"))
    }

    /// What is captured.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn entries(&self) -> Result<Vec<PodEntry>, TablesError> {
        let names: Vec<_> = self
            .names
            .iter()
            .collect::<Result<_, _>>()
            .map_err(map_error("NAMES"))?;
        let pods = self
            .pods
            .iter()
            .collect::<Result<_, _>>()
            .map_err(map_error("PODS"))?;
        let addresses: Vec<_> = self
            .addresses
            .iter()
            .collect::<Result<_, _>>()
            .map_err(map_error("ADDRESSES"))?;
        Ok(rows::entries(&names, &pods, &addresses, &self.network_names()?))
    }

    /// Counters by pod, summed over the CPUs.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn count(&self) -> Result<BTreeMap<NetnsKey, PodCounters>, TablesError> {
        self.counters
            .iter()
            .map(|row| row.map(|(key, cpus)| (key, sum(&cpus))))
            .collect::<Result<_, _>>()
            .map_err(map_error("COUNTERS"))
    }
}

fn sum(cpus: &PerCpuValues<PodCounters>) -> PodCounters {
    let mut total = PodCounters::default();
    for cpu in cpus.iter() {
        total.add(cpu);
    }
    total
}

fn open(pins: &Pins, name: &'static str) -> Result<MapData, TablesError> {
    let path = pins.map(name);
    if !path.exists() {
        return Err(TablesError::NotPinned {
            name,
            path: path.display().to_string(),
        });
    }
    MapData::from_pin(path).map_err(map_error(name))
}

fn typed<T>(name: &'static str, map: Result<T, MapError>) -> Result<T, TablesError> {
    map.map_err(map_error(name))
}

/// An error of a named map.
pub fn map_error(name: &'static str) -> impl Fn(MapError) -> TablesError {
    move |source| TablesError::Map { name, source }
}
