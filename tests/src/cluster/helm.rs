//! The real helm, and the chart that is delivered.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Cluster, User};

/// The chart.
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/charts/meshgate");
/// Namespace that it is installed in.
pub const NAMESPACE: &str = "istio-system";

impl Cluster {
    /// Runs helm as `admin` in [`NAMESPACE`], and returns what it prints.
    ///
    /// # Errors
    /// When it fails, with what it complains of.
    pub fn helm(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.command("helm")?;
        command.arg("--kubeconfig").arg(self.kubeconfig(User::Admin));
        command
            .args(["--namespace", NAMESPACE])
            .args(arguments)
            .env("HOME", &self.folder);
        printed(&command.output().context("starting helm")?)
    }
}

/// What the chart makes of these flags (`--set name=value`), as helm prints it; no cluster is asked.
///
/// # Errors
/// When helm refuses, with its reason.
pub fn render(helm: &Path, flags: &[&str]) -> Result<Vec<Value>> {
    let home = tempfile::tempdir()?;
    let mut command = Command::new(helm);
    command
        .args(["template", "istio-cni", CHART, "--namespace", NAMESPACE])
        .args(flags)
        .env("HOME", home.path());
    let yaml = printed(&command.output().context("starting helm")?)?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&yaml)?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

fn printed(output: &Output) -> Result<String> {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    ensure!(
        output.status.success(),
        "helm ended with {}: {err}{out}",
        output.status
    );
    Ok(out.into_owned())
}
