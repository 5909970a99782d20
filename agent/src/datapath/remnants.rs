//! What of ours is in the kernel: taken down before a cleanup, asked for again after it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use agent_common::pod::{NetnsKey, PodName};
use aya::maps::{HashMap, Map, MapData, MapError, MapInfo, loaded_maps};
use aya::programs::loaded_programs;

use super::pins::{Pins, PinsError, io_error, is_link, unpin};
use super::state::pins_in;
use crate::sys::bpf;

/// Ids of our programs, maps and links, and the namespaces that were changed; of all versions.
#[derive(Clone, Debug, Default)]
pub struct Remnants {
    /// Programs behind our links.
    pub programs: BTreeSet<u32>,
    /// Our maps.
    pub maps: BTreeSet<u32>,
    /// Our links.
    pub links: BTreeSet<u32>,
    /// Network namespaces that were changed, by cookie, and how (bits of `agent_common::pod::changed`).
    pub changed: BTreeMap<u64, u32>,
    /// What could not be found out.
    pub unknown: Vec<String>,
}

impl Remnants {
    /// Everything that the pins lead to. What cannot be read is noted and stops nothing.
    #[must_use]
    pub fn of(pins: &Pins) -> Self {
        let mut found = Self::default();
        let all = pins_in(&pins.all_versions()).unwrap_or_else(|error| {
            found.unknown.push(error.to_string());
            Vec::new()
        });
        for pin in all.into_iter().filter(|path| path.is_file()) {
            if is_link(&pin) {
                if let Ok(info) = bpf::get_pinned(&pin).and_then(bpf::link_info) {
                    found.links.insert(info.id);
                    found.programs.insert(info.program);
                }
            } else if let Ok(info) = MapInfo::from_pin(&pin) {
                found.maps.insert(info.id());
            }
            if pin.ends_with("maps/NAMES") {
                match changed(&pin) {
                    Ok(changed) => found.changed.extend(changed),
                    Err(error) => found.unknown.push(format!(
                        "settings of pods that {} names: {error}; `meshgate cleanup` of the version that made it can undo \
                         them",
                        pin.display()
                    )),
                }
            }
        }
        found
    }

    /// Those that the kernel still has, in words.
    #[must_use]
    pub fn still_there(&self) -> Vec<String> {
        let programs = loaded_programs()
            .filter_map(Result::ok)
            .filter(|info| self.programs.contains(&info.id()));
        let maps = loaded_maps()
            .filter_map(Result::ok)
            .filter(|info| self.maps.contains(&info.id()));
        let links = self.links.iter().filter(|id| bpf::is_link(**id));
        let name = |name: Option<&str>| name.unwrap_or("?").to_owned();
        programs
            .map(|info| format!("program {} ({})", info.id(), name(info.name_as_str())))
            .chain(maps.map(|info| format!("map {} ({})", info.id(), name(info.name_as_str()))))
            .chain(links.map(|id| format!("link {id}")))
            .map(|object| format!("{object}: another process or pin holds it, see `bpftool`"))
            .collect()
    }
}

/// The network namespaces that were changed, and how, by a pinned `NAMES`.
fn changed(pin: &Path) -> Result<Vec<(u64, u32)>, MapError> {
    let map = Map::HashMap(MapData::from_pin(pin)?);
    let names = HashMap::<_, NetnsKey, PodName>::try_from(map)?;
    let rows = names
        .iter()
        .filter_map(Result::ok)
        .filter(|(_, row)| row.changed != 0);
    Ok(rows.map(|(key, row)| (key.netns, row.changed)).collect())
}

/// Removes all pins in a folder, and the folder: links first, so that nothing runs on maps that are going away. Returns
/// how many there were.
///
/// # Errors
/// With the first that cannot be removed; the others are removed nevertheless.
pub fn remove_folder(folder: &Path) -> Result<usize, PinsError> {
    let (removed, errors) = remove_all(folder);
    match errors.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(removed),
    }
}

/// Like [`remove_folder`], with everything that could not be removed.
pub fn remove_all(folder: &Path) -> (usize, Vec<PinsError>) {
    let mut all = match pins_in(folder) {
        Ok(all) => all,
        Err(error) => return (0, vec![error]),
    };
    // Files before folders, links before maps; deepest folders first, since a folder comes after what is in it.
    all.sort_by_cached_key(|path| {
        let depth = path.components().count();
        (path.is_dir(), !is_link(path), std::cmp::Reverse(depth))
    });
    let remove = |path: &Path| match path.is_dir() {
        true => std::fs::remove_dir(path).map_err(io_error("remove", path)),
        false => unpin(path),
    };
    let errors: Vec<_> = all.iter().filter_map(|path| remove(path).err()).collect();
    (all.len() - errors.len(), errors)
}

/// Whether the kernel has a program, of anybody, whose name (at most 15 bytes) satisfies `wanted`.
pub fn is_loaded(wanted: impl Fn(&str) -> bool) -> bool {
    loaded_programs()
        .filter_map(Result::ok)
        .any(|info| info.name_as_str().is_some_and(&wanted))
}
