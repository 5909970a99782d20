//! What of ours is in the kernel: taken down before a cleanup, asked for again after it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use aya::maps::{MapInfo, loaded_maps};
use aya::programs::loaded_programs;

use super::pins::{Pins, PinsError, io_error, unpin};
use super::state::pins_in;
use super::tables::Tables;
use crate::sys::bpf;

/// Ids of our programs and maps, and the namespaces that were changed.
#[derive(Clone, Debug, Default)]
pub struct Remnants {
    /// Programs behind our links.
    pub programs: BTreeSet<u32>,
    /// Our maps.
    pub maps: BTreeSet<u32>,
    /// Network namespaces that were changed, by cookie, and how (bits of `agent_common::pod::changed`).
    pub changed: BTreeMap<u64, u32>,
}

impl Remnants {
    /// Everything that the pins lead to.
    ///
    /// # Errors
    /// When the pins cannot be listed.
    pub fn of(pins: &Pins) -> Result<Self, PinsError> {
        let mut found = Self::default();
        for pin in pins_in(&pins.all_versions())?
            .into_iter()
            .filter(|path| path.is_file())
        {
            if let Ok(info) = bpf::get_pinned(&pin).and_then(bpf::link_info) {
                found.programs.insert(info.program);
            } else if let Ok(info) = MapInfo::from_pin(&pin) {
                found.maps.insert(info.id());
            }
        }
        if let Ok(tables) = Tables::open(pins) {
            let names = tables
                .names
                .iter()
                .filter_map(Result::ok)
                .filter(|(_, row)| row.changed != 0);
            found.changed = names.map(|(key, row)| (key.netns, row.changed)).collect();
        }
        Ok(found)
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
        let name = |name: Option<&str>| name.unwrap_or("?").to_owned();
        programs
            .map(|info| format!("program {} ({})", info.id(), name(info.name_as_str())))
            .chain(maps.map(|info| format!("map {} ({})", info.id(), name(info.name_as_str()))))
            .collect()
    }
}

/// Removes all pins in a folder, and the folder: links first, so that nothing runs on maps that are going away. Returns
/// how many there were.
///
/// # Errors
/// When one cannot be removed.
pub fn remove_folder(folder: &Path) -> Result<usize, PinsError> {
    let mut all = pins_in(folder)?;
    all.sort_by_key(|path| !path.components().any(|part| part.as_os_str() == "links"));
    let (folders, files): (Vec<_>, Vec<_>) = all.into_iter().partition(|path| path.is_dir());
    for file in &files {
        unpin(file)?;
    }
    // Deepest first: a folder comes after what is in it.
    let mut folders = folders;
    folders.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    for folder in &folders {
        std::fs::remove_dir(folder).map_err(io_error("remove", folder))?;
    }
    Ok(files.len() + folders.len())
}

/// Whether the kernel has a program, of anybody, whose name (at most 15 bytes) satisfies `wanted`.
pub fn is_loaded(wanted: impl Fn(&str) -> bool) -> bool {
    loaded_programs()
        .filter_map(Result::ok)
        .any(|info| info.name_as_str().is_some_and(&wanted))
}
