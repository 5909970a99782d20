//! Settings of what the agent answers to the CNI plugin.

use agent_core::cni::policy::FailurePolicy;
use clap::Args;

/// What the CNI plugin is answered.
#[derive(Args, Clone, Debug)]
pub struct CniArgs {
    /// What becomes of a new pod when it cannot be told in time whether it belongs to the mesh: Fail (it does not start,
    /// kubelet tries again) or Ignore (it starts uncaptured, and is captured when the agent hears of it)
    #[arg(
        long = "cni-failure-policy",
        value_name = "POLICY",
        env = "MESHGATE_CNI_FAILURE_POLICY",
        default_value_t = FailurePolicy::Fail
    )]
    pub failure_policy: FailurePolicy,
}
