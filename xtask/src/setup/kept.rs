//! Binaries and folders that are kept in the cache, unless the environment names others.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::workspace::cache;

/// One of them.
pub(crate) struct Kept {
    /// The environment variable that names another one.
    pub(crate) variable: &'static str,
    /// Its place within the cache.
    pub(crate) place: &'static str,
}

impl Kept {
    /// Where it is, or what is missing.
    pub(crate) fn find(&self) -> Result<PathBuf, String> {
        let given = env::var_os(self.variable).map(PathBuf::from);
        if let Some(binary) = given.filter(|binary| binary.exists()) {
            return Ok(binary);
        }
        let binary = self.path().map_err(|error| format!("{error:#}"))?;
        if binary.exists() {
            Ok(binary)
        } else {
            Err("not found".to_owned())
        }
    }

    fn path(&self) -> anyhow::Result<PathBuf> {
        Ok(cache()?.join(self.place))
    }

    /// Moves to its place what `fetch` has brought into a folder, which goes afterwards.
    pub(super) fn bring(&self, fetch: impl FnOnce(&Path) -> anyhow::Result<PathBuf>) -> anyhow::Result<()> {
        let path = self.path()?;
        let scratch = path.with_extension(format!("new-{}", std::process::id()));
        fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
        let result = fetch(&scratch).and_then(|binary| {
            fs::rename(&binary, &path)
                .with_context(|| format!("cannot move {} to {}", binary.display(), path.display()))
        });
        fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
        result
    }
}
