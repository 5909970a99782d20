//! Why the installer does not go on, in words for the operator.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

use agent_core::cni::conf::plan::{Mode, Obstacle};

use super::Config;
use super::files::FileError;
use crate::report::Problem;

/// Which part of the installation failed: each is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Binaries,
    Kubeconfig,
    Configuration,
}

/// A part, and why.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) part: Part,
    pub(super) error: FileError,
}

impl Failure {
    pub(super) fn of(part: Part) -> impl Fn(FileError) -> Self {
        move |error| Self { part, error }
    }

    pub(super) fn problem(&self) -> Problem {
        let FileError {
            operation,
            path,
            source,
        } = &self.error;
        let fix = match source.kind() {
            ErrorKind::ReadOnlyFilesystem => {
                "it lies on a read-only file system: set the folders of this platform (chart: global.platform, \
                 cniBinDir, cniConfDir)"
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space on the node's disk",
            ErrorKind::PermissionDenied => {
                "let the agent write there (uid 0, CAP_DAC_OVERRIDE, SELinux type spc_t)"
            }
            ErrorKind::NotFound => {
                "create the folder, or set the folders of this platform (chart: global.platform)"
            }
            _ => "correct this",
        };
        Problem {
            object: path.display().to_string(),
            problem: format!("installing the CNI plugin: {operation} it failed: {source}"),
            fix: format!("{fix}; it is tried again by itself"),
        }
    }
}

/// What is waited for in the folder of configurations.
pub(super) fn obstacle(folder: &Path, obstacle: &Obstacle) -> Problem {
    let object = obstacle
        .file
        .as_ref()
        .map_or_else(|| folder.to_owned(), |file| folder.join(file));
    Problem {
        object: object.display().to_string(),
        problem: obstacle.problem.clone(),
        fix: obstacle.fix.clone(),
    }
}

/// What keeps runtimes from the file with our plugin.
pub(super) fn preempted(config: &Config, before: &OsStr) -> Problem {
    let fix = match config.goal.mode {
        Mode::Owned { .. } => {
            "remove it, or let ours sort before it with --istio-owned-cni-config-filename (ISTIO_OWNED_CNI_CONFIG_FILENAME)"
        }
        Mode::Chained { .. } | Mode::Standalone { .. } => {
            "remove it, or name it with --cni-conf-name (CNI_CONF_NAME)"
        }
    };
    Problem {
        object: config.conf_dir.join(before).display().to_string(),
        problem: "it sorts before the file with the CNI plugin, so that container runtimes use it and pods start uncaptured"
            .to_owned(),
        fix: fix.to_owned(),
    }
}
