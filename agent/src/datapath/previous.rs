//! Layouts of earlier versions that this one can take over from: which maps changed, and how their rows become this
//! version's. Maps that did not change are taken as they are.
//!
//! Only maps that the agent alone writes may change like this. `HANDOVER`, `TRUSTED`, `SOCKETS`, `ASKED`, `LISTENERS` and
//! `COUNTERS` belong to connections that are open and to programs that run: they never change, a new need gets a new map.

/// A version.
pub struct Previous {
    /// Its number.
    pub version: u32,
    /// The maps that have changed since.
    pub changed: &'static [Changed],
}

/// A map that has changed.
pub struct Changed {
    /// Its name.
    pub map: &'static str,
    /// A value of this version from one of the earlier; `None` if it cannot be one. Keys do not change.
    pub value: fn(&[u8]) -> Option<Vec<u8>>,
}

/// All versions that can be read. This is the first one.
#[cfg(not(feature = "abi-next"))]
pub const PREVIOUS: &[Previous] = &[];

/// Those that the version of the upgrade tests can read.
#[cfg(feature = "abi-next")]
pub const PREVIOUS: &[Previous] = &[Previous {
    version: 1,
    changed: &[Changed {
        map: "PODS",
        value: |earlier| {
            let size = size_of::<agent_common::pod::Pod>() - size_of::<u64>();
            (earlier.len() == size).then(|| [&agent_common::pod::TRIAL.to_ne_bytes(), earlier].concat())
        },
    }],
}];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_open_connections_do_not_change() {
        let of_connections = ["HANDOVER", "TRUSTED", "SOCKETS", "ASKED", "LISTENERS", "COUNTERS"];
        for changed in PREVIOUS.iter().flat_map(|previous| previous.changed) {
            assert!(!of_connections.contains(&changed.map), "{}", changed.map);
        }
    }
}
