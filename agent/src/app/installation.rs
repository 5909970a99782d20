//! The installer's settings, from those of the agent; and what the node needs of it to be ready.

use std::path::PathBuf;

use agent_core::cni::conf::element::Element;
use agent_core::cni::conf::kubeconfig::server;
use agent_core::cni::conf::plan::Goal;
use agent_core::selector::EnablementSelector;
use anyhow::Context as _;
use tokio::sync::watch;

use crate::config::{PluginPlaceArgs, RunArgs};
use crate::install::{self, Credentials, Installer, Stats};
use crate::ops::{Condition, Readiness};
use crate::report::Problem;

/// What is removed from the node when the agent goes: all that any settings have brought.
#[must_use]
pub fn removal(place: &PluginPlaceArgs) -> install::Config {
    install::Config {
        goal: Goal {
            mode: place.mode(),
            element: Element::default(),
        },
        conf_dir: place.mounted_cni_net_dir.clone(),
        conf_mode: 0o600,
        bin_source: PathBuf::new(),
        bin_target: place.cni_bin_target.clone(),
        run_dir: place.cni_agent_run_dir.clone(),
        kubeconfig: None,
    }
}

/// What is installed.
pub(super) fn config(args: &RunArgs, selectors: &[EnablementSelector]) -> anyhow::Result<install::Config> {
    let install = &args.install;
    let kubeconfig = install.write_kubeconfig.then(|| credentials(args)).transpose()?;
    let mut config = install::Config {
        conf_mode: install.conf_mode(),
        bin_source: install.cni_bin_source.clone(),
        kubeconfig,
        ..removal(&install.place)
    };
    config.goal.element = Element {
        plugin: install.cni_plugin_type,
        log_level: plugin_log_level(&args.ops.log_level),
        run_dir: install.place.cni_agent_run_dir.clone(),
        excluded_namespaces: args.excluded_namespaces(),
        pod_namespace: args.lifecycle.pod_namespace.clone(),
        failure_policy: args.cni.failure_policy,
        selectors: selectors.to_vec(),
        native_nftables: false,
    };
    Ok(config)
}

/// The plugin knows levels, and no parts of the agent.
fn plugin_log_level(levels: &str) -> String {
    let of_all = levels.split(',').find(|level| !level.contains([':', '=']));
    of_all
        .filter(|level| !level.is_empty())
        .unwrap_or("info")
        .to_owned()
}

fn credentials(args: &RunArgs) -> anyhow::Result<Credentials> {
    let variable = |name: &str| {
        std::env::var(name)
            .with_context(|| format!("--write-kubeconfig needs {name}, which Kubernetes sets in a pod"))
    };
    let protocol = std::env::var("KUBERNETES_SERVICE_PROTOCOL").unwrap_or_else(|_| "https".to_owned());
    let (host, port) = (
        variable("KUBERNETES_SERVICE_HOST")?,
        variable("KUBERNETES_SERVICE_PORT")?,
    );
    let account = &args.install.service_account_dir;
    let ca_file = args
        .install
        .kube_ca_file
        .as_ref()
        .map_or_else(|| account.join("ca.crt"), PathBuf::from);
    Ok(Credentials {
        server: server(&protocol, &host, &port),
        ca_file: (!args.install.skip_tls_verify).then_some(ca_file),
        token_file: account.join("token"),
        mode: args.install.kubeconfig_mode,
    })
}

/// The installer, if there is one, and how it is.
pub(super) struct Installation {
    running: Option<(Installer, Condition)>,
    stats: watch::Receiver<Stats>,
    /// Without an installer nothing is ever told, and this keeps the receiver from ending.
    _silent: Option<watch::Sender<Stats>>,
}

impl Installation {
    /// As the settings want it; the node is not ready before the plugin is installed.
    pub(super) fn new(
        args: &RunArgs,
        selectors: &[EnablementSelector],
        readiness: &Readiness,
    ) -> anyhow::Result<Self> {
        if !args.install.install_cni {
            let (silent, stats) = watch::channel(Stats::default());
            return Ok(Self {
                running: None,
                stats,
                _silent: Some(silent),
            });
        }
        let condition = readiness.require("install", "the CNI plugin is not installed yet");
        let (installer, stats) = Installer::new(config(args, selectors)?);
        Ok(Self {
            running: Some((installer, condition)),
            stats,
            _silent: None,
        })
    }

    /// How it is, now and as it changes.
    pub(super) fn stats(&self) -> watch::Receiver<Stats> {
        self.stats.clone()
    }

    /// Installs, and tells the node's readiness how it is; never ends.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self.running {
            None => std::future::pending().await,
            Some((installer, condition)) => tokio::select! {
                never = installer.run() => match never {},
                ended = follow(self.stats, &condition) => ended,
            },
        }
    }
}

async fn follow(mut stats: watch::Receiver<Stats>, condition: &Condition) -> anyhow::Result<()> {
    loop {
        {
            let stats = stats.borrow_and_update();
            match &stats.problem {
                _ if stats.ready => condition.holds(),
                Some(Problem { object, problem, fix }) => {
                    condition.lacks(&format!("{object}: {problem}; {fix}"));
                }
                None => {}
            }
        }
        stats.changed().await.context("the installer ended")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_gets_the_level_of_all() {
        for (levels, level) in [
            ("debug", "debug"),
            ("zds:debug,warn", "warn"),
            ("zds:debug", "info"),
            ("", "info"),
        ] {
            assert_eq!(plugin_log_level(levels), level, "{levels}");
        }
    }
}
