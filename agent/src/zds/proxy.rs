//! The port of enrolment: add and del, each answered by the proxy's own ack.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use agent_core::ids::PodUid;
use tokio::sync::SemaphorePermit;

use super::call::{CallError, Reply};
use super::server::Zds;
use super::wire::{LONGEST_REQUEST, Request};
use crate::ports::{PortError, Proxy, Workload};

impl Proxy for Zds {
    async fn add(&self, workload: Workload, netns: Option<Arc<OwnedFd>>) -> Result<(), PortError> {
        let pod = workload.pod.to_string();
        self.try_add(workload, netns)
            .await
            .map_err(|error| error.into_port_error("ZDS Add", pod))
    }

    async fn del(&self, uid: &PodUid) -> Result<(), PortError> {
        self.try_del(uid)
            .await
            .map_err(|error| error.into_port_error("ZDS Del", format!("pod {uid}")))
    }
}

impl Zds {
    /// Remembers the pod, and has the newest connection add it; the one before it when that one leaves, and so on.
    async fn try_add(&self, workload: Workload, netns: Option<Arc<OwnedFd>>) -> Result<(), CallError> {
        check_length(&workload)?;
        let uid = workload.pod.uid.clone();
        let is_sent = netns.is_some();
        self.shared.registry().remember(workload, netns);
        if !is_sent {
            return Ok(());
        }
        let _turn = self.turn().await;
        loop {
            // An ended reply says that the connection left without an answer.
            if let Ok(outcome) = self.request_add(&uid)?.await {
                return outcome;
            }
        }
    }

    /// Forgets the pod and has all connections let it go; the first failure is returned when all have answered.
    async fn try_del(&self, uid: &PodUid) -> Result<(), CallError> {
        self.shared.registry().forget(uid);
        let _turn = self.turn().await;
        let replies = self.shared.registry().request_del(uid);
        let mut outcome = Ok(());
        for reply in replies {
            outcome = outcome.and(reply.await.unwrap_or(Err(CallError::Closed)));
        }
        outcome
    }

    /// Queues the add. While the gate is closed nobody is sent anything, and a caller that waited for it could be the
    /// one that was to open it.
    fn request_add(&self, uid: &PodUid) -> Result<Reply, CallError> {
        if !*self.shared.gate.borrow() {
            return Err(CallError::Starting);
        }
        let reply = self.shared.registry().request_add(uid);
        reply.ok_or_else(|| CallError::NoProxy {
            socket: self.shared.config.socket.clone(),
        })
    }

    /// Waits until few enough calls are under way.
    async fn turn(&self) -> SemaphorePermit<'_> {
        self.shared
            .calls
            .acquire()
            .await
            .expect("the semaphore is never closed")
    }
}

/// A message that does not fit would make the proxy leave, at each snapshot again: it must never be remembered.
fn check_length(workload: &Workload) -> Result<(), CallError> {
    match Request::add(workload).into_packet().len() {
        bytes if bytes > LONGEST_REQUEST => Err(CallError::TooLong {
            bytes,
            limit: LONGEST_REQUEST,
        }),
        _ => Ok(()),
    }
}
