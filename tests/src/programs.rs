//! Where the binaries under test and our own tools lie.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Path of a binary of this workspace: in `MESHGATE_BIN_DIR`, else beside the running test or one folder above (Cargo
/// puts tests into `deps/`).
///
/// # Errors
/// When it was not built.
pub fn find(name: &str) -> Result<PathBuf> {
    let folders: Vec<PathBuf> = match std::env::var_os("MESHGATE_BIN_DIR") {
        Some(folder) => vec![folder.into()],
        None => {
            let me = std::env::current_exe().context("finding the running program")?;
            me.ancestors().skip(1).take(2).map(Path::to_path_buf).collect()
        }
    };
    match folders
        .iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
    {
        Some(path) => Ok(path),
        None => bail!(
            "no {name} in {folders:?}: build it with `cargo build -p agent -p agent-cni -p tests`, or set MESHGATE_BIN_DIR"
        ),
    }
}
