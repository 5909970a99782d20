//! Settings of the agent's end: how it tells an upgrade from its removal.

use clap::Args;
use clap::builder::BoolishValueParser;

/// How the agent tells an upgrade from its removal.
#[derive(Args, Clone, Debug)]
pub struct LifecycleArgs {
    /// Namespace of the agent's own DaemonSet; without it the agent does not ask, and each stop is one before an upgrade
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", default_value = "")]
    pub pod_namespace: String,
    /// Name of the agent's own DaemonSet: while it is there, a stop is one before an upgrade
    #[arg(
        long,
        value_name = "NAME",
        env = "MESHGATE_DAEMONSET",
        default_value = "istio-cni-node"
    )]
    pub daemonset: String,
    /// Take the plugin out of the CNI configuration at each stop, as if it were the removal
    #[arg(long, value_name = "BOOL", env = "AMBIENT_DISABLE_SAFE_UPGRADE", default_value_t = false, num_args = 0..=1,
          default_missing_value = "true", action = clap::ArgAction::Set,
          value_parser = BoolishValueParser::new())]
    pub disable_safe_upgrade: bool,
}
