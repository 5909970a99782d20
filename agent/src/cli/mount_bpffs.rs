//! `meshgate mount-bpffs`: what a node without systemd lacks. In a cluster an init container calls it, whose mount reaches
//! the node.

use serde::Serialize;

use super::Exit;
use super::output::{self, Format};
use crate::config::Paths;
use crate::datapath::pins::Pins;

/// What was done.
#[derive(Debug, Serialize)]
struct Mounted {
    /// Where the bpffs is.
    bpffs: String,
    /// It was mounted now; false: it was there.
    mounted: bool,
}

/// Mounts a bpffs if there is none.
///
/// # Errors
/// When it cannot be mounted.
pub fn execute(paths: &Paths, format: Format) -> anyhow::Result<Exit> {
    let bpffs = paths.bpffs.display().to_string();
    let mounted = Pins::new(&paths.bpffs).mount()?;
    match (format, mounted) {
        (Format::Json, _) => output::json(&Mounted { bpffs, mounted })?,
        (Format::Table, true) => output::lines([format!("mounted a bpffs at {bpffs}")])?,
        (Format::Table, false) => output::lines([format!("there is a bpffs at {bpffs} already")])?,
    }
    Ok(Exit::Fine)
}
