//! What an agent has pinned on a node: its maps and links, to be looked at and spoiled by tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use agent_common::ABI_VERSION;
use anyhow::{Context, Result};

use crate::node::Node;
use crate::sys::bpf::{Kind, Map, Pinned};

/// Maps with rows that come and go with pods, connections and proxies.
const CHANGING: [&str; 8] = [
    "PODS",
    "ADDRESSES",
    "NAMES",
    "NETWORKS",
    "COUNTERS",
    "LISTENERS",
    "HANDOVER",
    "TRUSTED",
];

/// The folder of an agent's pins.
#[derive(Clone, Debug)]
pub struct Pins(PathBuf);

impl Pins {
    /// Those of the agent on this node.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        Self(node.bpffs().join(format!("meshgate/v{ABI_VERSION}")))
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// A map.
    ///
    /// # Errors
    /// When it is not pinned.
    pub fn map(&self, name: &str) -> Result<Map> {
        let pin = self.0.join("maps").join(name);
        Map::open(&pin).with_context(|| format!("opening map {}", pin.display()))
    }

    /// How many entries a map has.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn count(&self, map: &str) -> Result<usize> {
        Ok(self.map(map)?.keys()?.len())
    }

    /// How many entries each map has whose entries come and go.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn counts(&self) -> Result<Vec<usize>> {
        CHANGING.iter().map(|map| self.count(map)).collect()
    }

    /// Folder of links: `node`, `pod` or `proxy`.
    #[must_use]
    pub fn links(&self, group: &str) -> PathBuf {
        self.0.join("links").join(group)
    }

    /// Names in [`Pins::links`], sorted; none when there is no such folder.
    #[must_use]
    pub fn link_names(&self, group: &str) -> Vec<String> {
        let entries = fs::read_dir(self.links(group)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// All maps and links that are pinned, and the programs behind the links, by their ids.
    ///
    /// # Errors
    /// When a pin cannot be opened.
    pub fn objects(&self) -> Result<BTreeSet<(Kind, u32)>> {
        let mut found = BTreeSet::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let pinned = Pinned::open(&path).with_context(|| path.display().to_string())?;
                let kinds = [
                    (Kind::Map, "map_id"),
                    (Kind::Link, "link_id"),
                    (Kind::Program, "prog_id"),
                ];
                found.extend(
                    kinds
                        .into_iter()
                        .filter_map(|(kind, name)| Some((kind, pinned.number(name)?))),
                );
            }
        }
        Ok(found)
    }
}
