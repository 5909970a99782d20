//! The installer: puts the CNI plugin onto the node and into its CNI configuration, keeps it there, and takes it away
//! again. What is to be done is decided in [`agent_core::cni::conf`]; here it is done. In reading order:

mod files;
mod folder;

mod binaries;
mod kubeconfig;

mod failure;
mod installer;
mod removal;

use std::path::PathBuf;

use agent_core::cni::conf::plan::Goal;

use crate::report::Problem;

pub use installer::Installer;
pub use kubeconfig::Credentials;
pub use removal::{Removed, remove};

/// Where the installer works. Paths are as this process sees them.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is to be in the configuration, and where.
    pub goal: Goal,
    /// Folder of the node's CNI configurations.
    pub conf_dir: PathBuf,
    /// Mode of configurations that we begin.
    pub conf_mode: u32,
    /// Folder of our binaries.
    pub bin_source: PathBuf,
    /// Folder of the node's CNI plugins.
    pub bin_target: PathBuf,
    /// The agent's run folder, which the plugin knows too.
    pub run_dir: PathBuf,
    /// From what a kubeconfig is written for Istio's plugin; `None`: none is written.
    pub kubeconfig: Option<Credentials>,
}

/// How the installation is, and how often it was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The plugin is on the node and in its configuration.
    pub ready: bool,
    /// How often it became so.
    pub success: u64,
    /// How often the binaries could not be copied.
    pub copy_binaries: u64,
    /// How often the kubeconfig could not be written.
    pub create_kubeconfig: u64,
    /// How often the configuration could not be written.
    pub create_cni_config: u64,
    /// What is wrong, or waited for.
    pub problem: Option<Problem>,
}
