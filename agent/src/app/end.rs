//! The agent's end: whether another agent follows on this node, and what is left for it. Captured pods stay captured
//! either way.

use agent_core::departure::{self, Departure};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::LifecycleArgs;
use crate::source::connection::Connection;
use crate::source::owner::OwnDaemonSet;

/// What is asked at the end, and what is done then.
pub(super) struct End {
    owner: Option<OwnDaemonSet>,
    forced: bool,
}

impl End {
    /// In a cluster, whose API server knows the agent's DaemonSet.
    pub(super) fn in_cluster(args: &LifecycleArgs, connection: &Connection, node: &str) -> Self {
        let owner = (!args.pod_namespace.is_empty())
            .then(|| OwnDaemonSet::new(connection.clone(), &args.pod_namespace, &args.daemonset, node));
        Self {
            owner,
            forced: args.disable_safe_upgrade,
        }
    }

    /// Without one.
    pub(super) fn elsewhere(args: &LifecycleArgs) -> Self {
        Self {
            owner: None,
            forced: args.disable_safe_upgrade,
        }
    }

    /// Tells, while the agent works, what would make its end unsafe.
    pub(super) async fn prepare(&self) {
        let Some(owner) = &self.owner else { return };
        match owner.may_ask().await {
            Ok(()) => tracing::info!("the agent has asked for its DaemonSet"),
            Err(problem) => tracing::warn!("a removal of the agent will look like an upgrade: {problem}"),
        }
    }

    /// Waits for a signal, then decides.
    pub(super) async fn told(&self, signals: &mut Signals) -> Departure {
        signals.told().await;
        let departure = self.departure().await;
        match &departure {
            Departure::Stays { why } => {
                tracing::info!("stopping: pods stay captured, and new ones wait for the next agent: {why}");
            }
            Departure::Removed { why } => {
                tracing::info!(
                    "stopping for good: pods stay captured until `meshgate cleanup`, new ones are not: {why}"
                );
            }
        }
        departure
    }

    async fn departure(&self) -> Departure {
        match &self.owner {
            // Not asked when the answer does not count.
            Some(owner) if !self.forced => departure::decide(false, &owner.ask().await),
            None if !self.forced => Departure::Stays {
                why: "the agent belongs to no DaemonSet".to_owned(),
            },
            _ => departure::decide(true, &departure::Owner::NotFound),
        }
    }
}

/// SIGTERM and SIGINT. They are heard from when this is made: one that comes while the agent still starts waits here, and
/// does not kill an agent that has not asked yet whether it is to take the plugin with it.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Begins to listen.
    pub(super) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for one of them.
    pub(super) async fn told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
