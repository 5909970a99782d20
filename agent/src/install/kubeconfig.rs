//! The kubeconfig for Istio's plugin, from what Kubernetes gives to the agent's pod.

use std::fs;
use std::path::PathBuf;

use agent_core::cni::conf::kubeconfig::{FILE, Kubeconfig};

use super::Config;
use super::files::{self, FileError};

/// How the plugin is to reach the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Address of the API server.
    pub server: String,
    /// Its certificate authority, a PEM file; `None`: the plugin does not check the server.
    pub ca_file: Option<PathBuf>,
    /// File with the service account's token.
    pub token_file: PathBuf,
    /// Mode of the kubeconfig.
    pub mode: u32,
}

/// Writes it, if one is wanted and it says something else.
pub(super) fn write(config: &Config) -> Result<(), FileError> {
    let Some(credentials) = &config.kubeconfig else {
        return Ok(());
    };
    let read = |path: &PathBuf| fs::read(path).map_err(FileError::of("reading", path));
    let token = read(&credentials.token_file)?;
    let text = Kubeconfig {
        server: credentials.server.clone(),
        ca: credentials.ca_file.as_ref().map(read).transpose()?,
        token: String::from_utf8_lossy(&token).trim().to_owned(),
    }
    .text();
    let path = config.run_dir.join(FILE);
    if files::read(&path).is_ok_and(|is| is == text.as_bytes()) {
        return Ok(());
    }
    files::write(&path, text.as_bytes(), credentials.mode)?;
    tracing::info!(kubeconfig = %path.display(), "written for Istio's plugin");
    Ok(())
}
