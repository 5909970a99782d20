//! One message that a connection is to send, and who waits for its ack.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use agent_core::ids::PodUid;

use super::call::{CallError, Waiter, answer};
use crate::ports::Workload;

/// What is to be sent now.
#[derive(Debug)]
pub(super) enum Step {
    /// `Add`, with the descriptor.
    Add {
        /// The pod.
        workload: Workload,
        /// Its network namespace.
        netns: Arc<OwnedFd>,
        /// Which of the adds of this pod it is.
        version: u64,
    },
    /// `Keep`.
    Keep(PodUid),
    /// `Del`.
    Del(PodUid),
    /// `SnapshotSent`.
    SnapshotSent,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { workload, .. } => write!(f, "Add {}", workload.pod),
            Self::Keep(uid) => write!(f, "Keep {uid}"),
            Self::Del(uid) => write!(f, "Del {uid}"),
            Self::SnapshotSent => f.write_str("SnapshotSent"),
        }
    }
}

/// A [`Step`] and who waits for it.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) step: Step,
    waiter: Option<Waiter>,
}

impl Task {
    /// A message that somebody may wait for.
    pub(super) fn new(step: Step, waiter: Option<Waiter>) -> Self {
        Self { step, waiter }
    }

    /// Tells who waits.
    pub(super) fn answer(self, outcome: Result<(), CallError>) {
        answer(self.waiter, outcome);
    }
}
