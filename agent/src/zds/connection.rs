//! The life of one connection: hello, programs, gate, snapshot, and then whatever comes, one message and its ack at a
//! time.

use std::convert::Infallible;
use std::os::fd::AsFd;
use std::time::Duration;

use tokio::time::timeout;

use super::call::CallError;
use super::seqpacket::{Channel, ChannelError};
use super::shared::{Registration, Shared};
use super::status::{Counters, Event, count};
use super::task::{Step, Task};
use super::wire::{self, LONGEST_RESPONSE, Request, WireError};
use crate::pod_log::pod_log;
use crate::ports::PortError;

/// How long the proxy may take for its hello, and to read a message (as Istio's agent).
const DEADLINE: Duration = Duration::from_secs(5);
/// How long it may take for an ack. Who is kept waiting gives up earlier; but a proxy that is slow serves at least one pod
/// after the other, while a connection that is closed begins again with the first one and never comes to the last.
const ACK_DEADLINE: Duration = Duration::from_secs(20);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ending {
    /// The socket.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The peer does not speak ZDS.
    #[error("the peer does not speak ZDS: {0}")]
    Garbage(#[from] WireError),
    /// The peer spoke although nothing was asked.
    #[error("the peer sent {bytes} bytes without being asked")]
    Unasked {
        /// Length of the packet.
        bytes: usize,
    },
    /// A deadline passed.
    #[error("{problem} within {} s", limit.as_secs())]
    TimedOut {
        /// What was waited for.
        problem: &'static str,
        /// How long.
        limit: Duration,
    },
    /// The hook failed.
    #[error("the proxy's programs could not be attached, it is turned away and will connect again: {0}")]
    Attach(PortError),
    /// The proxy does not take the end of the snapshot, so that it is in no known state.
    #[error("the proxy refuses the end of the snapshot: {text}")]
    SnapshotRefused {
        /// Its words.
        text: String,
    },
}

impl Ending {
    /// The peer went, which is all right at any time.
    pub(super) fn is_ordinary(&self) -> bool {
        matches!(self, Self::Channel(ChannelError::Closed))
    }

    /// Counts what went wrong.
    pub(super) fn count_in(&self, counters: &Counters) {
        match self {
            Self::Channel(ChannelError::Closed | ChannelError::Io { .. }) => {}
            Self::Channel(ChannelError::TooLong { .. } | ChannelError::Descriptor)
            | Self::Garbage(_)
            | Self::Unasked { .. }
            | Self::SnapshotRefused { .. } => count(&counters.protocol_errors),
            Self::TimedOut { .. } => count(&counters.timeouts),
            Self::Attach(_) => count(&counters.attach_failures),
        }
    }
}

/// Serves a connection until it ends. Cancelling it closes the connection.
pub(super) async fn serve(
    shared: &Shared,
    channel: Channel,
    registration: &mut Registration<'_>,
) -> Result<Infallible, Ending> {
    read_hello(&channel).await?;
    let peer = registration.peer.clone();
    attended(&channel, async { (shared.on_connect)(peer).await })
        .await?
        .map_err(Ending::Attach)?;
    registration.announce();
    let mut gate = shared.gate.subscribe();
    // The sender of the gate lives in `shared`, so that waiting for it cannot fail.
    let _ = attended(&channel, gate.wait_for(|open| *open)).await?;
    shared.registry().begin_snapshot(registration.ticket.generation);
    loop {
        let task = attended(&channel, next_task(shared, registration)).await?;
        perform(shared, &channel, registration, task).await?;
    }
}

/// Waits for `work` while the peer has nothing to say; ends the connection when it says something or leaves.
///
/// The channel is looked at first. So when `work` begins, the peer's process was alive after its id had been read, and
/// what was found by that id was of this process and not of a later one with the same number.
async fn attended<T>(channel: &Channel, work: impl Future<Output = T>) -> Result<T, Ending> {
    tokio::select! {
        biased;
        packet = channel.recv(LONGEST_RESPONSE) => Err(Ending::Unasked { bytes: packet?.len() }),
        done = work => Ok(done),
    }
}

/// Reads the hello. Its version is told to the log only: later versions are meant to understand us.
async fn read_hello(channel: &Channel) -> Result<(), Ending> {
    let packet = timeout(DEADLINE, channel.recv(LONGEST_RESPONSE))
        .await
        .map_err(|_| Ending::TimedOut {
            problem: "the peer did not say hello",
            limit: DEADLINE,
        })??;
    let version = wire::decode_hello(&packet)?;
    if version != wire::V1 {
        tracing::warn!(
            version,
            "the proxy speaks another version of ZDS than ours, which is 1"
        );
    }
    Ok(())
}

/// The next message that this connection is to send.
async fn next_task(shared: &Shared, registration: &Registration<'_>) -> Task {
    loop {
        if let Some(task) = shared.registry().next(registration.ticket.generation) {
            return task;
        }
        registration.ticket.wake.notified().await;
    }
}

/// Sends one message, waits for its ack, and notes the outcome.
async fn perform(
    shared: &Shared,
    channel: &Channel,
    registration: &Registration<'_>,
    task: Task,
) -> Result<(), Ending> {
    let refusal = match exchange(channel, &task.step).await {
        Ok(refusal) => refusal,
        Err(ending) => {
            // Any ack from now on would be taken for the next request's, hence the connection ends. Only a deadline is
            // this call's own fault; all others are tried again at another connection.
            if let Ending::TimedOut { .. } = ending {
                task.answer(Err(CallError::TimedOut {
                    problem: ending.to_string(),
                }));
            }
            return Err(ending);
        }
    };
    if let Some(text) = &refusal {
        if let Step::SnapshotSent = task.step {
            return Err(Ending::SnapshotRefused { text: text.clone() });
        }
        count(&shared.counters.refusals);
        log_refusal(&task.step, registration.peer.pid, text);
    }
    let generation = registration.ticket.generation;
    let snapshot_end = shared.registry().settle(generation, task, refusal);
    if let Some(refused) = snapshot_end {
        let refused: Vec<_> = refused.into_iter().collect();
        tracing::info!(
            generation,
            pid = registration.peer.pid,
            refused = refused.len(),
            "snapshot done"
        );
        shared.tell(Event::SnapshotDone { generation, refused });
    }
    Ok(())
}

fn log_refusal(step: &Step, pid: u32, text: &str) {
    match step {
        Step::Add { workload, .. } => pod_log!(warn, workload.pod, pid, "the proxy refuses the pod: {text}"),
        Step::Keep(uid) | Step::Del(uid) => {
            tracing::warn!(uid = uid.as_str(), pid, "the proxy refuses {step}: {text}");
        }
        Step::SnapshotSent => tracing::warn!(pid, "the proxy refuses {step}: {text}"),
    }
}

/// Sends a message and reads its ack: the error text of the proxy, if any.
async fn exchange(channel: &Channel, step: &Step) -> Result<Option<String>, Ending> {
    let (request, descriptor) = match step {
        Step::Add { workload, netns, .. } => (Request::add(workload), Some(netns.as_fd())),
        Step::Keep(uid) => (Request::keep(uid), None),
        Step::Del(uid) => (Request::del(uid), None),
        Step::SnapshotSent => (Request::snapshot_sent(), None),
    };
    let packet = request.into_packet();
    timeout(DEADLINE, channel.send(&packet, descriptor))
        .await
        .map_err(|_| Ending::TimedOut {
            problem: "the proxy did not read a message",
            limit: DEADLINE,
        })??;
    let ack = timeout(ACK_DEADLINE, channel.recv(LONGEST_RESPONSE))
        .await
        .map_err(|_| Ending::TimedOut {
            problem: "the proxy did not ack",
            limit: ACK_DEADLINE,
        })??;
    Ok(wire::decode_ack(&ack)?)
}
