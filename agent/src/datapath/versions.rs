//! Pins of other versions of the layouts: leftovers are removed, those of the version before are taken over without a
//! moment in which a pod is not captured.
//!
//! A take-over keeps every link and every map that can be kept, so that open connections and those under way lose
//! nothing: pinned under both versions, links get this build's programs one by one, and only then does the earlier
//! version's folder go. An agent that dies half-way finds both folders and begins again.

use std::io;
use std::path::Path;

use agent_common::ABI_VERSION;
use agent_core::layout_version::{self, Found, Refusal};

use super::pins::{Pins, PinsError, is_link, names};
use super::plan::MAPS;
use super::previous::{PREVIOUS, Previous};
use super::remnants::remove_folder;
use super::state::pins_in;
use crate::sys::bpf::{self, RawMap};

/// Why the pins of other versions cannot be dealt with.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// They must stay as they are.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A pin cannot be read, made or removed.
    #[error(transparent)]
    Pins(#[from] PinsError),
    /// A map or link cannot be taken over.
    #[error("taking over {object} from version v{from}: {source}")]
    TakeOver {
        /// What.
        object: String,
        /// From where.
        from: u32,
        /// What the kernel says.
        source: io::Error,
    },
}

/// What was found and done at first.
pub struct Begun {
    /// The version to take over from.
    pub from: Option<TakeOver>,
    /// Versions whose leftovers were removed.
    pub removed: Vec<u32>,
}

/// A version that is being taken over from.
pub struct TakeOver {
    /// The version.
    pub version: u32,
    previous: &'static Previous,
    earlier: Pins,
    now: Pins,
}

/// Looks at the pins of all versions, removes leftovers, makes this version's folders, and pins the maps there that are
/// taken as they are.
///
/// # Errors
/// When pods are captured by pins that cannot be read (nothing is changed then), or a pin cannot be changed.
pub fn begin(pins: &Pins) -> Result<Begun, VersionError> {
    let readable: Vec<u32> = PREVIOUS.iter().map(|previous| previous.version).collect();
    let decision = layout_version::decide(ABI_VERSION, &readable, &found(pins)?)?;
    for version in &decision.stale {
        remove_folder(&pins.of_version(*version).root())?;
    }
    pins.make_folders()?;
    let previous = PREVIOUS
        .iter()
        .find(|previous| Some(previous.version) == decision.from);
    let from = previous.map(|previous| TakeOver {
        version: previous.version,
        previous,
        earlier: pins.of_version(previous.version),
        now: pins.clone(),
    });
    if let Some(from) = &from {
        from.take_maps()?;
    }
    Ok(Begun {
        from,
        removed: decision.stale,
    })
}

/// Other versions whose pins capture pods.
///
/// # Errors
/// When the pins cannot be listed.
pub fn others(pins: &Pins) -> Result<Vec<u32>, PinsError> {
    let found = found(pins)?.into_iter();
    let others = found.filter(|pins| pins.version != ABI_VERSION && pins.attached > 0);
    Ok(others.map(|pins| pins.version).collect())
}

/// The versions that something is pinned under.
fn found(pins: &Pins) -> Result<Vec<Found>, PinsError> {
    let mut found = Vec::new();
    for name in names(&pins.all_versions())? {
        let Some(version) = name.strip_prefix('v').and_then(|number| number.parse().ok()) else {
            continue;
        };
        let pinned = pins_in(&pins.of_version(version).root())?;
        let links = pinned.iter().filter(|pin| is_link(pin));
        let attached = links.filter(|pin| is_attached(pin)).count();
        found.push(Found { version, attached });
    }
    Ok(found)
}

fn is_attached(pin: &Path) -> bool {
    bpf::get_pinned(pin)
        .and_then(bpf::link_info)
        .is_ok_and(|info| info.target != 0)
}

impl TakeOver {
    fn take_maps(&self) -> Result<(), VersionError> {
        let is_same = |name: &&&str| self.previous.changed.iter().all(|changed| changed.map != **name);
        for name in MAPS.iter().filter(is_same) {
            self.pin_again(&self.earlier.map(name), &self.now.map(name))?;
        }
        Ok(())
    }

    /// Fills the maps that have changed, which this version's programs have made, and pins all links under this version.
    ///
    /// # Errors
    /// When the kernel refuses: the pods are still captured by the earlier programs.
    pub fn take_rows_and_links(&self) -> Result<(), VersionError> {
        for changed in self.previous.changed {
            let (from, to) = (self.earlier.map(changed.map), self.now.map(changed.map));
            copy_rows(&from, &to, changed.value).map_err(|source| self.failed(changed.map, source))?;
        }
        let (earlier, now) = (self.earlier.links(), self.now.links());
        for pin in pins_in(&earlier)?.iter().filter(|pin| pin.is_file()) {
            let name = pin.strip_prefix(&earlier).unwrap_or(pin);
            self.pin_again(pin, &now.join(name))?;
        }
        Ok(())
    }

    /// Removes the earlier version's pins; what this version has pinned too goes on.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub fn finish(&self) -> Result<(), VersionError> {
        remove_folder(&self.earlier.root()).map(drop)?;
        Ok(())
    }

    /// Pins under this version what is pinned under the earlier; what is there already was pinned by an agent that died.
    fn pin_again(&self, from: &Path, to: &Path) -> Result<(), VersionError> {
        let pinned = || {
            if to.exists() {
                return Ok(());
            }
            if let Some(folder) = to.parent() {
                std::fs::create_dir_all(folder)?;
            }
            match bpf::get_pinned(from) {
                // It was unpinned: this version makes it anew.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                object => bpf::pin(object?, to),
            }
        };
        pinned().map_err(|source| self.failed(&from.display().to_string(), source))
    }

    fn failed(&self, object: &str, source: io::Error) -> VersionError {
        VersionError::TakeOver {
            object: object.to_owned(),
            from: self.version,
            source,
        }
    }
}

fn copy_rows(from: &Path, to: &Path, value: fn(&[u8]) -> Option<Vec<u8>>) -> io::Result<()> {
    let from = match RawMap::open(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        map => map?,
    };
    let to = RawMap::open(to)?;
    for key in from.keys()? {
        let earlier = from.get(&key)?;
        let row = value(&earlier).ok_or_else(|| {
            let text = format!("a value of {} bytes is not of that version", earlier.len());
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        to.put(&key, &row)?;
    }
    Ok(())
}
