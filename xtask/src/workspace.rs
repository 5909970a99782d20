//! Where things are: the source tree, what cargo builds, and what is kept between checkouts.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The source tree and its target folder.
pub(crate) struct Workspace {
    /// Folder of the root `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Cargo's target folder.
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// From this program's own place: cargo put it into `<target>/<profile>/`, whatever chose the target folder.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let program = env::current_exe().context("cannot tell where this program is")?;
        let target = program.parent().and_then(Path::parent);
        Ok(Self {
            root: root.context("xtask has no parent folder")?.to_owned(),
            target: target
                .context("this program was not built by cargo: use `cargo xtask`")?
                .to_owned(),
        })
    }

    /// Cargo's target folder for the kernel programs, apart from the other so that both builds can run at once.
    pub(crate) fn bpf_target(&self) -> PathBuf {
        self.target.join("bpf")
    }

    /// That for the programs with other layouts, to which the tests upgrade.
    pub(crate) fn next_bpf_target(&self) -> PathBuf {
        self.target.join("bpf-next")
    }

    /// The agent with other layouts.
    pub(crate) fn next(&self) -> PathBuf {
        self.target.join("debug/meshgate-next")
    }

    /// Where the release binaries are: cargo keeps those of a named target apart.
    pub(crate) fn binaries(&self) -> PathBuf {
        self.target.join(host()).join("release")
    }

    /// Where the output of a quiet step goes.
    pub(crate) fn log(&self, step: &str) -> PathBuf {
        self.target.join("xtask").join(format!("{step}.log"))
    }
}

/// The target that this machine runs, by Rust's name.
pub(crate) fn host() -> String {
    let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    format!("{}-unknown-linux-{libc}", env::consts::ARCH)
}

/// The user's folder for parts that are slow to get and the same for all checkouts.
pub(crate) fn cache() -> anyhow::Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|v| !v.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => {
            PathBuf::from(env::var_os("HOME").context("HOME is not set: there is no place to keep parts in")?)
                .join(".cache")
        }
    };
    Ok(base.join("meshgate"))
}

/// Whether this process is root: namespaces, bpffs and packages need it.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}
